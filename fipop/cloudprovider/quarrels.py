"""Ends quarrels with other controllers that overwrite the annotation of a Service.

An overwritten address is restored three times in ten minutes. Then the Service is left alone for an hour, or until a
field manager other than that writer, fipop and kube-vip changes the annotation or the spec. The condition says so: its
time and the writer that it names are read after a restart. Whose the annotation is now, its managedFields tell; who
changed the spec, which of those that own a part of it wrote last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fipop.api.conditions import Verdict
from fipop.cloudprovider.conditions import ANOTHER_CONTROLLER, Word, read_since
from fipop.cloudprovider.services import ADDRESSES, Service
from fipop.ipam.addresses import format_address
from fipop.jsons import JsonView, as_list, as_mapping, as_text
from fipop.kube.calls import MANAGER
from fipop.texts import clean

RESTORES = 3
WITHIN, PAUSE = timedelta(minutes=10), timedelta(hours=1)
OWN = frozenset({MANAGER, "kube-vip"})
"""Field managers that are no other controllers; kube-vip answers each change."""

_ANNOTATION = ("f:metadata", "f:annotations", f"f:{ADDRESSES}")


@dataclass(slots=True, kw_only=True)
class Quarrels:
    """What is remembered of Services that others overwrite, by uid. `since` has those that are left alone."""

    now: Callable[[], datetime]
    since: dict[str, datetime] = field(default_factory=dict, init=False)
    _restored: dict[str, list[datetime]] = field(default_factory=dict, init=False)
    _specs: dict[str, str] = field(default_factory=dict, init=False)

    def note_restored(self, service: Service) -> None:
        """Remember that the annotation of a Service was restored now."""
        times = self._restored.get(service.uid, [])
        self._restored[service.uid] = [*times, self.now()][-RESTORES:]

    def forget(self, uid: str) -> None:
        """Forget a Service."""
        for each in (self.since, self._restored, self._specs):
            each.pop(uid, None)

    def has(self, service: Service) -> bool:
        """Whether a Service is left alone."""
        return service.is_left_alone or service.uid in self.since

    def is_due(self, service: Service) -> bool:
        """Whether a Service whose annotation is overwritten was restored so often that it is to be left alone."""
        times = self._restored.get(service.uid, [])
        return len(times) == RESTORES and self.now() - times[0] < WITHIN

    def judge(self, service: Service, live: JsonView) -> Word | None:
        """Return the condition of a Service that is to be left alone; None where its pause is over."""
        uid, now = service.uid, self.now()
        writer = _find_writer(live, _ANNOTATION, OWN)
        word = Word(Verdict.FALSE, ANOTHER_CONTROLLER, _build_message(service, writer))
        spec = json.dumps(live["spec"], sort_keys=True)
        if self.has(service):
            since = (read_since(live) if service.is_left_alone else None) or self.since.get(uid, now)
            is_changed = self._specs.get(uid, spec) != spec
            is_by_other = is_changed and _find_writer(live, ("f:spec",), {writer, *OWN}) not in {writer, *OWN}
            if service.is_left_alone and writer in OWN:
                word = service.word or word
            if now - since >= PAUSE or is_by_other or (service.is_left_alone and word != service.word):
                self.since.pop(uid, None)
                self._restored.pop(uid, None)
                return None
        else:
            since = now
        self.since[uid], self._specs[uid] = since, spec
        return word

    def seconds_left(self, service: Service) -> float:
        """Return how long a Service is still left alone."""
        return max(1.0, (self.since[service.uid] + PAUSE - self.now()).total_seconds())


def _find_writer(live: JsonView, path: tuple[str, ...], quiet: AbstractSet[str]) -> str:
    """Return the field manager that wrote last of those that own a field; of two at once, one of `quiet`."""
    entries = [as_mapping(each) for each in as_list(as_mapping(live["metadata"]).get("managedFields"))]
    owners = [each for each in entries if _owns(each, path)]
    newest = max(
        owners,
        key=lambda each: (as_text(each.get("time")), as_text(each.get("manager")) in quiet),
        default={},
    )
    return as_text(newest.get("manager"))


def _owns(entry: JsonView, path: tuple[str, ...]) -> bool:
    found = as_mapping(entry.get("fieldsV1"))
    for key in path[:-1]:
        found = as_mapping(found.get(key))
    return path[-1] in found


def _build_message(service: Service, writer: str) -> str:
    who = "an unknown writer" if writer in {"", *OWN} else f"field manager {clean(writer)}"
    address = format_address(service.requested) if service.requested is not None else ""
    return (
        f"{who} overwrites annotation {ADDRESSES}, which was restored {RESTORES} times; {address} stays reserved for "
        f"this Service, and is restored again after an hour, or when another field manager changes the annotation or "
        f"the spec: stop that writer"
    )
