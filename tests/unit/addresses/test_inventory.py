"""What counts as in use, and how ranges are counted."""

from typing import Any

import pytest

from fipop.addresses.in_use import AddressUser, InUseAddresses, Source, build_parts
from fipop.addresses.inventory import Inventory
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.ipam.errors import IpamError
from fipop.ipam.ranges import AddressCounts
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from tests.harness.objects import (
    NOW,
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    held_by,
    inventory_of,
    newer,
)

POOL = build_range("pool", "10.0.0.1-10.0.0.4")
UNTIL = "2026-03-02T00:00:00Z"


def following(inventory: Inventory, name: str = "pool") -> str:
    """Return the address that a range assigns next, or why there is none."""
    found = inventory.next_free(name, Family.IPV4)
    return str(found) if isinstance(found, Address) else type(found).__name__


def usage(inventory: Inventory, name: str = "pool") -> AddressCounts:
    return inventory.count()[name].whole


def listed(inventory: Inventory, name: str = "pool") -> list[str]:
    return [str(each) for each in inventory.free_addresses(name, Family.IPV4)]


def edited(found: Json, iprange: str, generation: int) -> Json:
    return newer(
        {**found, "metadata": found["metadata"] | {"generation": generation}, "spec": {"iprange": iprange}}
    )


@pytest.mark.parametrize(
    ("objects", "counted"),
    [
        ({"reservations": [build_reservation("10.0.0.1")]}, AddressCounts(used=1, free=3)),
        (
            {"reservations": [build_reservation("10.0.0.1", quarantined_until=UNTIL)]},
            AddressCounts(quarantined=1, free=3),
        ),
        (
            {"floating_ips": [build_floating_ip("web", status=held_by(["10.0.0.1"]))]},
            AddressCounts(used=1, free=3),
        ),
        (
            {
                "floating_ips": [
                    build_floating_ip("web", ipaddress="10.0.0.1", annotations={"fiprange": "pool"})
                ]
            },
            AddressCounts(used=1, free=3),
        ),
        (
            {
                "floating_ips": [build_floating_ip("web", status=held_by(["10.0.0.1"]))],
                "reservations": [build_reservation("10.0.0.1")],
            },
            AddressCounts(used=1, free=3),
        ),
        ({"reservations": [build_reservation("10.0.0.1", range_name="other")]}, AddressCounts(free=3)),
    ],
    ids=["held", "in quarantine", "named by a status", "named by a first spec", "once", "of another range"],
)
def test_an_address_is_in_use_by(objects: dict[str, Any], counted: AddressCounts) -> None:
    inventory = inventory_of(ranges=[POOL], **objects)
    assert usage(inventory) == counted
    assert listed(inventory) == ["10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert following(inventory) == "10.0.0.2"


@pytest.mark.parametrize(
    "objects",
    [
        {"reservations": [build_reservation("10.0.0.1", space="lab")]},
        {"floating_ips": [build_floating_ip("web", status=held_by(["10.0.0.1"], space="lab"))]},
        {
            "floating_ips": [
                build_floating_ip(
                    "web", ipaddress="10.0.0.1", status=held_by(["10.0.0.9"], range_name="gone")
                )
            ]
        },
    ],
    ids=["reserved in another space", "named in another space", "asked for by a spec after the first status"],
)
def test_an_address_is_not_in_use_by(objects: dict[str, Any]) -> None:
    assert following(inventory_of(ranges=[POOL], **objects)) == "10.0.0.1"


def test_what_a_range_does_not_assign_counts_outside_of_it() -> None:
    """kube-fip-operator forgot all allocations when a range was deleted and created again."""
    inside, outside = build_reservation("10.0.0.1"), build_reservation("192.0.2.1", "far")
    waiting = build_reservation("192.0.2.2", "gone", quarantined_until=UNTIL)
    inventory = inventory_of(ranges=[POOL], reservations=[inside, outside, waiting])
    assert usage(inventory) == AddressCounts(used=1, free=3, out_of_range=2)
    inventory.observe(FLOATING_IP_RANGES, edited(POOL, "10.0.0.3-10.0.0.4", 2))
    assert usage(inventory) == AddressCounts(free=2, out_of_range=3)
    inventory.observe(FLOATING_IP_RANGES, edited(POOL, "10.0.0.1-10.0.0.4", 3))
    assert usage(inventory) == AddressCounts(used=1, free=3, out_of_range=2)


def test_what_an_older_range_assigns_counts_where_its_reservation_says() -> None:
    old = build_range("old", "10.0.0.4/30", created="2025-01-01T00:00:00Z")
    young = build_range("young", "10.0.0.0/29")
    inventory = inventory_of(
        ranges=[old, young], reservations=[build_reservation("10.0.0.5", range_name="young")]
    )
    assert usage(inventory, "young") == AddressCounts(free=4, out_of_range=1)
    assert usage(inventory, "old") == AddressCounts(free=1)
    assert following(inventory, "old") == "10.0.0.6"


def test_the_families_of_a_range_are_counted_apart() -> None:
    both = build_range("pool", "10.0.0.1-10.0.0.4,fd00::1-fd00::3")
    inventory = inventory_of(ranges=[both], reservations=[build_reservation("fd00::2")])
    count = inventory.count()["pool"]
    assert (count.ipv4, count.ipv6) == (AddressCounts(free=4), AddressCounts(used=1, free=2))
    assert count.whole == AddressCounts(used=1, free=6)


def test_an_address_is_free_as_soon_as_its_last_user_leaves() -> None:
    held = build_reservation("10.0.0.1")
    named: Json = build_floating_ip("web", status=held_by(["10.0.0.1"]))
    inventory = inventory_of(ranges=[POOL], reservations=[held], floating_ips=[named])
    assert following(inventory) == "10.0.0.2"
    found = inventory.reservation("default", parse_address("10.0.0.1"))
    assert found is not None
    inventory.forget(FLOATING_IP_RESERVATIONS, found)
    assert following(inventory) == "10.0.0.2", "a status names it"
    floating_ip = inventory.floating_ips.get("c-m-1", "web")
    assert floating_ip is not None
    inventory.forget(FLOATING_IPS, floating_ip)
    assert following(inventory) == "10.0.0.1"


def test_a_range_that_cannot_be_read_says_why_and_is_not_counted() -> None:
    broken = build_range("broken", "10.0.0.9-10.0.0.1")
    inventory = inventory_of(ranges=[broken])
    assert isinstance(inventory.problems["broken"], IpamError)
    assert inventory.count() == {}
    inventory.observe(FLOATING_IP_RANGES, edited(broken, "10.0.0.1", 2))
    assert inventory.problems == {}
    assert usage(inventory, "broken") == AddressCounts(free=1)


def test_an_address_that_only_a_guest_cluster_uses_is_not_free_and_counts_as_quarantined() -> None:
    inventory = inventory_of(ranges=[POOL, build_range("other", "10.0.1.1")])
    take_report(inventory, "c-m-9", "10.0.0.1", "192.0.2.1")
    assert usage(inventory) == AddressCounts(quarantined=1, free=3)
    assert inventory.find_reported("pool") == {parse_address("10.0.0.1"): {"c-m-9"}}
    assert following(inventory) == "10.0.0.2"
    take_report(inventory, "c-m-9")
    assert following(inventory) == "10.0.0.1"


def test_a_reported_address_that_is_reserved_or_named_counts_once() -> None:
    inventory = inventory_of(
        ranges=[POOL],
        reservations=[build_reservation("10.0.0.1")],
        floating_ips=[build_floating_ip("api", status=held_by(["10.0.0.2"]))],
    )
    take_report(inventory, "c-m-9", "10.0.0.1", "10.0.0.2")
    assert usage(inventory) == AddressCounts(used=2, free=2)
    assert inventory.find_reported("pool") == {}


def test_the_statuses_of_ranges_say_what_the_last_leader_knew() -> None:
    reported = [
        {"address": "10.0.0.1", "guest": "c-m-9"},
        {"address": "10.0.0.2", "guest": "c-m-gone"},
        {"address": "junk", "guest": "c-m-9"},
    ]
    pool = {**POOL, "status": {"reported": reported}}
    lab = build_range("lab", "10.0.0.1-10.0.0.4", addressSpace="lab")
    inventory = inventory_of(ranges=[pool, lab], reads_guests=False)
    inventory.recall_reports(lambda guest_id: guest_id != "c-m-gone")
    assert usage(inventory) == AddressCounts(quarantined=1, free=3)
    assert usage(inventory, "lab") == AddressCounts(free=4)


def take_report(inventory: Inventory, guest_id: str, *addresses: str) -> None:
    """Take in what a visit of a guest cluster found."""
    user = AddressUser(kind="Service", namespace="shop", name="web")
    found = InUseAddresses(build_parts(user, map(parse_address, addresses)))
    inventory.reports.take(guest_id, Source.OBJECTS, NOW, found)
