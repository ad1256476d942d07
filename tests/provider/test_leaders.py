"""Only the leader assigns, and no address is assigned twice, whatever becomes of a leader and its API server."""

from collections.abc import Awaitable, Callable

import pytest

from fipop.boundary import ApiRequest
from localfleet.simulated import Target
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
