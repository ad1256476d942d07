"""Ordinary weeks in which a rule about addresses was broken once."""

import asyncio
from collections import Counter

import pytest

from fipop.interfaces import ApiRequest
from fipop.ipam.pool import Part
from tests.harness.fleet import EVERY_GUEST, Fleet, Guest, build_fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
RETRY = 65
A_VISIT = 75
AFTER_QUARANTINE = 200


def build(*guest_ids: str, **spec: object) -> Fleet:
    """Have a range that matches every guest cluster, and these guest clusters."""
    fleet = build_fleet(*guest_ids, **{"clusterSelector": EVERY_GUEST, "quarantineSeconds": 90, **spec})
    fleet.set_options(operateGuestClusterInterval="60")
    return fleet


async def start(fleet: Fleet) -> None:
    await fleet.start(leader_election=False)


def count_requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests that each guest cluster gets from now on."""
    counts: Counter[str] = Counter()
    before = Guest.before

    async def count(self: Guest, request: ApiRequest) -> None:
        counts[self.id] += 1
        await before(self, request)

    monkeypatch.setattr(Guest, "before", count)
    return counts


# 1: two users, reports, what a key keeps


async def in_conflict(*more: str) -> Fleet:
    """Have X held for A's floating IP and not in its key, as B uses it."""
    fleet = build(A, B, *more)
    fleet.ask(A, has=X)
    fleet.reserve(X, A)
    fleet.guests[B].add_service(X)
    await start(fleet)
    await fleet.pass_time(2 * RETRY)
    assert fleet.condition(A, "GuestConfigured") == ("False", "AddressConflict")
    assert X not in fleet.guests[A].addresses
    return fleet


async def test_a_conflict_stays_known_when_the_machines_of_fipop_and_rancher_boot_again() -> None:
    fleet = await in_conflict()
    await fleet.stop()
    for each in (A, B):
        fleet.disconnect(each)
    await start(fleet)
    fleet.connect(A)
    await fleet.pass_time(20)
    fleet.connect(B)
    await fleet.pass_time(20)
    assert X not in fleet.guests[A].addresses


async def test_a_use_that_began_in_a_quarantine_stays_known_over_a_restart() -> None:
    fleet = build(A, B, C)
    await start(fleet)
    fleet.ask(A)
    await fleet.settle()
    fleet.give_up(A)
    await fleet.pass_time(5)
    fleet.guests[C].add_service(X)
    await fleet.pass_time(A_VISIT)
    fleet.disconnect(C)
    await fleet.restart(leader_election=False)
    await fleet.pass_time(AFTER_QUARANTINE)
    fleet.ask(B)
    await fleet.pass_time(RETRY)
    assert fleet.addresses(B) == [Y]


# 2, 3, 11: gate, who connects later


async def test_an_imported_cluster_whose_agent_reconnects_once_holds_new_addresses_back() -> None:
    """Rancher deploys the agent of an imported cluster again right after it registered."""
    fleet = build(A)
    await start(fleet)
    await fleet.pass_time(300)
    imported = fleet.add_guest(B, imported=True)
    imported.add_service(X)
    imported.status = 503
    await fleet.pass_time(2)
    fleet.disconnect(B)
    imported.status = 0
    await fleet.pass_time(3)
    fleet.connect(B)
    fleet.ask(A)
    await fleet.pass_time(2 * RETRY)
    assert fleet.held() == {f"default.{Y}": A}


async def test_clusters_that_are_imported_cause_no_visits_of_all_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = count_requests(monkeypatch)
    others = [f"c-m-{number}" for number in range(30)]
    fleet = build(*others)
    await start(fleet)
    await fleet.pass_time(700)
    counts.clear()
    for number in range(10):
        fleet.add_guest(f"c-m-i{number}", imported=True)
        await fleet.pass_time(4)
    assert sum(counts[each] for each in others) <= 6 * len(others)


async def test_guest_clusters_that_connect_after_a_start_are_visited_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rancher and fipop were restarted together."""
    counts = count_requests(monkeypatch)
    others = [f"c-m-{number}" for number in range(30)]
    fleet = build(*others)
    for each in others:
        fleet.disconnect(each)
    await fleet.pass_time(60)
    await start(fleet)
    counts.clear()
    for each in others:
        fleet.connect(each)
        await fleet.pass_time(2)
    assert sum(counts.values()) <= 3 * 6 * len(others)


# 4, 5: reports, visit


async def test_a_guest_cluster_with_150_nodes_is_read_and_written() -> None:
    """A Node has some 17 KiB: names of images, labels, annotations, managed fields."""
    fleet = build(A, B)
    name = "registry.example/team/image"
    images = [{"names": [f"{name}-{n}@sha256:{n:064d}", f"{name}-{n}:v1.0.{n}"]} for n in range(100)]
    for number in range(150):
        addresses = [{"type": "InternalIP", "address": f"10.8.0.{number + 1}"}]
        node = {
            "metadata": {"name": f"n{number}"},
            "status": {"images": images, "addresses": addresses},
        }
        fleet.guests[B].put(("nodes", "", f"n{number}"), node)
    await start(fleet)
    fleet.ask(B, X)
    await fleet.pass_time(RETRY)
    assert fleet.guests[B].addresses == {X}


@pytest.mark.parametrize("kind", ["nodes", "endpoints"])
async def test_services_that_were_read_wholly_count_though_machines_cannot_be_read(kind: str) -> None:
    fleet = build(A, B, "c-m-c")
    for each in (A, B):
        fleet.guests[each].forbidden = {kind}
    await start(fleet)
    await fleet.pass_time(RETRY)
    fleet.guests[B].add_service(X)
    await fleet.pass_time(A_VISIT)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [Y]
    assert fleet.guests[A].addresses == {Y}


async def test_hundreds_of_floating_ips_in_one_namespace_are_written() -> None:
    """The API server takes 15 ms for each request."""
    fleet = build(A, iprange="10.0.2.1-10.0.3.200")
    await start(fleet)

    async def delay(_request: ApiRequest) -> None:
        await asyncio.sleep(0.015)

    fleet.link.before = delay
    for number in range(200):
        fleet.ask(A, name=f"web-{number}", serviceNamespace=f"ns-{number}")
    await fleet.pass_time(2 * A_VISIT)
    assert len(fleet.held()) == 200
    assert len(fleet.guests[A].addresses) == 200


# 6, 10: what a key keeps, without a floating IP


async def test_a_new_floating_ip_with_a_mistyped_cluster_name_writes_no_key() -> None:
    """The address of a Service that exists gets a floating IP. The condition says that nothing is written."""
    fleet = build(A)
    fleet.guests[A].add_service(X)
    await start(fleet)
    fleet.ask(A, X)
    fleet.annotate(("floatingips", A, "web"), {"clustername": "typo"})
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.condition(A, "GuestConfigured") == ("False", "ClusterMismatch")
    assert fleet.guests[A].config_map == {}


async def test_a_mistyped_cluster_name_keeps_the_key_where_it_is() -> None:
    fleet = build(A)
    await start(fleet)
    fleet.ask(A)
    await fleet.pass_time(5)
    before = fleet.guests[A].config_map
    fleet.annotate(("floatingips", A, "web"), {"clustername": "typo"})
    await fleet.pass_time(5)
    fleet.change(A, serviceNamespace="shop")
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.guests[A].config_map == before != {}


async def test_a_guest_cluster_with_a_floating_ip_keeps_its_key_while_the_range_is_missing() -> None:
    """The store is restored without statuses, and the range 20 minutes later."""
    fleet = build(A, B)
    await start(fleet)
    for each in (B, A):
        fleet.ask(each)
        await fleet.settle()
    assert fleet.guests[A].addresses == {Y}
    await fleet.stop()
    for each in (A, B):
        fleet.give_up(each)
    for name in fleet.held():
        fleet.remove_reservation(name)
    restore_range = fleet.take_away(("floatingipranges", "", "pool"))
    for each in (A, B):
        fleet.ask(each)
    await start(fleet)
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.guests[A].addresses == {Y}
    restore_range()
    await fleet.pass_time(A_VISIT)
    assert (fleet.addresses(A), fleet.addresses(B)) == ([Y], [X])


# 17: what counts


@pytest.mark.parametrize("named", [f"{X}/32", f"{X}-{Y}"])
async def test_a_mistyped_label_frees_nothing_after_a_restart(named: str) -> None:
    fleet = build(clusterSelector={"matchLabels": {"net": "blue"}})
    for each in (A, B):
        fleet.add_guest(each, labels={"net": "blue"})
    fleet.guests[B].write_config_map(cidr_default=named)
    await start(fleet)
    await fleet.pass_time(RETRY)
    fleet.label_guest(B, net="bleu")
    await fleet.pass_time(A_VISIT)
    await fleet.restart(leader_election=False)
    await fleet.pass_time(A_VISIT)
    fleet.ask(A)
    await fleet.pass_time(RETRY)
    assert X not in fleet.addresses(A)


# 9, 12: decision, two users


async def test_a_preferred_family_that_fipop_wrote_holds_up_no_move() -> None:
    fleet = build(A, iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    await start(fleet)
    fleet.ask(A, ipFamilyPolicy="PreferDualStack")
    await fleet.settle()
    assert fleet.addresses(A) == [X, "fd00::10"]
    fleet.add_range("four", "10.0.9.10-10.0.9.13", clusterSelector=EVERY_GUEST)
    fleet.ask_for_range(A, "four")
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == ["10.0.9.10"]


async def test_a_conflict_is_told_before_its_owner_connects() -> None:
    fleet = build(B)
    fleet.add_guest(A, connected=False)
    fleet.ask(A, has=X)
    fleet.reserve(X, A)
    fleet.guests[B].add_service(X)
    await start(fleet)
    await fleet.pass_time(RETRY)
    assert fleet.condition(A, "GuestConfigured")[0] == fleet.condition(A, "Ready")[0] == "False"


# 15: use, two users: reports are asked for by the name of a range, not by space and address


async def test_a_use_that_counts_in_an_overlapping_range_is_assigned_from_no_other() -> None:
    """Both ranges are of one space, so they are of one network."""
    fleet = Fleet()
    fleet.add_range("old", "10.0.0.10-10.0.0.12", clusterSelector={"matchLabels": {"net": "blue"}})
    await fleet.pass_time(2)
    fleet.add_range("young", "10.0.0.10-10.0.0.20", clusterSelector=EVERY_GUEST)
    fleet.add_guest(A, labels={"net": "blue"})
    fleet.add_guest(B)
    fleet.ask(B, range_name="young")
    fleet.guests[B].add_service(X)
    await start(fleet)
    await fleet.pass_time(RETRY)
    fleet.ask(A, range_name="old")
    await fleet.pass_time(RETRY)
    assert fleet.addresses(A) == [Y]


async def test_a_conflict_shows_though_the_address_moved_to_another_range_of_its_space() -> None:
    """A range is split in two; floating IPs keep their addresses, and the range that they name."""
    moved = "10.0.0.15"
    fleet = build(A, B, iprange="10.0.0.10-10.0.0.20")
    await start(fleet)
    fleet.ask(A, moved)
    await fleet.settle()
    fleet.change_range(iprange="10.0.0.10-10.0.0.14")
    fleet.add_range("second", "10.0.0.15-10.0.0.20", clusterSelector=EVERY_GUEST)
    fleet.guests[B].add_service(moved)
    await fleet.pass_time(2 * A_VISIT)
    assert fleet.condition(A, "Ready")[0] == "False"


# 7, 8: costs


async def test_a_floating_ip_more_costs_no_look_at_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of n floating IPs and n Services in one namespace."""
    count, calls = 120, Counter[str]()
    holds = Part.holds

    def counted(self: Part, address: object) -> bool:
        calls["holds"] += 1
        return holds(self, address)  # type: ignore[arg-type]

    fleet = build(A, iprange="10.1.1.1-10.1.1.250")
    for number in range(count):
        fleet.guests[A].add_service(f"10.1.1.{number + 1}", name=f"s-{number}")
    await start(fleet)
    monkeypatch.setattr(Part, "holds", counted)
    for number in range(count):
        fleet.ask(A, f"10.1.1.{number + 1}", name=f"web-{number}")
    await fleet.pass_time(RETRY)
    assert len(fleet.held()) == count
    assert calls["holds"] < 20 * count**2
