"""What is done about a release: a table of the rules, the first that applies."""

import pytest

from fipop.guests.release_plan import GRACE_SECONDS, Verb, plan_releases
from fipop.helm.charts import Role
from fipop.helm.releases import Release, ReleaseOwner, Status
from fipop.rollout.plan import ReleaseGoal
from tests.harness.releases import OTHER, TARGET, installed, place

TO_TARGET, TO_OTHER = ReleaseGoal(target=TARGET, may_change=True), ReleaseGoal(target=OTHER, may_change=True)
LEFT = ReleaseGoal(target=OTHER, reason="Drift")
AWAY = ReleaseGoal(remove=True, may_change=True)
BACK = ReleaseGoal(leaves=TARGET, may_change=True)
PENDING = Status.PENDING_UPGRADE
OTHERS = OTHER  # a target that another helm knows nothing of


def under_way(age_seconds: float, **fields: object) -> Release:
    return installed(status=PENDING, age_seconds=age_seconds, **fields)


ABSENT = place()
CASES: dict[str, tuple[Release, ReleaseGoal, Verb]] = {
    "none is installed": (ABSENT, TO_TARGET, Verb.UPGRADE),
    "none is installed, also if what runs stays": (ABSENT, LEFT, Verb.UPGRADE),
    "without a target nothing is installed": (ABSENT, ReleaseGoal(), Verb.NOTHING),
    "beside others nothing is installed": (
        Release(
            role=Role.KUBE_VIP,
            namespace="kube-system",
            name="kube-vip",
            conflicting_workloads=("DaemonSet kube-system/x",),
        ),
        TO_TARGET,
        Verb.NOTHING,
    ),
    "one beside others is repaired": (
        installed(conflicting_workloads=("DaemonSet kube-system/x",), workloads=()),
        TO_TARGET,
        Verb.UPGRADE,
    ),
    "one at the target stays": (installed(), TO_TARGET, Verb.NOTHING),
    "one of another target is upgraded": (installed(), TO_OTHER, Verb.UPGRADE),
    "one that may not change stays": (installed(), LEFT, Verb.NOTHING),
    "one changed by hand is upgraded": (installed(is_by_hand=True), TO_TARGET, Verb.UPGRADE),
    "a failed one is tried again": (installed(status=Status.FAILED), TO_TARGET, Verb.UPGRADE),
    "one without a workload is upgraded again": (installed(workloads=()), TO_TARGET, Verb.UPGRADE),
    "one without a workload is given a minute": (
        installed(workloads=(), age_seconds=59),
        TO_TARGET,
        Verb.NOTHING,
    ),
    "one without a workload that may not change stays": (
        installed(workloads=()),
        ReleaseGoal(target=TARGET),
        Verb.NOTHING,
    ),
    "somebody else's stays": (installed(owner=ReleaseOwner.OTHER), TO_OTHER, Verb.NOTHING),
    "somebody else's is not removed": (installed(owner=ReleaseOwner.OTHER), AWAY, Verb.NOTHING),
    "one without labels is asked about": (
        installed(owner=ReleaseOwner.UNKNOWN),
        ReleaseGoal(awaited=TARGET),
        Verb.INSPECT,
    ),
    "one without labels is not asked about before there is a target to compare it with": (
        installed(owner=ReleaseOwner.UNKNOWN),
        ReleaseGoal(),
        Verb.NOTHING,
    ),
    "one without labels is asked about before it is removed": (
        installed(owner=ReleaseOwner.UNKNOWN),
        AWAY,
        Verb.INSPECT,
    ),
    "a helm at work is waited for": (under_way(GRACE_SECONDS - 1), TO_TARGET, Verb.WAIT),
    "a dead helm of fipop is unlocked": (under_way(GRACE_SECONDS + 1), TO_TARGET, Verb.UNLOCK),
    "a helm of others is given ten minutes": (under_way(599, is_by_hand=True), TO_TARGET, Verb.WAIT),
    "a dead helm of others is unlocked": (under_way(601, is_by_hand=True), TO_TARGET, Verb.UNLOCK),
    "a helm of others at work is not even asked about": (
        under_way(599, is_by_hand=True, owner=ReleaseOwner.UNKNOWN),
        TO_TARGET,
        Verb.WAIT,
    ),
    "one is removed": (installed(), AWAY, Verb.UNINSTALL),
    "one waits for Harvester's before it is removed": (installed(), ReleaseGoal(remove=True), Verb.WAIT),
    "what is not there is not removed": (ABSENT, AWAY, Verb.NOTHING),
    "what a failed target made goes back": (installed(), BACK, Verb.ROLL_BACK),
    "what a failed target made goes back from a failure, too": (
        installed(status=Status.FAILED),
        BACK,
        Verb.ROLL_BACK,
    ),
    "what another target made stays": (installed(OTHER), BACK, Verb.NOTHING),
    "what another target made stays, also if the one that failed has it, too": (
        installed(made_for="another"),
        BACK,
        Verb.NOTHING,
    ),
    "what a failed target made stays while that may not change": (
        installed(),
        ReleaseGoal(leaves=TARGET),
        Verb.NOTHING,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_decided_that(case: str) -> None:
    release, wish, verb = CASES[case]
    (step,) = plan_releases([release], wish)
    assert step.verb is verb
    assert bool(step.drift) is (wish is LEFT and release.status is Status.DEPLOYED)


def test_what_has_to_wait_for_another_target_says_so() -> None:
    (step,) = plan_releases([installed()], ReleaseGoal(target=TARGET, awaited=OTHER))
    assert (step.verb, bool(step.drift)) == (Verb.NOTHING, True)
    (step,) = plan_releases([installed()], ReleaseGoal(target=TARGET, awaited=TARGET))
    assert not step.drift


def test_kube_vip_is_installed_first_and_removed_last() -> None:
    both = [place(role) for role in Role]
    assert [each.release.role for each in plan_releases(both, TO_TARGET)] == list(Role)
    assert [each.release.role for each in plan_releases(both, AWAY)] == list(reversed(Role))
