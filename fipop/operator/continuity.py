"""What the Lease says of the leader before: whether what it looked at can be relied on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fipop.api import names
from fipop.kube.lease import LeaseClient
from fipop.operator.guests.scan import CONTINUED_WITHIN_SECONDS

CLOCK_LAG_SECONDS = 2.0
"""A process that has just started may take the server's time for so much earlier than the leader before did."""


@dataclass(slots=True, kw_only=True)
class Continuity:
    """Writes into the Lease, and reads there, whether its holder looked at all guests since it leads.

    `looks` tells that of this process; None: it does not lead. A store that went back (the Lease was seen older than
    before) may lack what guests carry: then nobody may rely on anything.
    """

    looks: Callable[[], bool | None]
    lease: LeaseClient | None = None
    _has_looked: bool = False

    def note(self) -> dict[str, str]:
        """Give the annotations of the Lease; the last word of a term stays while the Lease is given up."""
        looked = self.looks()
        self._has_looked = self._has_looked if looked is None else looked
        is_sure = self._has_looked and self.lease is not None and not self.lease.went_back
        return {names.ANNOTATION_LOOKED: "true" if is_sure else "false"}

    def end_term(self, looked: bool) -> None:
        """Keep how a term ended."""
        self._has_looked = looked

    def is_given(self) -> bool:
        """Whether another fipop that had looked at the guests renewed the Lease until a moment ago."""
        if self.lease is None:
            return False
        before = self.lease.before
        is_fresh = (
            before.age_seconds is not None
            and -CLOCK_LAG_SECONDS <= before.age_seconds <= CONTINUED_WITHIN_SECONDS
        )
        return is_fresh and before.annotations.get(names.ANNOTATION_LOOKED) == "true"
