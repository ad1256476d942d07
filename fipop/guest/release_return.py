"""Brings a guest's releases back to what they were before a rollout touched them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.guest.helm.charts import WantedRelease
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_gate import Return
from fipop.guest.release_installer import Outcome
from fipop.guest.release_records import ReleaseRecords
from fipop.guest.reports import GuestTask

log = logging.getLogger(__name__)

_BACK = "back"
"""In place of a digest: how often a release could not be brought back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReturn:
    """Looks after the releases of one guest during one pass, in place of the installer."""

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget
    observed: ObservedState
    may_run_helm: bool

    async def settle(self, wanted: WantedRelease, back: Return) -> Outcome:
        """Bring one release back: by `helm rollback`, which needs no chart, to the revision noted before the touch."""
        guest_id, memory, now = self.task.guest_id, self.limits.memory, self.limits.monotonic()
        records = ReleaseRecords(limits=self.limits, target=self.target)
        state, revision = self.observed.managed.get(wanted.role), back.revisions.get(wanted.role, 0)
        fields = {"cluster": self.task.cluster_name, "release": wanted.name, "revision": revision}
        try:
            if state is None or back.is_done(wanted.role, state):
                if state is not None and revision and state.latest.revision != revision:
                    await records.own_revision(state.latest)
                return Outcome()
            wait = self._wait(state, wanted)
            if wait:
                return Outcome(wait_seconds=wait)
            if not self.may_run_helm:
                return Outcome(awaits_helm=True)
            if state.latest.status.is_under_way:
                await records.drop(state)
            await records.roll_back(state, revision)
        except FipopError as error:
            rest = memory.note_failure(guest_id, wanted.role, _BACK, now, error)
            log.warning("could not bring a release back", extra={**fields, "error": str(error)})
            return Outcome(ran=True, error=error, wait_seconds=rest)
        memory.note_success(guest_id, wanted.role)
        log.info("brought a release back to what it was", extra=fields)
        return Outcome(ran=True)

    def _wait(self, state: ReleaseState, wanted: WantedRelease) -> float:
        """Give how long to wait for a helm that may be alive, or after failures."""
        age, grace = self.observed.age_seconds(state), self.limits.grace_seconds
        if state.latest.status.is_under_way and age < grace:
            return grace - age
        return self.limits.memory.rest_seconds(
            self.task.guest_id, wanted.role, _BACK, self.limits.monotonic()
        )
