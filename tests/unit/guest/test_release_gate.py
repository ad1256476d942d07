"""What may be done about a guest's releases."""

from dataclasses import replace

from fipop.guest.helm.charts import ChartIdentity, Role
from fipop.guest.helm.targets import build_target
from fipop.guest.release_gate import ReleaseGate, Return, build_aim, gate_of_settings
from fipop.settings.options import DEFAULTS
from tests.unit.guest.turns import state

CHARTS = {role: ChartIdentity(name=role.value, version="1.0.0", content="c") for role in Role}
AIM = build_aim(build_target(DEFAULTS, CHARTS), DEFAULTS)


def back(revision: int) -> Return:
    return Return(revisions={Role.KUBE_VIP: revision}, leaving=AIM)


def test_a_release_is_back_at_its_revision_or_when_it_is_not_of_the_target_any_more() -> None:
    assert back(3).is_done(Role.KUBE_VIP, state(revision=3))
    assert back(2).is_done(Role.KUBE_VIP, state(revision=3)), "its digest is none of the target's"
    assert not back(3).is_done(Role.KUBE_VIP, state("pending-rollback", revision=3))
    assert back(0).is_done(Role.KUBE_VIP, state("failed")), "nothing was touched"
    assert back(2).is_done(Role.KUBE_VIP, None)


def test_drift_by_hand_is_mended_where_that_is_proven_and_a_rollout_is_not_needed() -> None:
    ours = state()
    by_hand = replace(ours, latest=replace(ours.latest, revision=4))
    gate = ReleaseGate(mend=True)
    assert not gate.may_change(ours)
    assert gate.may_change(by_hand)
    assert not ReleaseGate(mend=True, is_proven=False).may_change(by_hand)
    assert ReleaseGate(update=True).may_change(ours)


def test_what_never_ran_may_always_be_tried_again() -> None:
    unproven = ReleaseGate(is_proven=False)
    assert not unproven.may_retry(state("failed"))
    assert unproven.may_retry(replace(state("failed"), deployed_revision=0))


def test_without_rollouts_the_option_alone_decides() -> None:
    assert not gate_of_settings(DEFAULTS).update
    found = gate_of_settings(replace(DEFAULTS, kubevip_update=True))
    assert (found.update, found.mend) == (True, True)
