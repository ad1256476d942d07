"""Brings a guest's releases back to what they were before a rollout touched them."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.guest.helm.charts import WantedRelease
from fipop.guest.helm.releases import ReleaseState
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_attempt import Outcome, ReleaseAttempt
from fipop.guest.release_gate import Return
from fipop.guest.release_records import ReleaseRecords
from fipop.guest.reports import GuestTask


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
        records = ReleaseRecords(limits=self.limits, target=self.target)
        state, revision = self.observed.managed.get(wanted.role), back.revisions.get(wanted.role, 0)
        attempt = ReleaseAttempt(
            task=self.task,
            limits=self.limits,
            observed=self.observed,
            role=wanted.role,
            what="back",
            failed="could not bring a release back",
            fields={"release": wanted.name, "revision": revision},
        )
        if state is None or back.is_done(wanted.role, state):
            if state is None or revision in (0, state.latest.revision):
                return Outcome()
            return await attempt.make(records.own_revision(state.latest))
        wait = attempt.wait_seconds(state, is_under_way=state.latest.status.is_under_way)
        if wait:
            return Outcome(wait_seconds=wait)
        if not self.may_run_helm:
            return Outcome(awaits_helm=True)
        return await attempt.make(
            self._roll_back(records, state, revision), done="brought a release back to what it was"
        )

    async def _roll_back(self, records: ReleaseRecords, state: ReleaseState, revision: int) -> None:
        if state.latest.status.is_under_way:
            await records.drop(state)
        await records.roll_back(state, revision)
