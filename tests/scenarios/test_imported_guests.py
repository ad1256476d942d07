"""Imported clusters: those of a kind that Rancher does not know are guests once they are ready and no Harvester."""

import pytest

from tests.harness.small_operator import SmallOperator

A = "c-m-a"
SETTLED_SECONDS = 60


async def imported(provider: str = "", *, harvester: bool = False, silent: bool = False) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(clusterSelector={"matchLabels": {}})
    operator.add_guest(A, imported=True, provider=provider, is_served=True)
    if harvester:
        operator.carried.harvesters.add(A)
    if silent:
        operator.carried.silent.add(A)
    await operator.start()
    return operator


async def test_a_cluster_of_a_known_kind_is_a_guest_at_once() -> None:
    assert (await imported("k3s")).held()


async def test_a_cluster_of_an_unknown_kind_is_a_guest_once_it_was_ready_for_a_minute() -> None:
    operator = await imported()
    await operator.pass_time(SETTLED_SECONDS - 10)
    assert not operator.held()
    await operator.pass_time(20)
    assert list(operator.held().values()) == [A]


@pytest.mark.parametrize("silent", [False, True])
async def test_harvester_is_never_one_and_who_does_not_answer_may_be_harvester(silent: bool) -> None:
    operator = await imported(harvester=not silent, silent=silent)
    await operator.pass_time(3 * SETTLED_SECONDS)
    assert not operator.held()
    operator.carried.silent.clear()
    await operator.pass_time(SETTLED_SECONDS)
    assert bool(operator.held()) is silent


async def test_it_stays_one_while_it_does_not_answer_and_is_one_again_after_a_restart() -> None:
    operator = await imported()
    await operator.pass_time(2 * SETTLED_SECONDS)
    held = operator.held()
    assert held
    operator.carried.silent.add(A)
    await operator.pass_time(SETTLED_SECONDS)
    operator.carried.silent.clear()
    after = SmallOperator(operator)
    await after.start()
    await after.pass_time(SETTLED_SECONDS)
    assert after.held() == held
