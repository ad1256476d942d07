"""Gate, leadership and inheritance: what a new leader does before it assigns addresses, and that it changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.fleet import Fleet, build_fleet

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
V = "fd00::10"
SLOW_SECONDS = 2.0
"""For each request of a guest cluster: reading it takes longer than 5 s, and much less than the gate waits."""
GATE_SECONDS = 60.0
UNREADABLE_SECONDS = 600.0


def hold(fleet: Fleet, guest_id: str, address: str) -> None:
    """Have a floating IP that holds an address, which its guest cluster was not told, as a restored store shows it."""
    fleet.ask(guest_id, has=address)
    fleet.reserve(address, guest_id)


# What new addresses wait for


async def test_nothing_new_is_assigned_or_written_until_every_guest_cluster_was_read() -> None:
    fleet = build_fleet(A, B, C)
    hold(fleet, A, Z)
    fleet.guests[B].add_service(X)
    fleet.guests[B].hanging = True
    fleet.ask(C)
    await fleet.start(seconds=35)
    assert (fleet.addresses(C), fleet.guests[A].addresses) == ([], set())
    fleet.guests[B].hanging = False
    await fleet.pass_time(50)
    assert (fleet.addresses(C), fleet.guests[A].addresses) == ([Y], {Z})
    assert fleet.holders(X) == set()


async def test_a_guest_cluster_that_does_not_answer_delays_new_addresses_by_a_minute() -> None:
    fleet = build_fleet(B, C)
    fleet.guests[B].hanging = True
    fleet.ask(C)
    await fleet.start(seconds=GATE_SECONDS - 10)
    assert fleet.addresses(C) == []
    await fleet.pass_time(30)
    assert fleet.addresses(C) == [X]


@pytest.mark.parametrize("fault", [{"status": 503}, {"hanging": True}, {"silent": True}])
async def test_a_rancher_that_starts_later_than_fipop_has_its_guest_clusters_read_first(
    fault: dict[str, Any],
) -> None:
    """What it answers meanwhile is no reading, and opens nothing."""
    fleet = build_fleet(B, C)
    fleet.guests[B].add_service(X)
    for guest in fleet.guests.values():
        for name, value in fault.items():
            setattr(guest, name, value)
    fleet.ask(C)
    await fleet.start(seconds=80)
    assert fleet.addresses(C) == []
    for guest in fleet.guests.values():
        guest.status, guest.hanging, guest.silent = 0, False, False
    await fleet.pass_time(60)
    assert fleet.addresses(C) == [Y]


async def test_if_no_guest_cluster_can_be_read_new_addresses_are_assigned_after_ten_minutes() -> None:
    fleet = build_fleet(B, C)
    for guest in fleet.guests.values():
        guest.hanging = True
    fleet.ask(C)
    await fleet.start(seconds=UNREADABLE_SECONDS - 10)
    assert fleet.addresses(C) == []
    await fleet.pass_time(20)
    assert fleet.addresses(C) == [X]


async def test_at_a_slow_pace_each_guest_cluster_is_read_once_before_the_gate_opens() -> None:
    """All visits wait for the turns of their requests at once, for longer than the requests of a visit may take."""
    guest_ids = [f"c-m-{number}" for number in range(60)]
    fleet = build_fleet(*guest_ids)
    fleet.set_options(guestRequestsPerSecond="4")
    fleet.ask(guest_ids[0])
    await fleet.start(seconds=0)
    while not fleet.addresses(guest_ids[0]):
        await fleet.pass_time(1)
    assert sum(each.asked for each in fleet.guests.values()) <= 4 * (len(guest_ids) + 2)
    await fleet.pass_time(120)
    first, *others = fleet.guests.values()
    assert {each.asked for each in others} == {8}
    assert first.addresses == {X}


async def test_a_failed_reading_is_repeated_before_the_gate_opens() -> None:
    fleet = build_fleet(B, C)
    fleet.guests[B].add_service(X)
    fleet.guests[B].silent = True
    fleet.ask(C)
    await fleet.start(seconds=7)
    assert fleet.addresses(C) == []
    fleet.guests[B].silent = False
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(C) == [Y]


@pytest.mark.parametrize("fault", [{"status": 502}, {"hanging": True}])
async def test_a_guest_cluster_that_did_not_answer_before_the_gate_opened_is_visited_like_any_other_then(
    fault: dict[str, Any],
) -> None:
    fleet = build_fleet(B, C)
    for name, value in fault.items():
        setattr(fleet.guests[B], name, value)
    fleet.set_options(operateGuestClusterInterval="600")
    await fleet.start(seconds=2 * GATE_SECONDS)
    fleet.sessions.clear()
    await fleet.pass_time(600)
    assert 1 <= fleet.sessions[B] <= 2


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("leave", [Fleet.disconnect, Fleet.remove_guest])
async def test_a_guest_cluster_that_is_disconnected_or_gone_is_not_waited_for(
    leave: Callable[[Fleet, str], None], is_before: bool
) -> None:
    fleet = build_fleet(B, C)
    fleet.guests[B].hanging = True
    fleet.ask(C)
    if is_before:
        leave(fleet, B)
    await fleet.start(seconds=5)
    if not is_before:
        leave(fleet, B)
        await fleet.pass_time(15)
    assert fleet.addresses(C) == [X]


# Who connects later


async def test_a_guest_cluster_that_is_imported_while_the_gate_is_closed_is_waited_for() -> None:
    fleet = build_fleet(C, D)
    fleet.guests[D].hanging = True
    fleet.ask(C)
    await fleet.start(seconds=5)
    fleet.add_guest(B, imported=True)
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    await fleet.pass_time(90)
    assert fleet.addresses(C) == [Y]


async def test_a_guest_cluster_that_was_disconnected_at_the_start_is_read_before_new_addresses_are_assigned() -> (
    None
):
    fleet = Fleet()
    fleet.add_range()
    fleet.add_guest(B, connected=False)
    fleet.add_guest(C)
    fleet.guests[B].add_service(X)
    await fleet.start()
    fleet.connect(B)
    await fleet.pass_time(20)
    fleet.ask(C)
    await fleet.settle()
    assert fleet.addresses(C) == [Y]


async def test_a_new_guest_cluster_delays_no_other() -> None:
    fleet = build_fleet(C)
    await fleet.start()
    fleet.add_guest(B).hanging = True
    await fleet.settle()
    fleet.ask(C)
    await fleet.settle()
    assert fleet.addresses(C) == [X]


# Which reports count


async def test_what_a_guest_cluster_used_counts_once_its_labels_bring_it_to_the_range() -> None:
    fleet = build_fleet(B, C, clusterSelector={"matchLabels": {"net": "blue"}})
    fleet.guests[B].add_service(X)
    await fleet.start()
    fleet.label_guest(B, net="blue")
    await fleet.settle()
    fleet.ask(C)
    await fleet.settle()
    assert fleet.addresses(C) == [Y]


async def test_what_a_guest_cluster_uses_counts_in_no_range_of_another_harvester_cluster() -> None:
    fleet = build_fleet(B, C)
    fleet.remove_range()
    fleet.add_range(harvester="north")
    fleet.put_on_harvester(B, "south")
    fleet.put_on_harvester(C, "north")
    fleet.guests[B].add_service(X)
    fleet.ask(C)
    await fleet.start()
    assert fleet.addresses(C) == [X]


# A restart changes nothing

LIMITS: list[dict[str, Any]] = [
    {},
    {
        "maxPerGuest": 2,
        "allowedWorkspaces": ["fleet-default"],
        "allowedClusters": [f"cluster-{A}", f"cluster-{B}"],
    },
    {"restrictToMatching": True, "clusterSelector": {"matchLabels": {}}},
]


@pytest.mark.parametrize("limits", LIMITS, ids=["without limits", "allowed", "matching"])
async def test_a_restart_writes_nothing(limits: dict[str, Any]) -> None:
    """Whatever floating IPs wait for."""
    fleet = build_fleet(A, B, iprange=f"{X}-10.0.0.20,{V}-{V}", **limits)
    await fleet.start(leader_election=False)
    fleet.ask(A, ipFamilyPolicy="PreferDualStack")
    await fleet.settle()
    fleet.ask(B, "10.9.9.9", name="outside")
    fleet.ask(B, X, name="held-by-another")
    fleet.ask(B, name="no-range", range_name="typo")
    fleet.ask(B, name="one-family", ipFamilyPolicy="PreferDualStack")
    fleet.ask("elsewhere")
    await fleet.pass_time(700)
    before = fleet.memory.version
    await fleet.restart(leader_election=False, seconds=700)
    assert fleet.commits_since(before) == []
    assert fleet.addresses(A) == [X, V]


# Leaders


async def test_one_replica_works_and_another_takes_over_when_it_is_killed() -> None:
    fleet = build_fleet(A, B, C)
    await fleet.start()
    await fleet.start()
    fleet.ask(A)
    await fleet.settle()
    assert (fleet.addresses(A), fleet.guests[A].addresses) == ([X], {X})
    former = fleet.leader
    await fleet.kill(former)
    fleet.guests[B].add_service(Y)
    fleet.guests[B].seconds = SLOW_SECONDS
    fleet.ask(C)
    await fleet.pass_time(10)
    assert fleet.addresses(C) == []
    await fleet.pass_time(60)
    assert fleet.leader is not former
    assert fleet.addresses(C) == [Z], (
        "the new leader reads what guest clusters use before it assigns anything"
    )
    assert fleet.addresses(A) == [X]
    assert fleet.problems == []


async def test_a_leader_that_is_killed_while_it_claims_leaves_no_address_to_an_owner_that_is_gone() -> None:
    fleet = build_fleet(A, B)
    fleet.change_range(iprange=f"{X}-{X}", quarantineSeconds=0)
    await fleet.start(leader_election=False)

    def kill(commit: Any) -> None:
        if commit.key[0] == "floatingipreservations":
            fleet.link.is_cut = True

    fleet.memory.listeners.append(kill)
    fleet.ask(A)
    await fleet.settle()
    fleet.memory.listeners.remove(kill)
    assert fleet.held() == {f"default.{X}": A}
    await fleet.kill()
    fleet.give_up(A)
    await fleet.start(leader_election=False)
    fleet.ask(B)
    await fleet.pass_time(700)
    assert fleet.addresses(B) == [X]


# kube-fip-operator beside fipop


@pytest.mark.parametrize("name", ["kube-fip-operator", "fip-kube-fip-operator", "addresses"])
async def test_nothing_is_assigned_and_no_guest_cluster_is_visited_while_kube_fip_operator_has_replicas(
    name: str,
) -> None:
    fleet = build_fleet(A)
    fleet.guests[A].add_service(X)
    fleet.scale_predecessor(1, name=name)
    fleet.ask(A)
    await fleet.start(seconds=120)
    assert (fleet.held(), fleet.status(A), fleet.guests[A].config_map) == ({}, {}, {})
    fleet.scale_predecessor(0, name=name)
    await fleet.pass_time(30)
    assert fleet.addresses(A) != []


async def test_a_leader_that_may_not_look_for_kube_fip_operator_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = build_fleet(A)
    running = fleet.begin()
    running.link.refuse = lambda _verb, target, _request: target.plural == "deployments"
    await fleet.pass_time(120)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    said = "Could not find out whether kube-fip-operator runs"
    assert [each.getMessage() for each in caplog.records].count(said) == 1
    running.link.refuse = lambda *_: False
    await fleet.pass_time(60)
    assert fleet.addresses(A) != []
