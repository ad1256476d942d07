"""One change of a release in a pass: when it may be tried, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.reports import GuestTask

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done about one release; `ran`: helm was run for it; `awaits_helm`: it is to be.

    `reason`: the condition's, where the gate leaves a drift as it is.
    """

    ran: bool = False
    drift: str = ""
    reason: str = ""
    doubt: str = ""
    error: FipopError | None = None
    wait_seconds: float | None = None
    awaits_helm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAttempt:
    """A change of one release that needs no chart.

    `what` counts its failures, in place of a digest; `failed` and `fields` are how they are told.
    """

    task: GuestTask
    limits: GuestLimits
    observed: ObservedState
    role: Role
    what: str
    failed: str
    fields: Mapping[str, object]

    def wait_seconds(self, state: ReleaseState, *, is_under_way: bool) -> float:
        """Give how long to wait for a helm that may be alive (`is_under_way`), or after failures; 0: try it."""
        age, grace = self.observed.age_seconds(state), self.limits.grace_seconds
        if is_under_way and age < grace:
            return grace - age
        now = self.limits.monotonic()
        return self.limits.memory.rest_seconds(self.task.guest_id, self.role, self.what, now)

    async def make(self, change: Awaitable[None], *, done: str = "") -> Outcome:
        """Make the change, and remember and tell how it ended; without a word for `done` it was no run of helm."""
        guest_id, memory = self.task.guest_id, self.limits.memory
        fields = {"cluster": self.task.cluster_name, **self.fields}
        try:
            await change
        except FipopError as error:
            rest = memory.note_failure(guest_id, self.role, self.what, self.limits.monotonic(), error)
            log.warning(self.failed, extra={**fields, "error": str(error)})
            return Outcome(ran=True, error=error, wait_seconds=rest)
        if done:
            memory.note_success(guest_id, self.role)
            log.info(done, extra=fields)
        return Outcome(ran=bool(done))
