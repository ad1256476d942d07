"""A process leads once: it ends with its lead, and the one that a kubelet starts in its place waits."""

import asyncio

import pytest

from fipop.boundary import ApiRequest
from localfleet.simulated import Answer
from tests.harness.fleet import Fleet, build_fleet

A, B, X, Y = "c-m-a", "c-m-b", "10.0.0.10", "10.0.0.11"


async def build_pair() -> Fleet:
    """Return a fleet with two replicas, one of which leads."""
    fleet = build_fleet(A, B, iprange="10.0.0.10-10.0.0.30")
    await fleet.start()
    await fleet.start()
    return fleet


async def seconds_until_served(fleet: Fleet, guest_id: str, name: str) -> float:
    """Return how long a new floating IP waits for its address; 1,000 if longer."""
    fleet.ask(guest_id, name=name)
    began = fleet.now
    while not fleet.addresses(guest_id, name) and (fleet.now - began).total_seconds() < 1000:
        await fleet.pass_time(0.5)
    return (fleet.now - began).total_seconds()


async def test_a_process_that_loses_the_lead_ends_and_the_one_after_it_stands_by() -> None:
    fleet = await build_pair()
    former = fleet.leader
    former.link.is_cut = True
    await fleet.pass_time(9)
    assert former.restarts == 1
    former.link.is_cut = False
    assert await seconds_until_served(fleet, A, "web") < 20
    await fleet.pass_time(600)
    assert (former.restarts, former.is_alive, fleet.leader is former) == (1, True, False)
    assert fleet.problems == []


async def test_a_process_that_loses_the_lead_writes_nothing_from_then_on() -> None:
    """Its requests arrive, but those for its Lease."""
    fleet = await build_pair()
    former = fleet.leader
    former.link.refuse = lambda verb, target, _request: target.plural == "leases" and verb != "get"
    await fleet.pass_time(9)
    writes = former.link.requests.copy()
    fleet.ask(A)
    await fleet.pass_time(3)
    assert not [each for each in (former.link.requests - writes) if each[0] not in {"get", "list"}]
    assert fleet.addresses(A) == []


@pytest.mark.parametrize(("seconds", "restarts"), [(5, 0), (30, 1), (600, 1)])
async def test_after_an_outage_of_the_api_server_addresses_are_assigned_again(
    seconds: float, restarts: int
) -> None:
    """The leader restarts once, however long it lasts, and the standby not at all."""
    fleet = await build_pair()
    leader = fleet.leader
    for each in fleet.operators:
        each.link.is_cut = True
    await fleet.pass_time(seconds)
    for each in fleet.operators:
        each.link.is_cut = False
    assert await seconds_until_served(fleet, A, "web") <= 30
    assert {each.restarts for each in fleet.operators if each is leader} == {restarts}
    assert {each.restarts for each in fleet.operators if each is not leader} == {0}
    assert fleet.problems == []


async def test_five_losses_of_the_lead_within_ten_minutes_delay_new_addresses_by_less_than_a_minute_each() -> (
    None
):
    fleet = await build_pair()
    waits = []
    for number in range(5):
        leader = fleet.leader
        leader.link.is_cut = True
        waits.append(await seconds_until_served(fleet, A, f"web-{number}"))
        leader.link.is_cut = False
        await fleet.pass_time(100 - waits[-1])
    assert max(waits) < 60
    assert sum(each.restarts for each in fleet.operators) == 5
    assert fleet.problems == []


async def test_a_leader_beside_which_kube_fip_operator_starts_ends_once_and_waits() -> None:
    fleet = await build_pair()
    leader = fleet.leader
    fleet.scale_predecessor(1)
    await fleet.pass_time(600)
    assert [each.restarts for each in fleet.operators] == [
        1 if each is leader else 0 for each in fleet.operators
    ]
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    fleet.scale_predecessor(0)
    await fleet.pass_time(30)
    assert fleet.addresses(A) == [X]


async def test_a_machine_that_was_suspended_ends_its_process_which_starts_again_at_once() -> None:
    fleet = build_fleet(A)
    running = await fleet.start()
    fleet.jump(60)
    fleet.ask(A)
    await fleet.pass_time(15)
    assert (running.restarts, fleet.addresses(A)) == (1, [X])


async def test_a_leader_whose_lease_cannot_be_written_for_conflicts_waits_between_attempts() -> None:
    """Such as beside a controller that labels the Lease again and again."""
    fleet = await build_pair()
    former = fleet.leader
    conflict = Answer(
        status=409, body={"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict"}
    )

    async def take_time(_request: ApiRequest) -> None:
        await asyncio.sleep(0.01)

    former.link.before = take_time
    former.link.forge = lambda verb, target, _request: (
        conflict if (verb, target.plural) == ("replace", "leases") else None
    )
    before = former.link.requests["replace", "leases"]
    await fleet.pass_time(9)
    assert former.restarts == 1
    assert former.link.requests["replace", "leases"] - before <= 20
