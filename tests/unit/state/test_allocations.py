"""Who uses an address: by a reservation, a claim under way, or a name; and all of it after any history."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.ipam.addresses import parse_address
from fipop.ipam.errors import RangeFullError
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.state.allocations import Allocations
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    held_by,
    newer,
)
from tests.unit.state.entries import AWAY, V4, claim_of, counts, next_free


def test_choosing_is_not_taking() -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4")])
    assert [next_free(cache.allocations) for _ in range(3)] == ["10.0.0.1"] * 3
    assert counts(cache.allocations) == (0, 4, 0, 0)


def test_the_addresses_in_the_spec_of_an_object_that_was_never_looked_at_are_spoken_for() -> None:
    inherited = build_floating_ip("old", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.2")], floating_ips=[inherited])
    assert next_free(cache.allocations) == "10.0.0.2"
    refused = {"observedGeneration": 1, "conditions": []}
    cache.observe(FLOATING_IPS, newer(inherited, status=refused))
    assert next_free(cache.allocations) == "10.0.0.1", "a wish that was looked at and refused holds nothing"


def test_an_address_is_used_by_its_reservation_and_by_a_status_that_names_it_without_one() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.4")],
        floating_ips=[build_floating_ip("lost", status=held_by(["10.0.0.2"]))],
        reservations=[build_reservation("10.0.0.1")],
    )
    assert next_free(cache.allocations) == "10.0.0.3"
    assert counts(cache.allocations) == (2, 2, 0, 0)


def test_who_only_wishes_for_an_address_does_not_have_it() -> None:
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
        return cache.allocations.is_unowned("pool", parse_address(text))

    assert {text: is_unowned(f"10.0.0.{text}") for text in "123456"} == {
        "1": True,
        "2": True,
        "3": False,
        "4": False,
        "5": True,
        "6": True,
    }
    assert not cache.allocations.is_unowned("pool", parse_address("10.0.1.1"))


def test_an_address_without_a_reservation_counts_for_the_status_that_names_it_before_a_spec() -> None:
    wish = build_floating_ip("a", annotations={"fiprange": "other"}, ipaddress="10.0.0.1")
    holder = build_floating_ip("b", status=held_by(["10.0.0.1"]))
    ranges = [build_range("pool", "10.0.0.1-10.0.0.2"), build_range("other", "10.1.0.1")]
    cache = cache_of(ranges=ranges, floating_ips=[wish, holder])
    assert counts(cache.allocations) == (1, 1, 0, 0)
    assert counts(cache.allocations, "other") == (0, 1, 0, 0)


def test_what_says_nothing_of_its_space_is_of_that_of_its_range_whichever_is_seen_first() -> None:
    """The predecessor's objects name no space, and a floating IP may be seen before its range."""
    wish = build_floating_ip("web", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(floating_ips=[wish])
    cache.observe(FLOATING_IP_RANGES, AWAY)
    assert next_free(cache.allocations) == "10.0.0.2"


# Claims


def test_an_open_claim_keeps_its_address_from_others_and_is_asked_for_again() -> None:
    allocations = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4")]).allocations
    claim = claim_of("10.0.0.1")
    allocations.begin_claim(claim)
    assert next_free(allocations) == "10.0.0.2"
    assert allocations.unsettled(claim.owner.key, "pool", V4) == parse_address("10.0.0.1")
    assert allocations.unsettled(claim.owner.key, "other", V4) is None
    allocations.finish_claim(claim)
    assert next_free(allocations) == "10.0.0.1"
    assert allocations.unsettled(claim.owner.key, "pool", V4) is None


def test_the_open_claims_of_an_owner_that_is_gone_keep_nothing() -> None:
    allocations = cache_of(ranges=[build_range("pool", "10.0.0.1,fd00::1")]).allocations
    for address in ("10.0.0.1", "fd00::1"):
        allocations.begin_claim(claim_of(address))
    allocations.cancel_claims(("c-m-1", "web"))
    assert counts(allocations) == (0, 2, 0, 0)


def test_a_later_claim_of_the_same_family_takes_the_place_of_an_open_one() -> None:
    allocations = cache_of(
        ranges=[build_range("pool", "10.0.0.1"), build_range("other", "10.1.0.1")]
    ).allocations
    allocations.begin_claim(claim_of("10.0.0.1"))
    allocations.begin_claim(claim_of("10.1.0.1", "other"))
    assert counts(allocations) == (0, 1, 0, 0)
    assert counts(allocations, "other") == (1, 0, 0, 0)


def test_a_later_claim_of_the_same_address_in_another_space_takes_the_place_of_an_open_one() -> None:
    """A range changed its space between a claim that timed out and its retry: the old space kept the address."""
    allocations = cache_of(
        ranges=[build_range("pool", "10.0.0.1", addressSpace="lab"), build_range("other", "10.0.0.1")]
    ).allocations
    allocations.begin_claim(claim_of("10.0.0.1"))
    allocations.begin_claim(claim_of("10.0.0.1", space="lab"))
    assert counts(allocations, "other") == (0, 1, 0, 0)
    assert counts(allocations, "pool") == (1, 0, 0, 0)


# Any history

hosts = st.integers(1, 6)


def _events() -> st.SearchStrategy[tuple[Any, Json]]:
    ranges = st.builds(
        lambda name, first, last, space, draining: (
            FLOATING_IP_RANGES,
            build_range(
                name,
                f"10.0.0.{min(first, last)}-10.0.0.{max(first, last)}",
                addressSpace=space,
                draining=draining,
            ),
        ),
        st.sampled_from(["pool", "other"]),
        hosts,
        hosts,
        st.sampled_from(["default", "away"]),
        st.booleans(),
    )
    reservations = st.builds(
        lambda host, owner, until: (
            FLOATING_IP_RESERVATIONS,
            build_reservation(f"10.0.0.{host}", owner, quarantined_until=until),
        ),
        hosts,
        st.sampled_from(["me", "web"]),
        st.sampled_from([None, "2026-03-01T12:00:00Z"]),
    )
    floating_ips = st.builds(
        lambda name, host, seen: (
            FLOATING_IPS,
            build_floating_ip(
                name, ipaddress=f"10.0.0.{host}", status=held_by([f"10.0.0.{host}"]) if seen else {}
            ),
        ),
        st.sampled_from(["me", "web"]),
        hosts,
        st.booleans(),
    )
    return st.one_of(ranges, reservations, floating_ips)


@settings(max_examples=150)
@given(events=st.lists(_events(), max_size=14), gone=st.sets(st.integers(0, 13)))
def test_the_books_after_any_history_are_those_of_a_fresh_start_with_what_is_left(
    events: list[tuple[Any, Json]], gone: set[int]
) -> None:
    cache = cache_of()
    living: dict[tuple[str, str], tuple[Any, Json]] = {}
    for index, (resource, template) in enumerate(events):
        obj = newer(template)
        cache.observe(resource, obj)
        key = (resource.kind, obj["metadata"]["name"])
        living[key] = (resource, obj)
        if index in gone:
            found = cache.store_of(resource).get(
                obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            )
            cache.forget(resource, found)
            del living[key]
    fresh = cache_of()
    for resource, obj in reversed(list(living.values())):
        fresh.observe(resource, obj)
    for name in ("pool", "other"):
        assert cache.allocations.ranges.usage(name) == fresh.allocations.ranges.usage(name)
        assert cache.allocations.ranges.families(name) == fresh.allocations.ranges.families(name)
        if cache.allocations.ranges.usage(name) is None:
            continue
        assert counts(cache.allocations, name) == counts(fresh.allocations, name)
        assert cache.allocations.ranges.conflicts(name) == fresh.allocations.ranges.conflicts(name)
        assert _choice(cache.allocations, name) == _choice(fresh.allocations, name)


def _choice(allocations: Allocations, range_name: str) -> str:
    try:
        return next_free(allocations, range_name)
    except RangeFullError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must say the same
        return repr(error)
