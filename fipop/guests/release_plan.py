"""What to do about the releases of a guest cluster: a decision, from values alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fipop.deadlines import FOREIGN_LEASE_SECONDS, HELM_DEADLINE_SECONDS, OTHER_HELM_SECONDS
from fipop.helm.charts import Target
from fipop.helm.releases import Release, ReleaseOwner, Status
from fipop.rollout.plan import ReleaseGoal

GRACE_SECONDS = HELM_DEADLINE_SECONDS + FOREIGN_LEASE_SECONDS
"""How long after its start a helm process of fipop can be alive, also one of a former leader."""
SOON_SECONDS = 2.0
"""When the next visit checks what is about to happen."""
REPAIR_SECONDS = 60.0
"""How old a release without workloads is before it is upgraded again: they can still come."""


class Verb(StrEnum):
    """What a step does."""

    NOTHING = "nothing"
    WAIT = "wait"
    INSPECT = "inspect"
    """Ask helm what a release without labels was made from, and label it if kube-fip-operator made it."""
    UNLOCK = "unlock"
    """Delete the record of a helm that died: what it made stays, and the next helm takes it over."""
    UPGRADE = "upgrade"
    """`helm upgrade --install`: installs, upgrades, retries, repairs and rolls back to the stable target."""
    ROLL_BACK = "roll back"
    """`helm rollback` to the newest revision that the target to leave did not make; uninstall if it made the first."""
    UNINSTALL = "uninstall"

    @property
    def needs_helm(self) -> bool:
        """Whether it waits for its turn in the queue of helm."""
        return self not in (Verb.NOTHING, Verb.WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do about one release now."""

    release: Release
    verb: Verb = Verb.NOTHING
    seconds: float = 0.0
    """WAIT: how long."""
    drift: str = ""
    """How it differs from what is wanted, if that stays so."""


def plan_releases(releases: Iterable[Release], goal: ReleaseGoal) -> tuple[Step, ...]:
    """Return a step for each release: kube-vip first, but last when both go."""
    steps = [plan_release(each, goal) for each in releases]
    return tuple(reversed(steps) if goal.remove else steps)


def plan_release(release: Release, goal: ReleaseGoal) -> Step:
    """Return what to do about one release."""
    step, awaited = _decide(release, goal), goal.awaited
    is_left = step.verb is Verb.NOTHING and release.revision > 0
    if is_left and awaited is not None and not release.is_at(awaited):
        return Step(release=release, drift=_describe_drift(release, awaited))
    return step


def _decide(release: Release, goal: ReleaseGoal) -> Step:
    """Return the step by the first rule that applies."""
    if release.owner is ReleaseOwner.OTHER:
        return Step(release=release)
    grace = OTHER_HELM_SECONDS if release.is_by_hand else GRACE_SECONDS
    if release.status.is_under_way and release.age_seconds < grace:
        return Step(release=release, verb=Verb.WAIT, seconds=grace - release.age_seconds)
    if release.owner is ReleaseOwner.UNKNOWN:
        return Step(release=release, verb=Verb.INSPECT if goal.compare or goal.remove else Verb.NOTHING)
    if goal.remove:
        return _plan_removal(release, goal)
    is_kept = goal.keeps_first and release.revision == 1
    if goal.leaves is not None and release.made_for == goal.leaves.name and not is_kept:
        return Step(release=release, verb=Verb.ROLL_BACK if goal.may_change else Verb.NOTHING)
    if goal.target is None or (release.status is Status.ABSENT and release.conflicting_workloads):
        return Step(release=release)
    if release.status is not Status.DEPLOYED:
        return Step(release=release, verb=Verb.UNLOCK if release.status.is_under_way else Verb.UPGRADE)
    return _plan_deployed(release, goal, goal.target)


def _plan_removal(release: Release, goal: ReleaseGoal) -> Step:
    if release.status is Status.ABSENT:
        return Step(release=release)
    if not goal.may_change:
        return Step(release=release, verb=Verb.WAIT, seconds=SOON_SECONDS)
    return Step(release=release, verb=Verb.UNINSTALL)


def _plan_deployed(release: Release, goal: ReleaseGoal, target: Target) -> Step:
    is_there = bool(release.workloads) or release.age_seconds < REPAIR_SECONDS
    if release.is_at(target) and is_there:
        return Step(release=release)
    if goal.may_change:
        return Step(release=release, verb=Verb.UPGRADE)
    return Step(release=release, drift="" if release.is_at(target) else _describe_drift(release, target))


def _describe_drift(release: Release, target: Target) -> str:
    chart = target.charts[release.role]
    return f"chart or values differ from {release.role.value} {chart.version} and the options"
