"""Leaving a guest: what fipop installed there is uninstalled, once Harvester's own kube-vip has its pods back."""

from __future__ import annotations

import functools

from fipop.guest.harvester import find_harvester, is_parked
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm_turn import HelmTurn, Outcome, ReleaseAttempt
from fipop.guest.observed import ObservedState

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


async def remove(turn: HelmTurn, role: Role, state: ReleaseState) -> Outcome:
    """Uninstall one release, if that may be done now."""
    harvester = find_harvester(turn.observed.workloads)
    if any(is_parked(one) or not one.observed for one in harvester):
        return Outcome(wait_seconds=HARVESTER_SECONDS)
    attempt = ReleaseAttempt(
        turn=turn,
        role=role,
        what="removal",
        failed="could not uninstall a release",
        done="uninstalled a release",
        fields={"release": state.latest.name},
    )
    status = state.latest.status
    return await attempt.settle(
        state,
        functools.partial(turn.limits.helm.uninstall, turn.target, state.latest),
        is_under_way=status.is_under_way and status is not Status.UNINSTALLING,
    )
