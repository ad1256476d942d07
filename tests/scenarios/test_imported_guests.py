"""Imported clusters: those of a kind that Rancher does not know are guests once they are ready and no Harvester."""

import asyncio

import pytest

from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

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


@in_virtual_time
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


@in_virtual_time
@pytest.mark.parametrize("slow_seconds", [0, 20])
async def test_what_it_carries_counts_before_it_is_known_what_it_is(slow_seconds: float) -> None:
    """It may have been served before the leader changed, and Rancher updates Ready whenever its agent connects."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.11", clusterSelector={"matchLabels": {}})
    operator.add_guest(A, imported=True, provider="", is_served=True)
    operator.add_guest("c-m-b")
    operator.carried.services[A] = "10.0.0.10"
    operator.carried.slow[A] = slow_seconds
    operator.ask("c-m-b")
    async with leading(operator):
        await asyncio.sleep(30)
        await operator.settle()
    assert operator.held() == {"default.10.0.0.11": "c-m-b"}
    assert operator.quarantined() == {"default.10.0.0.10"}


@in_virtual_time
async def test_many_that_hang_delay_no_range_that_could_not_serve_them() -> None:
    operator = SmallOperator()
    operator.add_range("theirs", "10.9.0.10-10.9.0.90", clusterSelector={"matchLabels": {"net": "blue"}})
    operator.add_range(clusterSelector={"matchLabels": {"net": "green"}})
    for number in range(30):
        guest_id = f"c-m-{number}"
        operator.add_guest(guest_id, imported=True, provider="", is_served=True)
        operator.label_guest(guest_id, net="blue")
        operator.carried.slow[guest_id] = 45
    operator.add_guest("c-m-b")
    operator.label_guest("c-m-b", net="green")
    operator.memory.pass_time(3600)
    operator.ask("c-m-b")
    async with leading(operator):
        await asyncio.sleep(10)
        await operator.settle()
        assert list(operator.held().values()) == ["c-m-b"]
