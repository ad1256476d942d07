"""Ends quarrels with other controllers that overwrite the annotation of a Service.

An overwritten address is restored three times in ten minutes. Then the Service is left alone for an hour, or until a
field manager other than that writer, fipop and kube-vip changes the annotation or the spec. The condition says so, also
after a restart: its time and the writer that it names count. Of those that own a part of what was changed, as
managedFields say, the writer is who wrote last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce

from fipop.cloudprovider.conditions import read_since
from fipop.cloudprovider.services import ADDRESSES, Service
from fipop.jsons import JsonView, as_list, as_mapping, as_text

RESTORES, WITHIN, PAUSE = 3, timedelta(minutes=10), timedelta(hours=1)
OWN = frozenset({"", "fipop", "kube-vip"})
"""Field managers that are no other controllers: kube-vip answers each change. "" is one that is not known."""


@dataclass(slots=True, kw_only=True)
class Quarrels:
    """What is remembered of Services that others overwrite, by uid: when they were restored, and the spec."""

    now: Callable[[], datetime]
    _restored: dict[str, list[datetime]] = field(default_factory=dict, init=False)
    _specs: dict[str, str] = field(default_factory=dict, init=False)

    def note_restored(self, service: Service) -> None:
        """Remember that the annotation of a Service was restored now."""
        self._restored[service.uid] = [*self._restored.get(service.uid, []), self.now()][-RESTORES:]

    def is_due(self, service: Service) -> bool:
        """Whether a Service is left alone, or is to be, as it was restored so often."""
        times = self._restored.get(service.uid, [])
        return service.is_left_alone or (len(times) == RESTORES and self.now() - times[0] < WITHIN)

    def forget(self, uid: str) -> None:
        """Forget a Service that is gone."""
        self._restored.pop(uid, None)
        self._specs.pop(uid, None)

    def judge(self, service: Service, live: JsonView) -> tuple[str, float] | None:
        """Return why a Service is left alone, and for how many seconds still; None where it is to be restored."""
        writer, left = _find_writer(live, "f:metadata", "f:annotations", f"f:{ADDRESSES}"), PAUSE
        who = "an unknown writer" if writer in OWN else f"field manager {writer}"
        text = f"{who} overwrites {ADDRESSES}; fipop keeps {live['spec']['loadBalancerIP']} and retries in an hour"
        spec = json.dumps(live["spec"], sort_keys=True)
        if service.word is not None and service.is_left_alone:
            left -= self.now() - (read_since(live) or self.now())
            is_changed = self._specs.get(service.uid, spec) != spec
            is_by_other = is_changed and _find_writer(live, "f:spec") not in OWN | {writer}
            if is_by_other or left <= timedelta() or (writer not in OWN and text != service.word.message):
                return None
            text = service.word.message
        self._specs[service.uid] = spec
        return text, left.total_seconds()


def _find_writer(live: JsonView, *path: str) -> str:
    """Return the field manager that wrote last of those that own a field; "" where none is known."""
    entries = [as_mapping(each) for each in as_list(live["metadata"].get("managedFields"))]
    owners = [each for each in entries if path[-1] in reduce(_descend, path[:-1], _descend(each, "fieldsV1"))]
    return max(((as_text(e.get("time")), as_text(e.get("manager"))) for e in owners), default=("",))[-1]


def _descend(fields: JsonView, key: str) -> JsonView:
    return as_mapping(fields.get(key))
