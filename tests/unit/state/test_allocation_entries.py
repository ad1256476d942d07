"""Who has an address, by reservation or by a status that names it."""

from fipop.ipam.addresses import parse_address
from fipop.kube.resources import FLOATING_IP_RANGES
from tests.harness.objects import (
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    held_by,
)
from tests.unit.state.entries import AWAY, counts, next_free


def test_an_address_is_used_by_its_reservation_and_by_a_status_that_names_it_without_one() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.4")],
        floating_ips=[build_floating_ip("lost", status=held_by(["10.0.0.2"]))],
        reservations=[build_reservation("10.0.0.1")],
    )
    assert next_free(cache.allocations) == "10.0.0.3"
    assert counts(cache.allocations) == (2, 2, 0, 0)


def test_who_only_wishes_for_an_address_does_not_have_it_but_the_guest_that_carries_it_may() -> None:
    """A store set back lacked the reservation; a stranger's new wish made the address look owned, and got it."""
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.9")],
        floating_ips=[
            build_floating_ip(
                "wish", namespace="tenant", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1"
            ),
            build_floating_ip(
                "own", namespace="c-m-1", annotations={"fiprange": "pool"}, ipaddress="10.0.0.2"
            ),
            build_floating_ip("had", namespace="c-m-2", status=held_by(["10.0.0.3"])),
        ],
        reservations=[build_reservation("10.0.0.4")],
    )

    def is_unowned(text: str) -> bool:
        return cache.allocations.is_unowned("pool", parse_address(text), carrier="c-m-1")

    assert {text: is_unowned(f"10.0.0.{text}") for text in "123456"} == {
        "1": True,
        "2": False,
        "3": False,
        "4": False,
        "5": True,
        "6": True,
    }
    assert not cache.allocations.is_unowned("pool", parse_address("10.0.1.1"), carrier="c-m-1")


def test_what_says_nothing_of_its_space_is_of_that_of_its_range_whichever_is_seen_first() -> None:
    """The predecessor's objects name no space, and a floating IP may be seen before its range."""
    wish = build_floating_ip("web", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(floating_ips=[wish])
    cache.observe(FLOATING_IP_RANGES, AWAY)
    assert next_free(cache.allocations) == "10.0.0.2"
