"""Guest clusters in Rancher: what counts when one comes, goes, connects or is renamed, and what stands on Harvester."""

from collections.abc import Callable
from typing import Any

import pytest

from fipop.interfaces import ApiRequest
from tests.harness.fleet import CLUSTERS, EVERY_GUEST, WORKSPACE, Fleet, build_fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
HOUR = 3600
VISITED = 150
"""Every guest cluster was visited twice in that time."""


def build(*guest_ids: str, **spec: object) -> Fleet:
    fleet = build_fleet(*guest_ids, **spec)
    fleet.set_options(operateGuestClusterInterval="60")
    return fleet


def hold(fleet: Fleet, guest_id: str, address: str) -> None:
    """Have a floating IP that holds an address, which its guest cluster was not told, as a restored store shows it."""
    fleet.ask(guest_id, has=address)
    fleet.reserve(address, guest_id)


async def in_conflict(**guest: Any) -> Fleet:
    """Have X held by A, which was not told of it yet, and used by a Service of B."""
    fleet = build(A)
    fleet.add_guest(B, **guest)
    hold(fleet, A, X)
    fleet.guests[B].add_service(X)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    assert (fleet.guests[A].addresses, fleet.condition(A, "GuestConfigured")[0]) == (set(), "False")
    return fleet


# An address that two guest clusters use


async def test_a_cluster_that_turns_out_to_be_harvester_keeps_no_address_from_its_owner() -> None:
    fleet = await in_conflict(imported=True, provider="")
    fleet.guests[B].remove_service()
    found = fleet.memory.objects[CLUSTERS, "", B]
    fleet.memory.put((CLUSTERS, "", B), {**found, "status": {**found["status"], "provider": "harvester"}})
    await fleet.pass_time(VISITED)
    assert (fleet.guests[A].addresses, fleet.condition(A, "GuestConfigured")[0]) == ({X}, "True")


async def test_a_guest_cluster_that_replaces_another_one_under_its_id_while_that_is_read_is_read_itself() -> (
    None
):
    fleet = build(C)
    fleet.add_guest(B, imported=True, named="former").seconds = 2.0
    await fleet.start(seconds=3, leader_election=False)
    fleet.remove_guest(B, named="former")
    await fleet.settle()
    fleet.add_guest(B, imported=True, named="latter").add_service(X)
    await fleet.pass_time(60)
    fleet.ask(C)
    await fleet.pass_time(5)
    assert fleet.addresses(C) == [Y]


async def test_a_guest_cluster_that_uses_an_address_of_another_one_and_is_disconnected_delays_no_third() -> (
    None
):
    fleet = await in_conflict()
    fleet.add_guest(C)
    fleet.disconnect(B)
    await fleet.settle()
    fleet.ask(C)
    await fleet.pass_time(5)
    assert (fleet.addresses(C), fleet.guests[C].addresses) == ([Y], {Y})
    await fleet.pass_time(300)
    assert fleet.guests[A].addresses == set(), "a Service of B may still use the address"


@pytest.mark.parametrize(
    "key", [(CLUSTERS, WORKSPACE, f"cluster-{B}"), (CLUSTERS, "", B)], ids=["provisioning", "mgmt"]
)
async def test_what_a_guest_cluster_uses_counts_while_rancher_has_one_of_its_two_objects(
    key: tuple[str, str, str],
) -> None:
    fleet = await in_conflict(imported=True)
    bring_back = fleet.take_away(key)
    await fleet.pass_time(60)
    assert fleet.guests[A].addresses == set()
    bring_back()
    await fleet.pass_time(60)
    assert fleet.guests[A].addresses == set()


async def test_a_label_that_its_owner_can_set_hides_nothing_that_a_guest_cluster_uses() -> None:
    fleet = build(A)
    fleet.add_guest(B, imported=True, provider="")
    hold(fleet, A, X)
    fleet.guests[B].add_service(X)
    await fleet.start(leader_election=False)
    await fleet.pass_time(120)
    fleet.label_guest(B, **{"provider.cattle.io": "harvester"})
    await fleet.pass_time(180)
    assert fleet.guests[A].addresses == set(), "a Service of B still uses it"


# One owner after the other


@pytest.mark.parametrize("change", ["label", "connection", "restart"])
async def test_a_former_owner_that_let_its_address_go_is_no_conflict_for_the_next_one(change: str) -> None:
    fleet = build(B, C, iprange=f"{X}-{X}", quarantineSeconds=90)
    await fleet.start(leader_election=False)
    fleet.ask(B)
    await fleet.pass_time(10)
    assert fleet.guests[B].addresses == {X}
    fleet.give_up(B)
    fleet.ask(C)
    await fleet.pass_time(VISITED)
    assert (fleet.guests[B].addresses, fleet.guests[C].addresses) == (set(), {X})
    if change == "label":
        fleet.label_guest(B, any="label")
    elif change == "connection":
        fleet.disconnect(B)
        await fleet.pass_time(60)
        fleet.connect(B)
    else:
        fleet.disconnect(B)
        await fleet.restart(leader_election=False)
    await fleet.pass_time(VISITED)
    assert fleet.condition(C, "GuestConfigured") == ("True", "Configured")
    assert fleet.problems == []


async def test_a_guest_cluster_is_written_though_the_former_owner_of_its_address_is_disconnected() -> None:
    fleet = build(B, iprange=f"{X}-{X}", quarantineSeconds=90)
    await fleet.start(leader_election=False)
    fleet.ask(B)
    await fleet.pass_time(10)
    fleet.give_up(B)
    await fleet.pass_time(VISITED)
    assert fleet.quarantined() == set()
    fleet.disconnect(B)
    fleet.add_guest(C, connected=False)
    fleet.ask(C)
    await fleet.pass_time(10)
    fleet.connect(C)
    await fleet.pass_time(60)
    assert (fleet.holders(X), fleet.guests[C].addresses) == ({C}, {X})


# What Rancher imported


async def imported(provider: str) -> Fleet:
    """Have an imported cluster just now Ready, of a kind that Rancher says or does not know."""
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    await fleet.start(leader_election=False)
    fleet.add_guest(A, imported=True, provider=provider, is_served=True)
    return fleet


async def test_an_imported_cluster_of_an_unknown_kind_is_a_guest_cluster_once_it_was_ready_for_a_minute() -> (
    None
):
    fleet = await imported("")
    await fleet.pass_time(50)
    assert fleet.held() == {}
    await fleet.pass_time(40)
    held = fleet.held()
    assert list(held.values()) == [A]
    fleet.guests[A].silent = True
    await fleet.restart(leader_election=False, seconds=120)
    assert fleet.held() == held


async def test_a_harvester_cluster_is_no_guest_cluster() -> None:
    fleet = await imported("harvester")
    await fleet.pass_time(300)
    assert fleet.held() == {}
    assert fleet.guests[A].config_map == {}


async def test_what_an_imported_cluster_uses_counts_before_it_is_known_what_it_is() -> None:
    fleet = build(C)
    fleet.add_guest(B, imported=True, provider="")
    fleet.guests[B].add_service(X)
    fleet.ask(C)
    await fleet.start(seconds=90)
    assert fleet.addresses(C) == [Y]


# Disconnected guest clusters


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_guest_cluster_that_was_reached_once_is_reported_as_disconnected(is_restarted: bool) -> None:
    fleet = build(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(60)
    assert fleet.condition(A, "GuestConfigured") == ("True", "Configured")
    fleet.disconnect(A)
    if is_restarted:
        await fleet.restart(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.condition(A, "GuestConfigured") == ("False", "GuestDisconnected")


# What a guest cluster stands on


async def on_harvester(*, is_served: bool = True, **ranges: str) -> Fleet:
    """Have A on the Harvester cluster "hv1", and ranges by their names, each of a Harvester cluster."""
    fleet = Fleet()
    for number, (name, harvester) in enumerate(ranges.items()):
        fleet.add_range(
            name, f"10.0.{number}.10-10.0.{number}.13", harvester=harvester, clusterSelector=EVERY_GUEST
        )
        await fleet.pass_time(2)
    fleet.add_guest(A, is_served=is_served)
    fleet.put_on_harvester(A, "hv1")
    return fleet


CONFIG = ("harvesterconfigs", WORKSPACE, f"nodes-{A}")


def serve(fleet: Fleet) -> None:
    """Have a floating IP be created for A automatically, from now on."""
    fleet.annotate((CLUSTERS, WORKSPACE, f"cluster-{A}"), {"kubefip.k8s.binbash.org/floating-ip": "true"})


async def test_a_range_that_is_older_than_its_harvester_cluster_in_rancher_is_ready_and_reports_it() -> None:
    fleet = build(A, harvester="hv1")
    await fleet.start(leader_election=False)
    assert fleet.range_condition() == ("True", "HarvesterNotFound")
    version = fleet.memory.version
    await fleet.pass_time(HOUR)
    assert fleet.commits_since(version) == []
    fleet.put_on_harvester(A, "hv1")
    await fleet.pass_time(10)
    assert fleet.range_condition() == ("True", "Ready")


async def test_a_range_is_chosen_once_it_is_known_which_harvester_cluster_a_guest_cluster_stands_on() -> None:
    fleet = await on_harvester(own="hv1", rest="", is_served=False)
    bring_back = fleet.take_away(CONFIG)
    await fleet.start(leader_election=False)
    fleet.ask(A, range_name="")
    await fleet.pass_time(5)
    assert (fleet.held(), fleet.condition(A)) == ({}, ("False", "GuestUnresolved"))
    bring_back()
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": A}


async def test_a_guest_cluster_is_served_once_its_harvesterconfig_can_be_read() -> None:
    fleet = await on_harvester(own="hv1")
    serve(fleet)
    bring_back = fleet.take_away(CONFIG)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    bring_back()
    await fleet.pass_time(60)
    assert list(fleet.held().values()) == [A]


@pytest.mark.parametrize("provider", ["harvester", ""])
async def test_a_guest_cluster_gets_a_range_of_its_harvester_cluster_under_its_new_name(
    provider: str,
) -> None:
    fleet = await on_harvester(own="hv9")
    key = (CLUSTERS, "", "c-hv1")
    fleet.memory.put(key, {**fleet.memory.objects[key], "status": {"provider": provider}})
    serve(fleet)
    await fleet.start(leader_election=False)
    assert fleet.held() == {}
    fleet.rename_harvester("hv1", "hv9")
    await fleet.pass_time(90)
    assert fleet.held() == {f"default.{X}": A}


async def test_a_guest_cluster_gets_no_range_of_another_harvester_cluster_that_took_the_former_name() -> None:
    fleet = await on_harvester()
    serve(fleet)
    await fleet.start(leader_election=False)
    fleet.rename_harvester("hv1", "hv9")
    fleet.add_guest(B)
    fleet.put_on_harvester(B, "hv2")
    fleet.rename_harvester("hv2", "hv1")
    await fleet.pass_time(5)
    fleet.add_range(harvester="hv1")
    await fleet.pass_time(90)
    assert fleet.held() == {}


LINKS: dict[str, tuple[str, str, str]] = {
    "its HarvesterConfig": CONFIG,
    "its Harvester cluster in Rancher": (CLUSTERS, "", "c-hv1"),
}


@pytest.mark.parametrize("link", LINKS)
async def test_a_guest_cluster_is_served_as_before_while_a_link_to_its_harvester_cluster_is_missing(
    link: str,
) -> None:
    fleet = await on_harvester(own="hv1")
    serve(fleet)
    await fleet.start(leader_election=False)
    await fleet.pass_time(5)
    assert fleet.held() == {f"default.{X}": A}
    fleet.take_away(LINKS[link])
    fleet.give_up(A, f"cluster-{A}-kubevip")
    await fleet.pass_time(90)
    assert fleet.held() == {f"default.{X}": A}


async def test_a_guest_cluster_that_no_range_serves_gets_an_event_and_not_again_and_again() -> None:
    fleet = await on_harvester()
    serve(fleet)
    await fleet.start(leader_election=False)
    fleet.take_away(CONFIG)
    fleet.label_guest(A, changed="yes")
    await fleet.pass_time(900)
    reasons = [reason for _, reason, _ in fleet.events("Cluster/")]
    assert 1 <= reasons.count("NoMatchingRange") <= 3


async def test_a_guest_cluster_that_no_range_serves_gets_an_event_also_if_its_network_is_known_late() -> None:
    fleet = await on_harvester()
    bring_back = fleet.take_away(CONFIG)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    bring_back()
    await fleet.pass_time(300)
    assert [reason for _, reason, _ in fleet.events("Cluster/")] == ["GuestUnresolved", "NoMatchingRange"]


async def test_a_floating_ip_of_a_guest_cluster_that_is_not_known_says_what_is_wrong_with_its_range() -> None:
    fleet = build()
    fleet.add_guest(A, imported=True, provider="").silent = True
    fleet.add_guest(B)
    await fleet.start(leader_election=False)
    fleet.ask(A, range_name="typo")
    await fleet.pass_time(120)
    assert fleet.condition(A) == ("False", "RangeNotFound")
    assert '"typo"' in fleet.message(A)


async def test_an_address_that_a_spec_names_stays_free_for_it_until_its_guest_cluster_is_known() -> None:
    fleet = build(A, B, maxPerGuest=3, harvester="hv1")
    for each in (A, B):
        fleet.put_on_harvester(each, "hv1")
    fleet.ask(A, X)
    is_failing = True

    async def fail(request: ApiRequest) -> None:
        if is_failing and request.path.endswith(f"/harvesterconfigs/nodes-{A}"):
            raise ConnectionError("the aggregated API is away")

    fleet.begin(leader_election=False).link.before = fail
    await fleet.pass_time(90)
    fleet.ask(B)
    await fleet.pass_time(5)
    assert fleet.held() == {f"default.{Y}": B}
    is_failing = False
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": A, f"default.{Y}": B}


# Automatic floating IPs


async def test_no_floating_ip_is_created_while_the_option_is_off_and_existing_ones_stay() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    for each in (A, B):
        fleet.add_guest(each, is_served=True)
    await fleet.start(leader_election=False)
    assert set(fleet.held().values()) == {A, B}
    fleet.set_options(createFloatingIPs="false")
    await fleet.pass_time(10)
    fleet.give_up(A, f"cluster-{A}-kubevip")
    fleet.add_guest(C, is_served=True)
    await fleet.pass_time(600)
    assert set(fleet.held().values()) == {B}
    await fleet.restart(leader_election=False, seconds=60)
    assert set(fleet.held().values()) == {B}
    fleet.set_options(createFloatingIPs="true")
    await fleet.pass_time(30)
    assert set(fleet.held().values()) == {A, B, C}


async def test_no_floating_ip_is_created_while_no_good_value_of_the_option_is_known() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    fleet.set_options(createFloatingIPs="maybe")
    fleet.add_guest(A, is_served=True)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.held() == {}
    fleet.set_options(createFloatingIPs="true")
    await fleet.pass_time(30)
    assert list(fleet.held().values()) == [A]


CREATED: dict[str, Callable[[Fleet], None]] = {
    "a range that serves it comes": lambda fleet: fleet.add_range(clusterSelector=EVERY_GUEST),
    "it matches a range by its labels": lambda fleet: fleet.label_guest(A, net="green"),
}


@pytest.mark.parametrize("change", CREATED)
async def test_a_guest_cluster_without_a_floating_ip_gets_one_when(change: str) -> None:
    fleet = Fleet()
    fleet.add_range("green", "10.0.9.10-10.0.9.13", clusterSelector={"matchLabels": {"net": "green"}})
    fleet.add_guest(A, is_served=True)
    await fleet.start(leader_election=False)
    assert fleet.held() == {}
    CREATED[change](fleet)
    await fleet.pass_time(30)
    assert list(fleet.held().values()) == [A]


async def refused_beside(spec: dict[str, Any]) -> Fleet:
    """Have A with a floating IP of its own and the automatic one, which is then deleted."""
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST, iprange=f"{X}-{X}", quarantineSeconds=90)
    fleet.add_guest(A, is_served=True)
    await fleet.start(leader_election=False)
    fleet.ask(A, **spec)
    await fleet.pass_time(10)
    assert (fleet.holders(X), fleet.condition(A)[0]) == ({A}, "False")
    fleet.give_up(A, f"cluster-{A}-kubevip")
    await fleet.pass_time(300)
    assert fleet.held() == {}
    return fleet


@pytest.mark.parametrize(
    "spec", [{"ipaddress": "10.9.9.9"}, {"range_name": "typo"}, {"ipFamilies": ["IPv6"]}], ids=str
)
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_guest_cluster_all_of_whose_floating_ips_are_refused_gets_the_automatic_one_after_ten_minutes(
    spec: dict[str, Any], is_restarted: bool
) -> None:
    fleet = await refused_beside(spec)
    if is_restarted:
        await fleet.restart(leader_election=False)
    await fleet.pass_time(330)
    assert fleet.held() == {f"default.{X}": A}


async def test_the_automatic_floating_ip_beside_refused_ones_is_made_once_a_range_serves_the_guest_cluster() -> (
    None
):
    """No range matched when the ten minutes were over."""
    fleet = Fleet()
    fleet.add_range(iprange=f"{X}-{X}")
    fleet.add_guest(A, is_served=True)
    fleet.ask(A, "10.9.9.9")
    await fleet.start(leader_election=False)
    await fleet.pass_time(HOUR)
    assert fleet.held() == {}
    fleet.add_range("late", "10.0.1.1-10.0.1.1", clusterSelector=EVERY_GUEST)
    await fleet.pass_time(30)
    assert list(fleet.held().values()) == [A]


async def test_a_guest_cluster_with_a_floating_ip_that_waits_gets_no_other_one() -> None:
    fleet = await refused_beside({"ipaddress": "10.9.9.9"})
    fleet.add_range("full", "10.0.1.1-10.0.1.1", clusterSelector=EVERY_GUEST)
    fleet.add_guest(B)
    fleet.ask(B, range_name="full")
    await fleet.settle()
    fleet.ask(A, name="waiting", range_name="full")
    await fleet.pass_time(HOUR)
    assert fleet.condition(A, name="waiting") == ("False", "RangeFull")
    assert set(fleet.held().values()) == {B}
