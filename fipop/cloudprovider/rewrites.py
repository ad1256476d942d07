"""When a field that another controller keeps changing is written again: ever more slowly."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.api.service import Service
from fipop.backoff import Backoff
from fipop.cloudprovider.needs import ADDRESSES_FIELD

AT_ONCE, WITHIN_SECONDS = 2, 600.0
"""How often a field is written again within that time without a pause."""
PAUSES = Backoff(first_seconds=10.0, limit_seconds=600.0)
MOST_REMEMBERED = 16


@dataclass(slots=True)
class Rewrites:
    """What fipop wrote into one Service, and the pauses that it makes. Times are those of the loop."""

    pauses: int = 0
    """How many it made since the Service was last left in peace."""
    _due_at: float | None = None
    """The end of the pause before the next rewrite."""
    _written: frozenset[str] = frozenset()
    _done: tuple[tuple[float, frozenset[str]], ...] = ()

    def left_seconds(self, now: float) -> float:
        """Return how much of a pause is left."""
        return max(0.0, self._due_at - now) if self._due_at is not None else 0.0

    def find(self, service: Service, fields: frozenset[str]) -> frozenset[str]:
        """Return which of the fields that are due to be written fipop wrote before."""
        if service.note and not service.annotation and ADDRESSES_FIELD in fields:
            return fields
        return fields & self._written

    def pause_seconds(self, fields: frozenset[str], now: float) -> float:
        """Return how long to wait before these fields are written again; a pause begins if it must."""
        if self._due_at is None:
            if self._done and now - self._done[-1][0] > WITHIN_SECONDS + PAUSES.step_seconds(self.pauses):
                self.pauses, self._done = 0, ()
            recent = [each for at, each in self._done if now - at < WITHIN_SECONDS]
            most = max((sum(name in each for each in recent) for name in fields), default=0)
            if not self.pauses and most < AT_ONCE:
                return 0.0
            self.pauses += 1
            self._due_at = now + PAUSES.step_seconds(self.pauses)
        return self.left_seconds(now)

    def forget(self, field: str) -> None:
        """Take in that fipop wants to have written a field no more: if it does later, that is no rewrite."""
        self._written -= {field}

    def note(self, fields: frozenset[str], rewritten: frozenset[str], now: float) -> None:
        """Note what was written, and which of it again."""
        self._written |= fields
        if rewritten:
            self._done = (*self._done, (now, rewritten))[-MOST_REMEMBERED:]
            self._due_at = None
