"""Only the leader assigns, and no address is assigned twice, whatever becomes of a leader and its API server."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fipop.interfaces import ApiRequest
from localfleet.simulated import Answer, Target
from tests.harness.service_cluster import LEASE, Running, ServiceCluster

POOL = {"cidr-global": "10.0.0.1-10.0.0.4"}
FIRST, SECOND = "10.0.0.1", "10.0.0.2"
TAKEOVER_SECONDS = 40
"""A Lease that is not given up is taken after 15 s; then all is served."""


async def start_two(cluster: ServiceCluster) -> tuple[Running, Running]:
    """Start a leader and another provider that waits for its Lease."""
    return await cluster.start(lease=LEASE), await cluster.start(lease=LEASE)


async def test_one_of_two_works_and_the_other_takes_over_when_it_stops() -> None:
    cluster = ServiceCluster(POOL)
    leader, _ = await start_two(cluster)
    cluster.add()
    await cluster.settle()
    assert cluster.addresses() == FIRST
    await cluster.stop(leader)
    cluster.add("next")
    await cluster.settle()
    assert cluster.addresses("next") == SECOND


async def test_after_a_leader_was_killed_another_serves_within_the_duration_of_the_lease() -> None:
    cluster = ServiceCluster(POOL)
    leader, _ = await start_two(cluster)
    await cluster.kill(leader)
    cluster.add()
    await cluster.pass_time(TAKEOVER_SECONDS)
    assert cluster.addresses() == FIRST


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("lost_seconds", [TAKEOVER_SECONDS, 300])
async def test_a_write_of_a_former_leader_that_arrives_late_gives_no_address_to_two(
    is_killed: bool, lost_seconds: float
) -> None:
    cluster = ServiceCluster(POOL)
    leader, _ = await start_two(cluster)
    cluster.add()
    leader.link.before = shut_at_the_first_write(leader, "/services/")
    await cluster.settle()
    if is_killed:
        await cluster.kill(leader)
    cluster.add("next")
    await cluster.pass_time(lost_seconds)
    leader.gate.open()
    cluster.add("last")
    await cluster.pass_time(TAKEOVER_SECONDS)
    found = [cluster.addresses(name) for name in ("web", "next", "last")]
    assert sorted(found) == [FIRST, SECOND, "10.0.0.3"]
    assert cluster.problems == []


def shut_at_the_first_write(running: Running, path: str) -> Callable[[ApiRequest], Awaitable[None]]:
    """Have the gate of a provider shut before the first write below a path arrives."""
    is_shut = False

    async def let_pass(request: ApiRequest) -> None:
        nonlocal is_shut
        if request.method == "PUT" and path in request.path and not is_shut:
            is_shut = True
            running.gate.shut()
        await running.gate.let_pass(request)

    return let_pass


def forge_stamps(cluster: ServiceCluster, running: Running) -> None:
    """Answer a provider that each of its stamps was written, and write none."""

    def forge(verb: str, target: Target, request: ApiRequest) -> Answer | None:
        if verb != "replace" or target.subresource != "status":
            return None
        stored = cluster.memory.objects[target.plural, target.namespace, target.name]
        return Answer(status=200, body={**stored, "metadata": {**request.body["metadata"]}})

    running.link.forge = forge


def forge_leases(cluster: ServiceCluster, running: Running) -> None:
    """Answer a provider that it holds each Lease which it reads."""

    def forge(verb: str, target: Target, _request: ApiRequest) -> Answer | None:
        if verb != "get" or target.plural != "leases":
            return None
        stored = cluster.memory.objects[target.plural, target.namespace, target.name]
        return Answer(status=200, body={**stored, "spec": {**stored["spec"], "holderIdentity": running.name}})

    running.link.forge = forge


def refuse_late(_verb: str, target: Target, request: ApiRequest) -> bool:
    """Refuse writes of Service late, but of its status."""
    return request.method == "PUT" and target.name == "late" and not target.subresource


@pytest.mark.parametrize("has_stamps", [True, False])
async def test_the_stamp_is_what_makes_a_late_write_fail(has_stamps: bool) -> None:
    cluster = ServiceCluster(POOL)
    former = await cluster.start(lease=LEASE)
    cluster.add("late")
    former.link.before = shut_at_the_first_write(former, "/services/")
    await cluster.settle()
    await cluster.kill(former)
    leader = cluster.begin(lease=LEASE)
    leader.link.refuse = refuse_late
    if not has_stamps:
        forge_stamps(cluster, leader)
    await cluster.pass_time(TAKEOVER_SECONDS)
    cluster.add("early")
    await cluster.settle()
    assert cluster.addresses("early") == FIRST
    former.gate.open()
    assert cluster.addresses("late") == ("" if has_stamps else FIRST)
    assert bool(cluster.problems) is not has_stamps


@pytest.mark.parametrize("reads_leases", [True, False])
async def test_reading_the_lease_is_what_stops_a_former_leader_whose_clock_is_slow(
    reads_leases: bool,
) -> None:
    cluster = ServiceCluster(POOL)
    former = await cluster.start(lease=LEASE, clock_speed=0.05)

    async def let_pass(request: ApiRequest) -> None:
        if request.method == "PUT" and "/leases/" in request.path:
            await asyncio.Event().wait()
        await former.gate.let_pass(request)

    async def hear_nothing() -> None:
        await asyncio.Event().wait()

    former.link.before = let_pass
    cluster.add("late")
    former.gate.shut()
    await cluster.settle()
    former.link.pace = hear_nothing
    leader = cluster.begin(lease=LEASE)
    leader.link.refuse = refuse_late
    await cluster.pass_time(TAKEOVER_SECONDS)
    cluster.add("early")
    await cluster.settle()
    assert cluster.addresses("early") == FIRST
    if not reads_leases:
        forge_leases(cluster, former)
    former.gate.open()
    await cluster.pass_time(TAKEOVER_SECONDS)
    assert cluster.addresses("late") == ("" if reads_leases else FIRST)
    assert bool(cluster.problems) is not reads_leases


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_service_whose_stamp_is_refused_holds_its_pool_back_for_a_minute_and_silence_for_ever(
    is_answered: bool,
) -> None:
    cluster = ServiceCluster({**POOL, "cidr-lab": "10.1.0.1-10.1.0.4"})
    cluster.add("odd")
    cluster.add()
    cluster.add(namespace="lab")
    running = cluster.begin()

    def refuse(_verb: str, target: Target, request: ApiRequest) -> bool:
        return is_answered and request.method == "PUT" and target.name == "odd"

    async def be_silent(request: ApiRequest) -> None:
        if not is_answered and request.method == "PUT" and "/odd" in request.path:
            raise ConnectionError

    running.link.refuse, running.link.before = refuse, be_silent
    await cluster.pass_time(50)
    assert (cluster.addresses(), cluster.addresses(namespace="lab")) == ("", "10.1.0.1")
    await cluster.pass_time(600)
    assert bool(cluster.addresses()) is is_answered
    assert ("SyncLoadBalancerFailed" in cluster.reasons("odd")) is is_answered
    running.link.before = None
    await cluster.pass_time(60)
    assert cluster.addresses()


async def test_a_write_whose_answer_is_lost_is_not_done_twice() -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    running.link.lost["replace"] = 1
    cluster.add()
    await cluster.pass_time(TAKEOVER_SECONDS)
    cluster.add("next")
    await cluster.settle()
    assert (cluster.addresses(), cluster.addresses("next")) == (FIRST, SECOND)


async def test_while_the_api_server_fails_no_service_is_told_anything_and_all_are_served_after_it() -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    running.gate.shut()
    cluster.add()
    await cluster.pass_time(120)
    assert (cluster.addresses(), cluster.events()) == ("", [])
    running.gate.open()
    cluster.restart_ended()
    await cluster.pass_time(TAKEOVER_SECONDS)
    assert (cluster.addresses(), cluster.reasons("web")) == (FIRST, ["AddressAssigned"])


async def test_an_api_server_that_is_away_at_the_start_is_waited_for() -> None:
    cluster = ServiceCluster(POOL)
    cluster.add()
    running = cluster.begin()
    running.link.is_cut = True
    await cluster.pass_time(60)
    running.link.is_cut = False
    cluster.restart_ended()
    await cluster.pass_time(TAKEOVER_SECONDS)
    assert cluster.addresses() == FIRST


async def test_a_service_that_a_policy_refuses_to_have_written_keeps_no_other_waiting() -> None:
    def refuse(_verb: str, target: Target, request: ApiRequest) -> bool:
        return request.method == "PUT" and target.name == "odd" and not target.subresource

    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    running.link.refuse = refuse
    cluster.add("odd")
    await cluster.settle()
    cluster.add()
    await cluster.settle()
    assert (cluster.addresses("odd"), bool(cluster.addresses())) == ("", True)
    running.link.refuse = lambda *_: False
    await cluster.pass_time(60)
    assert cluster.addresses("odd")
    assert cluster.addresses("odd") != cluster.addresses()


async def test_a_provider_that_was_cut_off_for_ten_minutes_catches_up() -> None:
    cluster = ServiceCluster(POOL)
    running = await cluster.start()
    cluster.add()
    await cluster.settle()
    running.gate.shut()
    cluster.delete()
    cluster.add("next", loadBalancerIP=SECOND)
    await cluster.pass_time(600)
    running.gate.open()
    cluster.restart_ended()
    cluster.add("last")
    await cluster.pass_time(TAKEOVER_SECONDS)
    assert cluster.names() == ["last", "next"]
    assert cluster.addresses("last") in {FIRST, "10.0.0.3"}
