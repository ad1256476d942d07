"""Leaving a guest: what fipop installed there is uninstalled, once Harvester's own kube-vip has its pods back."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.guest.harvester import find_harvester, is_parked
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm.runner import HelmTarget
from fipop.guest.limits import GuestLimits
from fipop.guest.observed import ObservedState
from fipop.guest.release_installer import Outcome
from fipop.guest.reports import GuestTask

log = logging.getLogger(__name__)

_REMOVAL = "removal"
"""In place of a digest: how often a release could not be uninstalled."""
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
        role, guest_id, memory = state.latest.role, self.task.guest_id, self.limits.memory
        assert role is not None, "ours have a role"
        harvester = find_harvester(self.observed.workloads)
        if any(is_parked(one) or not one.observed for one in harvester):
            return Outcome(wait_seconds=HARVESTER_SECONDS)
        age, grace = self.observed.age_seconds(state), self.limits.grace_seconds
        if (
            state.latest.status.is_under_way
            and state.latest.status is not Status.UNINSTALLING
            and age < grace
        ):
            return Outcome(wait_seconds=grace - age)
        rest = memory.rest_seconds(guest_id, role, _REMOVAL, self.limits.monotonic())
        if rest:
            return Outcome(wait_seconds=rest)
        if not self.may_run_helm:
            return Outcome(awaits_helm=True)
        fields = {"cluster": self.task.cluster_name, "release": state.latest.name}
        try:
            await self.limits.helm.uninstall(self.target, state.latest)
        except FipopError as error:
            rest = memory.note_failure(guest_id, role, _REMOVAL, self.limits.monotonic(), error)
            log.warning("could not uninstall a release", extra={**fields, "error": str(error)})
            return Outcome(ran=True, error=error, wait_seconds=rest)
        memory.note_success(guest_id, role)
        log.info("uninstalled a release", extra=fields)
        return Outcome(ran=True)
