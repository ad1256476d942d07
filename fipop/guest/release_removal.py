"""Leaving a guest: what fipop installed there is uninstalled, once Harvester's own kube-vip has its pods back."""

from __future__ import annotations

import functools

from fipop.guest.harvester import find_harvester, is_parked
from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import ReleaseState, Status
from fipop.guest.helm_turn import HelmTurn, Outcome, ReleaseAttempt

HARVESTER_SECONDS = 2.0


async def remove(turn: HelmTurn, role: Role, state: ReleaseState) -> Outcome:
    """Uninstall one release, if that may be done now."""
    harvester = find_harvester(turn.observed.workloads)
    if any(is_parked(one) or not one.observed for one in harvester):
        return Outcome(wait_seconds=HARVESTER_SECONDS)
    attempt = ReleaseAttempt(
        turn=turn,
        role=role,
        what="removal",
        failed="Could not uninstall release",
        done="Uninstalled release",
        fields={"release": state.latest.name},
    )
    status = state.latest.status
    return await attempt.settle(
        state,
        functools.partial(turn.limits.helm.uninstall, turn.target, state.latest),
        is_under_way=status.is_under_way and status is not Status.UNINSTALLING,
    )
