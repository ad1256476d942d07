"""One change of a release in a turn: when it may be tried, and what came of it."""

import logging

import pytest

from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.helm.charts import Role
from fipop.guest.helm_turn import Outcome, ReleaseAttempt
from tests.unit.guest.turns import GRACE, Turn, state

DENIED = HelmError(action="upgrade", subject="release", failure=HelmFailure.DENIED)


def attempt(turn: Turn, *, done: str = "did it") -> ReleaseAttempt:
    return ReleaseAttempt(
        turn=turn.turn,
        role=Role.KUBE_VIP,
        what="back",
        failed="could not",
        done=done,
        fields={"release": "vip"},
    )


async def settle(turn: Turn, *, is_under_way: bool = False) -> Outcome:
    async def change() -> None:
        turn.helm.do("change")

    return await attempt(turn).settle(state(), change, is_under_way=is_under_way)


async def test_it_is_made_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    turn = Turn(state())
    assert await settle(turn) == Outcome(ran=True)
    assert turn.done == ["change"]
    (line,) = caplog.records
    assert (line.cluster, line.release) == ("demo", "vip")  # type: ignore[attr-defined]


async def test_a_helm_that_may_be_alive_is_waited_for() -> None:
    assert await settle(Turn(state(), age_seconds=50), is_under_way=True) == Outcome(wait_seconds=GRACE - 50)
    late = Turn(state(), age_seconds=GRACE)
    assert await settle(late, is_under_way=True) == Outcome(ran=True)


async def test_without_a_turn_of_helm_it_is_only_said_that_one_is_wanted() -> None:
    turn = Turn(state(), may_run_helm=False)
    assert await settle(turn) == Outcome(awaits_helm=True)
    assert turn.done == []


async def test_what_failed_rests_longer_each_time_and_not_after_a_success() -> None:
    turn = Turn(state())
    turn.helm.error = DENIED
    found = await settle(turn)
    assert (found.ran, found.error, found.wait_seconds) == (True, DENIED, 30)
    assert await settle(turn) == Outcome(wait_seconds=30)
    turn.now += 30
    assert (await settle(turn)).wait_seconds == 60
    turn.now += 60
    turn.helm.error = None
    assert await settle(turn) == Outcome(ran=True)
    assert turn.notes.failed_runs(Role.KUBE_VIP) == 0


async def test_a_success_may_rest_too() -> None:
    turn = Turn(state())

    async def change() -> None:
        return None

    assert await attempt(turn).make(change(), least_seconds=60) == Outcome(ran=True)
    assert attempt(turn).rest_seconds() == 60
    assert turn.notes.failure(Role.KUBE_VIP) is None, "it is no failure"


async def test_without_a_word_it_is_no_run_of_helm_and_forgets_no_failure() -> None:
    turn = Turn(state())
    turn.helm.error = DENIED
    await settle(turn)

    async def change() -> None:
        return None

    assert await attempt(turn, done="").make(change()) == Outcome()
    assert turn.notes.failure(Role.KUBE_VIP) is DENIED
