"""Leases on a real API server: at most one holder, whoever races whom."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import LEASES
from fipop.kube.server import HttpServer
from fipop.runtime.lease import LeaseLock
from localfleet.controlplane import ControlPlane

pytestmark = pytest.mark.xdist_group("management")


class Clock:
    """A monotonic clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest_asyncio.fixture
async def kube(management: ControlPlane) -> AsyncIterator[KubeClient]:
    async with KubeClient(HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))) as client:
        await client.version()
        yield client


def candidate(kube: KubeClient, namespace: str, identity: str, clock: Clock) -> LeaseLock:
    return LeaseLock(
        kube, namespace=namespace, name="leader", identity=identity, duration_seconds=15, monotonic=clock
    )


async def test_the_first_gets_it_and_the_second_waits_for_its_duration(kube, namespace):
    clock = Clock()
    first, second = candidate(kube, namespace, "first", clock), candidate(kube, namespace, "second", clock)
    assert await first.try_acquire()
    assert first.valid_until == 1015.0
    assert not await second.try_acquire()
    assert (second.holder, second.valid_until) == ("first", None)
    clock.seconds += 14
    assert await first.renew()
    assert first.valid_until == 1029.0
    assert not await second.try_acquire()
    clock.seconds += 14
    assert not await second.try_acquire()
    clock.seconds += 1
    assert await second.try_acquire()
    assert not await first.renew()
    assert first.valid_until is None
    assert first.holder == "second"
    lease = await kube.get(LEASES, "leader", namespace=namespace)
    assert lease["spec"]["leaseTransitions"] == 1


async def test_a_released_lease_is_taken_at_once(kube, namespace):
    clock = Clock()
    first, second = candidate(kube, namespace, "first", clock), candidate(kube, namespace, "second", clock)
    assert await first.try_acquire()
    assert not await second.try_acquire()
    await first.release()
    assert first.valid_until is None
    assert await second.try_acquire()
    await first.release()
    assert await second.renew()


async def test_of_many_candidates_one_wins_at_each_change(kube, namespace):
    clock = Clock()
    candidates = [candidate(kube, namespace, f"c{number}", clock) for number in range(12)]
    for _ in range(3):
        wins = await asyncio.gather(*(each.try_acquire() for each in candidates))
        assert sum(wins) == 1
        lease = await kube.get(LEASES, "leader", namespace=namespace)
        assert lease["spec"]["holderIdentity"] == f"c{wins.index(True)}"
        await asyncio.gather(*(each.try_acquire() for each in candidates))
        clock.seconds += 15


async def test_another_s_edit_of_the_lease_does_not_cost_the_holder_its_hold(kube, namespace):
    holder = candidate(kube, namespace, "holder", Clock())
    assert await holder.try_acquire()
    await kube.merge_patch(LEASES, "leader", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace)
    assert await holder.renew()
    await kube.delete(LEASES, "leader", namespace=namespace)
    assert await holder.renew()
    lease = await kube.get(LEASES, "leader", namespace=namespace)
    assert lease["spec"]["holderIdentity"] == "holder"


async def test_a_lease_that_vanished_counts_as_held_until_its_time_is_over(kube, namespace):
    clock = Clock()
    first, second = candidate(kube, namespace, "first", clock), candidate(kube, namespace, "second", clock)
    assert await first.try_acquire()
    assert not await second.try_acquire()
    clock.seconds += 7
    await kube.delete(LEASES, "leader", namespace=namespace)
    assert not await second.try_acquire()
    clock.seconds += 7
    assert not await second.try_acquire(), "the first one leads by it for another second"
    clock.seconds += 1
    assert await second.try_acquire()
    assert not await first.renew()


async def test_a_lease_that_vanished_after_it_was_given_up_is_free(kube, namespace):
    clock = Clock()
    first, second = candidate(kube, namespace, "first", clock), candidate(kube, namespace, "second", clock)
    assert await first.try_acquire()
    await first.release()
    assert await second.try_acquire()
    await second.release()
    await kube.delete(LEASES, "leader", namespace=namespace)
    assert await first.try_acquire()


async def test_a_holder_that_slept_past_its_time_finds_itself_replaced(kube, namespace):
    awake, asleep = Clock(), Clock()
    sleeper, other = candidate(kube, namespace, "sleeper", asleep), candidate(kube, namespace, "other", awake)
    assert await sleeper.try_acquire()
    assert not await other.try_acquire()
    awake.seconds += 15
    assert await other.try_acquire()
    assert not await sleeper.renew()
    await sleeper.release()
    assert await other.renew()
