"""A guest's turn with helm: what everybody is given who works in it, and how one change of a release is tried."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.guest.errors import ChartError
from fipop.guest.helm.charts import Role
from fipop.guest.helm.guest_process import HelmTarget
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_records import ReleaseRecords
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
    doubt: ChartError | None = None
    error: FipopError | None = None
    wait_seconds: float | None = None
    awaits_helm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmTurn:
    """One guest's turn, in one pass.

    `observed` is what the pass saw before; `missing` are deleted objects of releases.
    """

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget
    observed: ObservedState
    missing: Mapping[Role, tuple[str, ...]]

    @property
    def records(self) -> ReleaseRecords:
        """What changes records that are there."""
        return ReleaseRecords(limits=self.limits, target=self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAttempt:
    """A change of one release.

    `what` counts its failures: a digest, or the name of a change that needs no chart. `failed`, `done` and `fields` are
    how it is told; without a word for `done` it is no run of helm, and forgets no failures.
    """

    turn: HelmTurn
    role: Role
    what: str
    failed: str
    fields: Mapping[str, object]
    done: str = ""

    async def settle(
        self, state: ReleaseState, change: Callable[[], Awaitable[None]], *, is_under_way: bool
    ) -> Outcome:
        """Make the change, unless a helm may be alive (`is_under_way`), the change rests, or helm may not run."""
        age, grace = self.turn.observed.age_seconds(state), self.turn.limits.grace_seconds
        wait = grace - age if is_under_way and age < grace else self.rest_seconds()
        if wait:
            return Outcome(wait_seconds=wait)
        if not self.turn.task.may_run_helm:
            return Outcome(awaits_helm=True)
        return await self.make(change())

    def rest_seconds(self) -> float:
        """Give how long the change rests from now on, after failures; 0: it may be tried."""
        return self.turn.task.memory.rest_seconds(self.role, self.what)

    async def make(self, change: Awaitable[None], *, least_seconds: float = 0.0) -> Outcome:
        """Make the change, and remember and tell how it ended; it rests for `least_seconds` after a success, too."""
        notes, fields = self.turn.task.memory, {"cluster": self.turn.task.guest.cluster_name, **self.fields}
        try:
            await change
        except FipopError as error:
            rest = notes.note_failure(self.role, self.what, error)
            log.warning(self.failed, extra={**fields, "error": str(error)})
            return Outcome(ran=True, error=error, wait_seconds=rest)
        if least_seconds:
            notes.note_failure(self.role, self.what, least_seconds=least_seconds)
        elif self.done:
            notes.note_success(self.role)
        if self.done:
            log.info(self.done, extra=fields)
        return Outcome(ran=bool(self.done))
