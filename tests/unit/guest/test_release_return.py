"""Going back: by a roll-back to the revision before the touch, where there is one."""

import pytest

from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import build_labels
from fipop.guest.helm_turn import Outcome
from fipop.guest.release_gate import Return
from fipop.guest.release_return import bring_back
from tests.unit.guest.conftest import CHART, release_secret, wanted_release
from tests.unit.guest.turns import AnyTarget, Turn, state

WANTED = wanted_release()


def back(revision: int = 2, *, made: bool = True) -> Return:
    leaving = AnyTarget(is_maker=made)
    return Return(revisions={Role.KUBE_VIP: revision}, leaving=leaving)  # type: ignore[arg-type]


async def test_it_is_rolled_back_and_its_new_revision_is_made_ours() -> None:
    turn = Turn(state())
    labels = build_labels(Role.KUBE_VIP, "d", CHART, object_name="kube-vip", revision=2)
    turn.client.secrets = [release_secret(revision=4, labels=labels)]
    assert await bring_back(turn.turn, WANTED, back()) == Outcome(ran=True)
    assert [each.split()[0] for each in turn.done] == ["rollback", "patch"]
    assert turn.done[0] == "rollback kube-vip 2"


@pytest.mark.parametrize("revision", [0, 3])
async def test_what_was_never_touched_stays(revision: int) -> None:
    turn = Turn(state())
    assert await bring_back(turn.turn, WANTED, back(revision)) == Outcome()
    assert turn.done == []


async def test_a_guest_without_the_release_has_nothing_to_go_back_to() -> None:
    assert await bring_back(Turn().turn, WANTED, back()) == Outcome()


async def test_what_is_back_already_only_has_its_labels_put_right() -> None:
    turn = Turn(state(revision=5))
    assert await bring_back(turn.turn, WANTED, back(made=False)) == Outcome()
    assert not any(each.startswith("rollback") for each in turn.done)


async def test_the_record_of_a_helm_that_died_goes_first() -> None:
    turn = Turn(state("pending-upgrade"), age_seconds=1000)
    assert await bring_back(turn.turn, WANTED, back()) == Outcome(ran=True)
    assert turn.done[0].startswith("delete sh.helm.release.v1.kube-vip.v3 uid-kube-vip-3")
    assert turn.done[1] == "rollback kube-vip 2"
