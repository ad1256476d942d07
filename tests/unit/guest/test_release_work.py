"""What one pass does about releases: install, go back or leave, and in which order."""

from dataclasses import replace

from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.charts import Role
from fipop.guest.helm_turn import Outcome
from fipop.guest.release_gate import ReleaseGate, Return
from fipop.guest.release_work import IN_TURN_SECONDS, ReleaseWork
from tests.unit.guest.turns import AnyTarget, Turn, state
from tests.unit.guest.workloads import daemon_set

ANYTHING = AnyTarget()


async def work(turn: Turn) -> dict[Role, Outcome]:
    outcomes: dict[Role, Outcome] = {}
    await ReleaseWork(turn=turn.turn, take=outcomes.__setitem__).run()
    return outcomes


async def test_both_releases_are_installed_kube_vip_first() -> None:
    turn = Turn()
    found = await work(turn)
    assert [each.ran for each in found.values()] == [True, True]
    assert [each.split()[1] for each in turn.done] == [role.value for role in Role]


async def test_where_every_name_is_seen_taken_helm_decides_and_no_success_is_told_of_nothing() -> None:
    """A developer has DaemonSets of all the names: an install was told though helm had never run."""
    names = ("kube-vip", "kube-vip-fipop", *(f"kube-vip-fipop-{number}" for number in range(2, 6)))
    taken = tuple(daemon_set(1, 1, name=name, release=None) for name in names)
    turn = Turn(workloads=taken)
    assert (await work(turn))[Role.KUBE_VIP].error is None
    assert turn.done[0] == "upgrade kube-vip kube-vip"

    turn = Turn(workloads=taken)
    turn.helm.error = HelmError(action="upgrade", subject="kube-vip", failure=HelmFailure.NAME_TAKEN)
    assert (await work(turn))[Role.KUBE_VIP].error is turn.helm.error


async def test_the_provider_follows_when_kube_vip_serves() -> None:
    turn = Turn(gate=ReleaseGate(in_turn=True))
    found = await work(turn)
    assert found[Role.CLOUD_PROVIDER] == Outcome(wait_seconds=IN_TURN_SECONDS)
    assert len(turn.done) == 1


async def test_a_closed_gate_lets_nothing_be_done() -> None:
    turn = Turn(gate=ReleaseGate(is_open=False))
    assert await work(turn) == {}
    assert turn.done == []


async def test_going_back_takes_the_provider_first() -> None:
    gate = ReleaseGate(going_back=Return(revisions=dict.fromkeys(Role, 2), leaving=ANYTHING))
    turn = Turn(state(), state(role=Role.CLOUD_PROVIDER), gate=gate)
    await work(turn)
    rolled = [each.split()[1] for each in turn.done if each.startswith("rollback")]
    assert rolled == [Role.CLOUD_PROVIDER.value, Role.KUBE_VIP.value]


async def test_a_guest_that_is_left_loses_what_is_ours_once_that_is_allowed() -> None:
    waiting = Turn(state(), state(role=Role.CLOUD_PROVIDER), leaving=True)
    assert await work(waiting) == {}
    turn = Turn(state(), state(role=Role.CLOUD_PROVIDER), leaving=True, may_remove=True)
    await work(turn)
    assert turn.done == ["uninstall kube-vip-cloud-provider", "uninstall kube-vip"]


async def test_what_others_made_is_left_alone() -> None:
    theirs = state()
    theirs = replace(theirs, latest=replace(theirs.latest, digest=None))
    turn = Turn(theirs, leaving=True, may_remove=True)
    assert await work(turn) == {}
