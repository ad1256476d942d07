"""What a guest cluster costs does not depend on how many others there are, and a burst not on the ranges (limits)."""

import sys
from types import FrameType
from typing import Self

from fipop.interfaces import ApiRequest
from fipop.metrics.counters import REGISTRY
from tests.harness.fleet import EVERY_GUEST, Fleet
from tests.harness.history import RANGES

FEW, MANY = 5, 50
NEW = "c-m-new"
HOUR = "3600"
"""Until the next visit of guest clusters that nothing changed."""


class Calls:
    """Counts the calls of Python functions, and the turns of generators, from its `with` on."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event == "call"

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


def count_reconciled() -> int:
    """Count how often an object was reconciled, by the metric."""
    samples = (each for family in REGISTRY.collect() for each in family.samples)
    return int(sum(each.value for each in samples if each.name == "fipop_reconcile_duration_seconds_count"))


def build_served(fleet: Fleet, count: int) -> None:
    """Have guest clusters that have their addresses."""
    for number in range(count):
        guest_id, address = f"c-m-{number}", f"10.0.{10 + number // 250}.{1 + number % 250}"
        guest = fleet.add_guest(guest_id)
        guest.add_service(address)
        guest.write_config_map(cidr_global=f"{address}/32")
        fleet.ask(guest_id, has=address)
        fleet.reserve(address, guest_id)


async def calls_of_a_new_guest_cluster(others: int) -> int:
    """Count what a guest cluster costs that comes, gets its address, and is visited."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval=HOUR)
    fleet.add_range(iprange="10.0.0.10-10.0.99.0")
    build_served(fleet, others)
    await fleet.start(seconds=30, resync_seconds=1e6)
    with Calls() as idle:
        await fleet.pass_time(15)
    with Calls() as calls:
        fleet.add_guest(NEW)
        fleet.ask(NEW)
        await fleet.pass_time(15)
    assert len(fleet.guests[NEW].addresses) == 1
    return calls.count - idle.count


async def test_a_new_guest_cluster_costs_no_more_among_many_than_among_few() -> None:
    await calls_of_a_new_guest_cluster(1)  # what is imported and built once, it costs only once
    few, many = await calls_of_a_new_guest_cluster(FEW), await calls_of_a_new_guest_cluster(MANY)
    # The range is counted again, which is some calls for each address; and visits of others can fall into that time.
    assert many < 1.7 * few, f"{few} calls among {FEW} others, {many} among {MANY}"


async def reconciled_before(guest_id: str) -> int:
    """Count what is reconciled after a start before the floating IP of a guest cluster is made that has none."""
    fleet = Fleet()
    fleet.add_range(iprange="10.0.0.10-10.0.99.0", clusterSelector=EVERY_GUEST)
    build_served(fleet, MANY)
    fleet.add_guest(guest_id, is_served=True)
    found: list[int] = []

    async def note(request: ApiRequest) -> None:
        if request.method == "POST" and f"/namespaces/{guest_id}/floatingips" in request.path:
            found.append(count_reconciled())

    before = count_reconciled()
    fleet.begin()
    fleet.link.before = note
    await fleet.pass_time(15)
    return found[0] - before


async def test_after_a_start_who_has_no_floating_ip_waits_for_nobody_who_has_one() -> None:
    # In the order of their names.
    first, last = await reconciled_before("c-m--first"), await reconciled_before("c-m-last")
    assert last <= first + FEW


async def test_in_a_burst_the_status_of_a_range_is_written_once_a_second_at_most() -> None:
    fleet = Fleet()
    fleet.add_guest(NEW)
    for number in range(5):
        fleet.add_range(f"range-{number}", f"10.{number}.0.0/24")
    await fleet.start()
    version = fleet.memory.version
    for number in range(40):  # in two seconds
        fleet.ask(NEW, name=f"web-{number}", range_name=f"range-{number % 5}")
        await fleet.pass_time(0.05)
    await fleet.pass_time(1.5)
    written = [each.key[2] for each in fleet.commits_since(version) if each.key[0] == RANGES]
    for number in range(5):
        assert written.count(f"range-{number}") <= 4
        found = fleet.memory.objects[RANGES, "", f"range-{number}"]
        assert found["status"]["capacity"]["used"] == 8
