"""What the metrics are told of: the cache always, what a leader knows only while it leads."""

from typing import Any

import pytest

from fipop.ipam.addresses import Family
from fipop.ipam.allocator import RangeUsage
from fipop.operator.snapshot import build_snapshot
from tests.harness.small_operator import SmallOperator

A = "c-m-a"


async def test_a_leader_tells_of_ranges_guests_and_floating_ips() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    found = build_snapshot(operator.cache, operator.manager)
    (pool,) = found.ranges
    assert pool.usage is not None
    assert (pool.range.name, pool.usage.whole.total, pool.usage.whole.used) == ("pool", 4, 1)
    assert [each.guest.id for each in found.guests] == [A]
    assert sum((found.floating_ips or {}).values()) == 1
    assert found.gives_out is True


async def test_a_leader_shows_which_ranges_wait_for_guests() -> None:
    operator = SmallOperator()
    operator.add_range("blue", clusterSelector={"matchLabels": {"net": "blue"}})
    operator.add_range("rest", "10.1.0.1-10.1.0.9")
    operator.add_guest(A)
    await operator.start()
    operator.manager.gate.wait_for([A], 60.0)
    assert [operator.manager.gate.is_open(name) for name in ("blue", "rest")] == [True, False]
    found = {
        each.range.name: each.waits_for_guests
        for each in build_snapshot(operator.cache, operator.manager).ranges
    }
    assert found == {"blue": False, "rest": True}


async def test_who_stands_by_tells_of_no_guest_and_no_queue() -> None:
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    found = build_snapshot(operator.cache, None)
    assert [each.range.name for each in found.ranges] == ["pool"]
    nothing: dict[str, Any] = {"guests": (), "withheld_releases": 0, "rollout": None}
    assert {name: getattr(found, name) for name in nothing} == nothing
    assert set(found.queue_depths.values()) == {0}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (True, "Ready", {"IPv4": 4})),
        ({"iprange": "fd00::/126"}, (True, "Ready", {"IPv6": 3})),
        ({"iprange": "10.0.0.1-10.0.0.4,fd00::/126"}, (True, "Ready", {"IPv4": 4, "IPv6": 3})),
        ({"draining": True}, (False, "Draining", {"IPv4": 4})),
        ({"iprange": "nonsense"}, (False, "Invalid", {})),
    ],
    ids=["IPv4", "IPv6", "dual stack", "draining", "invalid"],
)
async def test_a_range_has_addresses_of_its_families_and_says_whether_it_assigns_them(
    spec: dict[str, Any], expected: tuple[bool, str, dict[str, int]]
) -> None:
    operator = SmallOperator()
    operator.add_range(**spec)
    await operator.start()
    (found,) = build_snapshot(operator.cache, operator.manager).ranges
    usage = found.usage or RangeUsage()
    counts = {Family.IPV4: usage.ipv4, Family.IPV6: usage.ipv6}
    totals = {each.label: counts[each].total for each in found.families}
    assert (found.ready.is_true, found.ready.reason, totals) == expected
