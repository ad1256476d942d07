"""The rule "handover": after a change of leader only what the last leader did not know is read before new addresses."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from fipop.api import names
from tests.harness.fleet import EVERY_GUEST, NAMESPACE, RANGES, WORKSPACE, Fleet, Running, build_fleet
from tests.operator.handover_fleet import LIMITS, live

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
WIDE = "10.0.0.9-10.0.0.13"
"""A range that has one address more, which it assigns first."""
W = "10.0.0.9"
LONG = 100.0
"""Longer than the clocks of Rancher and the API server differ, and than until the leader notes what it knows."""
AFTER_A_STOP, AFTER_A_KILL = 5.0, 20.0
SLOW_SECONDS = 5.0
"""For each request of a guest cluster: reading it takes longer than a change of leader."""
GATE_SECONDS = 60.0
UNREADABLE_SECONDS = 600.0
MAX_AGE = 300.0
LEASE = ("leases", NAMESPACE, names.LEASE_NAME)


def build(*guest_ids: str, **spec: Any) -> Fleet:
    return build_fleet(*guest_ids, **{"clusterSelector": EVERY_GUEST, **spec})


async def begin(fleet: Fleet) -> Fleet:
    """Have two replicas, one of which leads long enough to know everything, of guest clusters that are older."""
    await fleet.pass_time(LONG)
    await fleet.start()
    await fleet.start()
    await fleet.pass_time(LONG)
    return fleet


async def hand_over(
    fleet: Fleet, gap: Callable[[], object] = lambda: None, seconds: float = AFTER_A_STOP
) -> None:
    """Stop the leader; something happens before another one leads, and for so long from then on."""
    await fleet.stop(fleet.leader)
    gap()
    await fleet.pass_time(seconds)


def note(fleet: Fleet) -> dict[str, Any] | None:
    """Return what the Lease says that is known."""
    annotations = fleet.memory.objects[LEASE]["metadata"].get("annotations") or {}
    text = annotations.get(names.ANNOTATION_HANDOVER)
    return json.loads(text) if text else None


# What it is for


@pytest.mark.parametrize("hanging", [0, 1, 3])
@pytest.mark.parametrize(("end", "seconds"), [(Fleet.stop, AFTER_A_STOP), (Fleet.kill, AFTER_A_KILL)])
async def test_a_change_of_leader_delays_new_addresses_for_no_guest_cluster_that_the_last_leader_read(
    end: Callable[[Fleet, Running], Any], seconds: float, hanging: int
) -> None:
    fleet = await begin(build(A, *(f"c-m-{number}" for number in range(20))))
    for each in list(fleet.guests.values())[1 : 1 + hanging]:
        each.hanging = True
    former = fleet.leader
    await end(fleet, former)
    fleet.ask(A)
    await fleet.pass_time(seconds)
    assert fleet.addresses(A) == [X]
    assert fleet.leader is not former
    await fleet.pass_time(LONG)
    assert fleet.guests[A].addresses == {X}
    assert fleet.problems == []


async def test_a_guest_cluster_that_comes_while_the_leader_changes_has_its_address_at_once_among_many() -> (
    None
):
    """To read so many takes longer, at the pace of one Rancher; `make night` has 2,000 and 10,000."""
    assert await live(120, "SIGTERM", hanging=12) <= LIMITS["SIGTERM"][1]


async def test_guest_clusters_that_a_leader_gave_up_on_delay_new_addresses_once() -> None:
    fleet = build(A, B, C)
    fleet.guests[B].hanging = fleet.guests[C].hanging = True
    await begin(fleet)
    await hand_over(fleet, lambda: fleet.ask(A))
    assert fleet.addresses(A) == [X]


@pytest.mark.parametrize("away", ["hanging", "disconnected"])
async def test_what_a_guest_cluster_uses_by_hand_is_known_after_each_change_of_leader(away: str) -> None:
    fleet = await begin(build(A, B))
    fleet.guests[B].add_service(X)
    fleet.set_options(operateGuestClusterInterval="30")
    await fleet.pass_time(LONG)
    fleet.guests[B].hanging = True
    if away == "disconnected":
        fleet.disconnect(B)
    for name, address in (("web", Y), ("api", Z), ("mail", "10.0.0.13")):
        await fleet.start()
        await hand_over(fleet)
        fleet.ask(A, name=name)
        await fleet.settle()
        assert fleet.addresses(A, name) == [address]
        await fleet.pass_time(LONG)
    assert fleet.problems == []


async def test_what_one_range_shows_counts_in_each_range_of_its_address_space() -> None:
    """Also when the range that showed it is gone, and the guest cluster cannot be read."""
    fleet = build(A, B)
    fleet.guests[B].add_service(X)
    await begin(fleet)
    fleet.add_range("other", clusterSelector=EVERY_GUEST)  # the same addresses, which the older range assigns
    await fleet.pass_time(LONG)
    fleet.guests[B].hanging = True
    await hand_over(fleet)
    await fleet.pass_time(LONG)
    fleet.remove_range()
    await fleet.settle()
    fleet.ask(A, range_name="other")
    await fleet.pass_time(5)
    assert fleet.addresses(A) == [Y]


async def test_a_use_that_was_found_ten_seconds_ago_is_known() -> None:
    fleet = build(A, B)
    fleet.set_options(operateGuestClusterInterval="30")
    await begin(fleet)
    fleet.guests[B].add_service(X)
    while "reported" not in fleet.range_status():
        await fleet.pass_time(0.5)
    fleet.guests[B].hanging = True
    await fleet.kill(fleet.leader)
    fleet.ask(A)
    await fleet.pass_time(AFTER_A_KILL)
    assert fleet.addresses(A) == [Y]


# Who is waited for


async def test_a_guest_cluster_for_which_the_last_leader_waited_is_waited_for() -> None:
    fleet = build(A)
    fleet.add_guest(B, connected=False)
    fleet.guests[B].add_service(X)
    fleet.guests[B].hanging = True
    await begin(fleet)
    fleet.connect(B)
    connected_at = fleet.now.timestamp()
    await fleet.pass_time(35)
    fleet.ask(A, "192.0.2.1", name="refused")  # the ranges are counted
    await fleet.pass_time(5)
    assert note(fleet)["waits"] == [B]
    assert _timestamp(note(fleet)["at"]) > connected_at + 31, "not only as one that connected just now"
    await hand_over(fleet, lambda: fleet.ask(A))
    assert fleet.addresses(A) == []
    fleet.guests[B].hanging = False
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


async def test_a_guest_cluster_for_which_the_last_leader_waited_and_that_hangs_delays_new_addresses_by_a_minute() -> (
    None
):
    """Others are read meanwhile."""
    fleet = build(A, C)
    fleet.add_guest(B, connected=False).hanging = True
    await begin(fleet)
    fleet.connect(B)
    await fleet.pass_time(5)
    await hand_over(fleet, lambda: fleet.ask(A), seconds=GATE_SECONDS - 10)
    assert fleet.addresses(A) == []
    await fleet.pass_time(30)
    assert fleet.addresses(A) == [X]


async def test_a_guest_cluster_that_connected_in_the_gap_by_a_clock_that_is_behind_is_waited_for() -> None:
    fleet = build(A)
    fleet.add_guest(B, connected=False)
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    await begin(fleet)

    def gap() -> None:
        fleet.connect(B)
        found = fleet.memory.objects["clusters", "", B]
        at = (datetime.fromisoformat(note(fleet)["at"]) - timedelta(seconds=25)).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        conditions = [each | {"lastUpdateTime": at} for each in found["status"]["conditions"]]
        fleet.memory.put(
            ("clusters", "", B), {**found, "status": {**found["status"], "conditions": conditions}}
        )
        fleet.ask(A)

    await hand_over(fleet, gap)
    assert fleet.addresses(A) == []
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


def connect(fleet: Fleet) -> None:
    fleet.connect(B)


def bring_in(fleet: Fleet) -> None:
    fleet.add_guest(B, imported=True)


@pytest.mark.parametrize("come", [connect, bring_in])
async def test_a_guest_cluster_that_came_in_the_gap_is_waited_for(come: Callable[[Fleet], None]) -> None:
    fleet = build(A)
    guest = fleet.add_guest(B, connected=False)
    if come is bring_in:
        fleet.remove_guest(B)
    guest.add_service(X)
    guest.seconds = SLOW_SECONDS
    await begin(fleet)
    await fleet.pass_time(5)

    def gap() -> None:
        come(fleet)
        fleet.ask(A)

    await hand_over(fleet, gap)
    assert fleet.addresses(A) == []
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


async def test_a_guest_cluster_that_is_new_in_the_gap_is_not_waited_for() -> None:
    fleet = await begin(build(A))
    await fleet.pass_time(5)

    def gap() -> None:
        fleet.add_guest(B).hanging = True
        fleet.ask(A)

    await hand_over(fleet, gap)
    assert fleet.addresses(A) == [X]


async def test_with_more_than_sixteen_guest_clusters_to_wait_for_all_are_waited_for() -> None:
    fleet = build(A)
    late = [f"c-m-{number}" for number in range(17)]
    for each in late:
        fleet.add_guest(each, connected=False).hanging = True
    await begin(fleet)
    assert note(fleet) is not None
    for each in late[:16]:
        fleet.connect(each)
    await fleet.pass_time(5)
    assert note(fleet)["waits"] == sorted(late[:16])
    fleet.connect(late[16])
    await fleet.pass_time(5)
    assert note(fleet) is None


# When the statuses do not tell all


def widen(fleet: Fleet) -> None:
    fleet.change_range(iprange=WIDE)


def make_another(fleet: Fleet) -> None:
    fleet.remove_range()
    fleet.add_range(iprange=WIDE, clusterSelector=EVERY_GUEST)


@pytest.mark.parametrize("change", [widen, make_another])
async def test_a_range_that_changed_in_the_gap_has_every_guest_cluster_read(
    change: Callable[[Fleet], None],
) -> None:
    fleet = build(A, B)
    fleet.guests[B].add_service(W)
    await begin(fleet)
    fleet.guests[B].seconds = SLOW_SECONDS

    def gap() -> None:
        change(fleet)
        fleet.ask(A)

    await hand_over(fleet, gap, seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [X]


async def test_a_range_that_serves_another_harvester_cluster_since_the_gap_has_every_guest_cluster_read() -> (
    None
):
    fleet = build_fleet(A, B, C)
    fleet.remove_range()
    fleet.add_range(harvester="north")
    fleet.put_on_harvester(A, "south")
    fleet.put_on_harvester(B, "south")
    fleet.put_on_harvester(C, "north")
    fleet.guests[B].add_service(X)
    await begin(fleet)
    fleet.guests[B].seconds = SLOW_SECONDS

    def gap() -> None:
        annotations = {names.ANNOTATION_HARVESTER_CLUSTER: "south"}
        fleet.annotate((RANGES, "", "pool"), annotations)
        fleet.ask(A)

    await hand_over(fleet, gap, seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


@pytest.mark.parametrize("change", [widen, make_another])
async def test_a_range_that_changes_before_a_new_leader_tried_each_guest_cluster_assigns_nothing_until_then(
    change: Callable[[Fleet], None],
) -> None:
    fleet = build(A, B)
    fleet.guests[B].add_service(W)
    await begin(fleet)
    fleet.guests[B].seconds = SLOW_SECONDS
    await hand_over(fleet, seconds=3)
    change(fleet)
    await fleet.settle()
    fleet.ask(A)
    await fleet.settle()
    assert (fleet.addresses(A), note(fleet)) == ([], None)
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [X]


async def test_a_status_that_leaves_something_out_is_relied_on_by_no_leader() -> None:
    fleet = build(A, B, iprange="10.1.0.1-10.1.0.250")
    for number in range(1, 60):
        fleet.guests[B].add_service(f"10.1.0.{number}", name=f"web-{number}")
    fleet.set_options(operateGuestClusterInterval="30")
    await begin(fleet)
    assert note(fleet) is not None
    addresses = [{"type": "InternalIP", "address": "10.1.0.100"}]
    fleet.guests[B].put(("nodes", "", "n1"), {"metadata": {"name": "n1"}, "status": {"addresses": addresses}})
    for number in range(60, 65):
        fleet.guests[B].add_service(f"10.1.0.{number}", name=f"web-{number}")
    await fleet.pass_time(LONG)
    assert (fleet.range_status()["reportedCount"], note(fleet)) == (65, None)
    fleet.guests[B].remove_service("web-1")
    await fleet.pass_time(LONG)
    assert note(fleet) is not None


async def test_a_status_that_cannot_be_written_is_relied_on_by_no_leader() -> None:
    fleet = build(A, B)
    fleet.set_options(operateGuestClusterInterval="30")
    await begin(fleet)
    fleet.leader.link.refuse = lambda verb, target, _request: verb == "patch" and target.plural == RANGES
    fleet.guests[B].add_service(X)
    await fleet.pass_time(40)
    assert note(fleet) is None
    fleet.guests[B].seconds = SLOW_SECONDS
    await hand_over(fleet, lambda: fleet.ask(A))
    assert fleet.addresses(A) == []
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


async def test_what_waits_to_be_written_is_relied_on_by_no_leader() -> None:
    """A use that is found right after another one is written 10 s after it."""
    fleet = build(A, B)
    fleet.set_options(operateGuestClusterInterval="30")
    await begin(fleet)
    fleet.guests[B].add_service(X)
    while "reported" not in fleet.range_status():
        await fleet.pass_time(0.1)
    fleet.guests[B].add_service(X, "10.0.0.13")
    fleet.ask(B)  # it is visited
    await fleet.pass_time(1)
    found_at = fleet.now.timestamp()
    for number in range(60):
        fleet.ask(A, "192.0.2.1", name=f"refused-{number}")  # the ranges are counted
        await fleet.pass_time(0.5)
        if fleet.range_status()["reportedCount"] == 2:
            break
        assert _timestamp(note(fleet)["at"]) < found_at
    assert number > 10


# Old knowledge


async def test_what_was_known_five_minutes_ago_is_read_again() -> None:
    fleet = await begin(build(A, B))
    for each in fleet.operators:
        await fleet.stop(each)
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    fleet.ask(A)
    await fleet.pass_time(MAX_AGE + 1)
    await fleet.start(seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


async def test_a_series_of_restarts_does_not_make_old_knowledge_young() -> None:
    """Each leader ends before it has tried every guest cluster."""
    fleet = await begin(build(A, B))
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = 9.0
    notes = []
    for _ in range(28):
        await fleet.start(seconds=1)
        await hand_over(fleet, seconds=11)
        notes.append(note(fleet))
    assert len({each["at"] for each in notes if each is not None}) == 1
    assert notes[-1] is None
    fleet.ask(A)
    await fleet.settle()
    assert fleet.addresses(A) == []
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


@pytest.mark.parametrize("away", ["hanging", "slow"])
async def test_a_leader_that_is_stopped_while_it_reads_passes_on_what_it_found(away: str) -> None:
    """A reading that was broken off is no try: two replicas are replaced one after the other."""
    fleet = await begin(build(A, B, C))
    fleet.guests[B].hanging, fleet.guests[B].seconds = away == "hanging", 9.0
    notes = []
    for _ in range(3):
        await fleet.start(seconds=1)
        await hand_over(fleet, seconds=3)
        notes.append(note(fleet))
    assert notes == [notes[0]] * 3
    assert notes[0] is not None
    await hand_over(fleet, lambda: fleet.ask(A))
    assert fleet.addresses(A) == [X]


async def test_a_series_of_restarts_while_rancher_is_away_does_not_make_old_knowledge_young() -> None:
    """Each leader tries every guest cluster, and reads none."""
    fleet = await begin(build(A, B))
    for each in fleet.guests.values():
        each.status = 502
    fleet.guests[B].add_service(X)
    notes = []
    for _ in range(9):
        await fleet.start(seconds=1)
        await hand_over(fleet, seconds=40)
        notes.append(note(fleet))
    assert len({each["at"] for each in notes if each is not None}) == 1
    assert notes[-1] is None
    for each in fleet.guests.values():
        each.status, each.seconds = 0, SLOW_SECONDS
    await fleet.start(seconds=1)
    await hand_over(fleet, lambda: fleet.ask(A), seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


async def test_a_leader_that_could_read_no_guest_cluster_hands_nothing_over() -> None:
    fleet = build(A, B)
    for each in fleet.guests.values():
        each.status = 502
    fleet.guests[B].add_service(X)
    await begin(fleet)
    await fleet.pass_time(UNREADABLE_SECONDS)
    assert note(fleet) is None
    for each in fleet.guests.values():
        each.status, each.seconds = 0, SLOW_SECONDS
    await hand_over(fleet, lambda: fleet.ask(A), seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


# A Lease that is not as it was written


async def test_a_leader_that_finds_its_lease_changed_hands_nothing_over() -> None:
    fleet = await begin(build(A, B))
    before = fleet.memory.objects[LEASE]
    assert note(fleet) is not None
    await fleet.pass_time(10)
    fleet.memory.put(LEASE, before)  # as from a backup
    await fleet.pass_time(3)
    assert note(fleet) is None
    await fleet.pass_time(2 * LONG)
    assert note(fleet) is None
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    await hand_over(fleet, lambda: fleet.ask(A))
    assert fleet.addresses(A) == []
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


@pytest.mark.parametrize("waits", [None, B, {B: 1}, [B, 1]])
async def test_what_a_lease_says_without_a_list_of_who_is_waited_for_is_relied_on_by_no_leader(
    waits: object,
) -> None:
    fleet = await begin(build(A, B))
    for each in fleet.operators:
        await fleet.stop(each)
    found = {name: each for name, each in (note(fleet) or {}).items() if name != "waits"}
    found |= {"waits": waits} if waits is not None else {}
    fleet.annotate(LEASE, {names.ANNOTATION_HANDOVER: json.dumps(found)})
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    fleet.ask(A)
    await fleet.start(seconds=GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


@pytest.mark.parametrize("verb", ["replace", "get"])
async def test_a_renewal_whose_answer_is_lost_changes_nothing(verb: str) -> None:
    fleet = await begin(build(A, B))
    for _ in range(10):
        fleet.leader.link.lost["replace"] = 1
        fleet.leader.link.lost[verb] = 1
        await fleet.pass_time(10)
        assert note(fleet) is not None


async def test_a_leader_that_ends_for_a_fault_hands_nothing_over() -> None:
    """What it knew may be wrong: kube-fip-operator is back, or the store is a restored one."""
    fleet = await begin(build(A, B))
    fleet.scale_predecessor(1)
    await fleet.pass_time(10)
    assert note(fleet) is None
    fleet.guests[B].add_service(X)
    fleet.guests[B].seconds = SLOW_SECONDS
    fleet.ask(A)
    fleet.scale_predecessor(0)
    await fleet.pass_time(GATE_SECONDS)
    assert fleet.addresses(A) == [Y]


# What it costs


async def test_what_is_known_goes_with_renewals_and_changes_every_thirty_seconds() -> None:
    fleet = await begin(build(A, B))
    renewals, notes = [], []
    fleet.memory.listeners.append(
        lambda commit: commit.key == LEASE and (renewals.append(commit), notes.append(note(fleet)))
    )
    version = fleet.memory.version
    await fleet.pass_time(600)
    assert len(renewals) == 300
    assert fleet.commits_since(version) == []
    assert len({each["at"] for each in notes}) <= 21
    ages = [
        each.at.timestamp() - _timestamp(found["at"]) for each, found in zip(renewals, notes, strict=True)
    ]
    assert max(ages) <= 95


async def test_what_is_known_changes_every_thirty_seconds_in_a_busy_fleet_too() -> None:
    fleet = await begin(build(A))
    notes = set()
    for number in range(120):
        fleet.ask(A, "192.0.2.1", name=f"refused-{number}")  # the ranges are counted
        await fleet.pass_time(1)
        notes.add(note(fleet)["at"])
    assert len(notes) <= 1 + 120 / 30


@pytest.mark.parametrize("gone", [0, 8, 200])
async def test_the_lease_is_smaller_than_four_kibibytes(gone: int) -> None:
    """Also if hundreds of guest clusters stand on what is gone, each on another thing or many on one."""
    long = [f"c-m-{number:02}-{'x' * 54}" for number in range(200)]
    fleet = build(A)
    for each in long[:16]:
        fleet.add_guest(each, connected=False).hanging = True
    for each in long[16:]:
        fleet.add_guest(each).hanging = True
    for each in long:
        fleet.put_on_harvester(each, "hv1")
    for each in long[:gone]:
        fleet.memory.remove(("harvesterconfigs", WORKSPACE, f"nodes-{each}"))
    if gone < len(long):
        fleet.memory.remove(("secrets", "cattle-global-data", "cc-hv1"))
    await fleet.pass_time(LONG)
    await fleet.start()
    sizes = []
    fleet.memory.listeners.append(
        lambda commit: commit.key == LEASE and sizes.append(len(json.dumps(commit.obj)))
    )
    await fleet.pass_time(2 * LONG)
    for each in long[:16]:
        fleet.connect(each)
    await fleet.pass_time(10)
    assert note(fleet)["waits"] == sorted(long[:16])
    assert max(sizes) < 4096
    problems = fleet.problems_on_lease()
    assert sum(len(each["guests"]) + each["more"] for each in problems) == len(long)


def _timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
