"""Leaving a guest: what fipop installed there is uninstalled, once Harvester's own kube-vip has its pods back."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.guest.harvester import find_harvester, is_parked
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_attempt import Outcome, ReleaseAttempt
from fipop.guest.reports import GuestTask

HARVESTER_SECONDS = 2.0


def find_ours(observed: ObservedState) -> tuple[ReleaseState, ...]:
    """Give the releases that fipop made, by its labels, the provider's first. What others made is left alone."""
    ours = [
        state
        for state in observed.states.values()
        if state.latest.role is not None
        and state.latest.digest is not None
        and state.latest.status is not Status.UNINSTALLED
    ]
    return tuple(
        sorted(ours, key=lambda state: (state.latest.role is not Role.CLOUD_PROVIDER, state.latest.key))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRemoval:
    """Looks after the releases of one guest that is left, during one pass."""

    task: GuestTask
    limits: GuestLimits
    target: HelmTarget
    observed: ObservedState
    may_run_helm: bool

    async def settle(self, state: ReleaseState) -> Outcome:
        """Uninstall one release, if that may be done now."""
        assert state.latest.role is not None, "ours have a role"
        harvester = find_harvester(self.observed.workloads)
        if any(is_parked(one) or not one.observed for one in harvester):
            return Outcome(wait_seconds=HARVESTER_SECONDS)
        attempt = ReleaseAttempt(
            task=self.task,
            limits=self.limits,
            observed=self.observed,
            role=state.latest.role,
            what="removal",
            failed="could not uninstall a release",
            fields={"release": state.latest.name},
        )
        status = state.latest.status
        is_under_way = status.is_under_way and status is not Status.UNINSTALLING
        wait = attempt.wait_seconds(state, is_under_way=is_under_way)
        if wait:
            return Outcome(wait_seconds=wait)
        if not self.may_run_helm:
            return Outcome(awaits_helm=True)
        return await attempt.make(
            self.limits.helm.uninstall(self.target, state.latest), done="uninstalled a release"
        )
