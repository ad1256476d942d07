"""Ends quarrels with other controllers that overwrite the annotation of a Service.

An overwritten address is restored three times in ten minutes. Then the Service is left alone for an hour, or until a
field manager other than that writer, fipop and kube-vip changes the annotation or the spec. The condition says so, also
after a restart: its time and the writer that it names count. Of those that own a part of what was changed, as
managedFields say, the writer is who wrote last.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

from fipop.cloudprovider.conditions import read_since
from fipop.cloudprovider.services import ADDRESSES, Service
from fipop.jsons import JsonView, as_list, as_mapping, as_text

RESTORES, MOST_RESTORES, WITHIN, PAUSE = 3, 6, timedelta(minutes=10), timedelta(hours=1)
"""`MOST_RESTORES` counts those after a change of another's, too: two others may overwrite each other's for ever."""
OWN = frozenset({"", "fipop", "kube-vip"})
"""Field managers that are no other controllers: kube-vip answers each change. "" is one that is not known."""


class Quarrels:
    """What is remembered of Services that others overwrite, by uid: when they were restored, and the spec."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._restored: dict[str, list[datetime]] = {}
        self._specs: dict[str, str] = {}

    def note_restored(self, service: Service) -> None:
        """Remember that the annotation of a Service was restored now."""
        self._restored[service.uid] = [*self._restored.get(service.uid, []), self._now()][-MOST_RESTORES:]

    def is_due(self, service: Service) -> bool:
        """Whether a Service is left alone, or is to be, as it was restored so often."""
        return service.is_left_alone or self._count(service) >= RESTORES

    def forget(self, uid: str) -> None:
        """Forget a Service that is gone."""
        self._restored.pop(uid, None)
        self._specs.pop(uid, None)

    def judge(self, service: Service, live: JsonView) -> tuple[str, float] | None:
        """Return why a Service is left alone, and for how many seconds still; None where it is to be restored."""
        writer, left = _find_writer(live, f"f:{ADDRESSES}"), PAUSE
        who = "An unknown writer" if writer in OWN else f"Field manager {writer}"
        kept = live["spec"]["loadBalancerIP"]
        text = (
            f"{who} overwrites {ADDRESSES}: fipop keeps {kept} and retries in an hour. Stop the other writer."
        )
        spec = json.dumps(live["spec"], sort_keys=True)
        if service.word is not None and service.is_left_alone:
            left -= self._now() - (read_since(live) or self._now())
            is_changed = self._specs.get(service.uid, spec) != spec
            is_by_other = is_changed and _find_writer(live, "f:spec") not in OWN | {writer}
            is_by_other = is_by_other or (writer not in OWN and text != service.word.message)
            if left <= timedelta() or (is_by_other and self._count(service) < MOST_RESTORES):
                return None
            text = service.word.message
        self._specs[service.uid] = spec
        return text, left.total_seconds()

    def _count(self, service: Service) -> int:
        return sum(self._now() - at < WITHIN for at in self._restored.get(service.uid, []))


def _find_writer(live: JsonView, name: str) -> str:
    """Return the field manager that wrote last of those that own the spec or an annotation; "" where none is known."""
    entries = [as_mapping(each) for each in as_list(live["metadata"].get("managedFields"))]
    owners = [each for each in entries if name in _list_owned(as_mapping(each.get("fieldsV1")))]
    return max(((as_text(e.get("time")), as_text(e.get("manager"))) for e in owners), default=("",))[-1]


def _list_owned(fields: JsonView) -> frozenset[str]:
    return frozenset({*fields, *as_mapping(as_mapping(fields.get("f:metadata")).get("f:annotations"))})
