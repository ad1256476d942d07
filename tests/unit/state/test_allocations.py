"""Whatever order the world tells things in, the books come to the same."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.api.models import Owner, Requested
from fipop.errors import AddressSpaceChangedError, RangeFullError
from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.state.allocations import AllocationIndex
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    held_by,
    newer,
)

V4, V6 = Family.IPV4, Family.IPV6
ME = ("c-m-1", "me")


def next_free(allocations: AllocationIndex, range_name: str = "pool", family: Family = V4) -> str:
    return format_address(allocations.next_free(range_name, family, ME))


def claim_of(address: str, range_name: str = "pool", owner: str = "web", space: str = "default") -> Claim:
    return Claim(
        space=space,
        address=parse_address(address),
        range=range_name,
        owner=Owner(namespace="c-m-1", name=owner, uid="uid"),
        requested=Requested.DYNAMIC,
    )


def counts(allocations: AllocationIndex, range_name: str = "pool") -> tuple[int, int, int, int]:
    capacity = allocations.ranges.capacity(range_name)
    assert capacity is not None
    whole = capacity.whole
    assert whole.total == whole.used + whole.free + whole.quarantined
    return whole.used, whole.free, whole.quarantined, whole.out_of_range


def test_an_address_is_used_by_its_reservation_and_by_a_status_that_names_it_without_one() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.4")],
        floating_ips=[build_floating_ip("lost", status=held_by(["10.0.0.2"]))],
        reservations=[build_reservation("10.0.0.1")],
    )
    assert next_free(cache.allocations) == "10.0.0.3"
    assert counts(cache.allocations) == (2, 2, 0, 0)


def test_choosing_is_not_taking() -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4")])
    assert [next_free(cache.allocations) for _ in range(3)] == ["10.0.0.1"] * 3
    assert counts(cache.allocations) == (0, 4, 0, 0)


def test_an_open_claim_keeps_its_address_from_others_and_is_asked_for_again() -> None:
    allocations = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4")]).allocations
    claim = claim_of("10.0.0.1")
    allocations.expect(claim)
    assert next_free(allocations) == "10.0.0.2"
    assert allocations.unsettled(claim.owner.key, "pool", V4) == parse_address("10.0.0.1")
    assert allocations.unsettled(claim.owner.key, "other", V4) is None
    allocations.settle(claim)
    assert next_free(allocations) == "10.0.0.1"
    assert allocations.unsettled(claim.owner.key, "pool", V4) is None


def test_the_open_claims_of_an_owner_that_is_gone_keep_nothing() -> None:
    allocations = cache_of(ranges=[build_range("pool", "10.0.0.1,fd00::1")]).allocations
    for address in ("10.0.0.1", "fd00::1"):
        allocations.expect(claim_of(address))
    allocations.abandon(("c-m-1", "web"))
    assert counts(allocations) == (0, 2, 0, 0)


def test_a_later_claim_of_the_same_family_takes_the_place_of_an_open_one() -> None:
    allocations = cache_of(
        ranges=[build_range("pool", "10.0.0.1"), build_range("other", "10.1.0.1")]
    ).allocations
    allocations.expect(claim_of("10.0.0.1"))
    allocations.expect(claim_of("10.1.0.1", "other"))
    assert counts(allocations) == (0, 1, 0, 0)
    assert counts(allocations, "other") == (1, 0, 0, 0)


def test_a_later_claim_of_the_same_address_in_another_space_takes_the_place_of_an_open_one() -> None:
    """A range changed its space between a claim that timed out and its retry: the old space kept the address."""
    allocations = cache_of(
        ranges=[build_range("pool", "10.0.0.1", addressSpace="lab"), build_range("other", "10.0.0.1")]
    ).allocations
    allocations.expect(claim_of("10.0.0.1"))
    allocations.expect(claim_of("10.0.0.1", space="lab"))
    assert counts(allocations, "other") == (0, 1, 0, 0)
    assert counts(allocations, "pool") == (1, 0, 0, 0)


def test_a_quarantined_address_is_not_the_next_free_one() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.2")],
        reservations=[build_reservation("10.0.0.1", "me", quarantined_until="2026-03-01T12:00:00Z")],
    )
    assert format_address(cache.allocations.next_free("pool", V4, ("c-m-1", "other"))) == "10.0.0.2"
    assert next_free(cache.allocations) == "10.0.0.2"
    assert counts(cache.allocations) == (0, 1, 1, 0)


def test_a_range_that_cannot_be_read_gives_nothing_and_forgets_nothing() -> None:
    good = build_range("pool", "10.0.0.1-10.0.0.2")
    cache = cache_of(ranges=[good], reservations=[build_reservation("10.0.0.1")])
    cache.observe(FLOATING_IP_RANGES, newer(good, spec={"iprange": "10.0.0.9-10.0.0.1"}))
    assert cache.allocations.ranges.problem_of("pool") is not None
    assert cache.allocations.ranges.capacity("pool") is None
    assert cache.allocations.ranges.is_full("pool")
    cache.observe(FLOATING_IP_RANGES, newer(good))
    assert counts(cache.allocations) == (1, 1, 0, 0)


def test_a_range_that_is_made_again_in_another_space_leaves_nothing_behind() -> None:
    pool = build_range("pool", "10.0.0.1")
    cache = cache_of(ranges=[pool, build_range("young", "10.0.0.1", created="2026-02-01T00:00:00Z")])
    assert cache.allocations.ranges.conflicts("young") == ("pool",)
    cache.observe(FLOATING_IP_RANGES, newer(pool, spec={"iprange": "10.0.0.1", "addressSpace": "away"}))
    assert cache.allocations.ranges.conflicts("young") == ()
    assert next_free(cache.allocations, "young") == "10.0.0.1"
    assert next_free(cache.allocations, "pool") == "10.0.0.1"


def test_the_younger_of_two_that_overlap_has_only_what_is_its_own() -> None:
    cache = cache_of(
        ranges=[
            build_range("old", "10.0.0.1-10.0.0.4"),
            build_range("young", "10.0.0.3-10.0.0.6", created="2026-02-01T00:00:00Z"),
        ]
    )
    assert next_free(cache.allocations, "young") == "10.0.0.5"
    refusal = cache.allocations.ranges.why_refused("young", parse_address("10.0.0.4"))
    assert refusal is not None
    assert '"old"' in str(refusal)


@pytest.mark.parametrize(("held", "is_full"), [([], False), (["10.0.0.1"], True), (["fd00::1"], False)])
def test_a_range_is_full_for_a_new_guest_when_the_family_that_it_would_get_is_used_up(
    held: list[str], is_full: bool
) -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1,fd00::/64")],
        reservations=[build_reservation(each) for each in held],
    )
    assert cache.allocations.ranges.is_full("pool") is is_full


def test_the_addresses_in_the_spec_of_an_object_that_was_never_looked_at_are_spoken_for() -> None:
    inherited = build_floating_ip("old", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.2")], floating_ips=[inherited])
    assert next_free(cache.allocations) == "10.0.0.2"
    refused = {"observedGeneration": 1, "conditions": []}
    cache.observe(FLOATING_IPS, newer(inherited, status=refused))
    assert next_free(cache.allocations) == "10.0.0.1", "a wish that was looked at and refused holds nothing"


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
    cache = ClusterCache()
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
    fresh = ClusterCache()
    for resource, obj in reversed(list(living.values())):
        fresh.observe(resource, obj)
    for name in ("pool", "other"):
        assert cache.allocations.ranges.capacity(name) == fresh.allocations.ranges.capacity(name)
        assert cache.allocations.ranges.families(name) == fresh.allocations.ranges.families(name)
        if cache.allocations.ranges.capacity(name) is None:
            continue
        assert counts(cache.allocations, name) == counts(fresh.allocations, name)
        assert cache.allocations.ranges.conflicts(name) == fresh.allocations.ranges.conflicts(name)
        assert _choice(cache.allocations, name) == _choice(fresh.allocations, name)


def _choice(allocations: AllocationIndex, range_name: str) -> str:
    try:
        return next_free(allocations, range_name)
    except RangeFullError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must say the same
        return repr(error)


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

    def is_nobodys(text: str) -> bool:
        return cache.allocations.is_nobodys("pool", parse_address(text), carrier="c-m-1")

    assert {text: is_nobodys(f"10.0.0.{text}") for text in "123456"} == {
        "1": True,
        "2": False,
        "3": False,
        "4": False,
        "5": True,
        "6": True,
    }
    assert not cache.allocations.is_nobodys("pool", parse_address("10.0.1.1"), carrier="c-m-1")


AWAY = build_range("pool", "10.0.0.1-10.0.0.3", addressSpace="away")


def is_shut(cache: ClusterCache) -> bool:
    return (
        isinstance(cache.allocations.ranges.problem_of("pool"), AddressSpaceChangedError)
        and cache.allocations.ranges.capacity("pool") is None
        and cache.allocations.ranges.is_full("pool")
    )


@pytest.mark.parametrize("quarantined_until", [None, "2027-01-01T00:00:00Z"])
@pytest.mark.parametrize("is_late", [False, True], ids=["while running", "before the start"])
def test_a_range_made_again_in_another_space_is_shut_while_one_of_its_name_is_reserved(
    is_late: bool, quarantined_until: str | None
) -> None:
    """It may be the same address of the same network: its holder keeps it, and nobody gets it in the new space."""
    first = AWAY if is_late else build_range("pool", "10.0.0.1-10.0.0.3")
    held = build_reservation("10.0.0.1", owner="me", quarantined_until=quarantined_until)
    cache = cache_of(ranges=[first], reservations=[held])
    if not is_late:
        cache.forget(FLOATING_IP_RANGES, cache.ranges.all()[0])
        cache.observe(FLOATING_IP_RANGES, newer(AWAY))
    assert is_shut(cache)
    gone = cache.reservations.get("", "default.10.0.0.1")
    assert gone is not None
    cache.forget(FLOATING_IP_RESERVATIONS, gone)
    assert next_free(cache.allocations) == "10.0.0.1"


def test_it_is_shut_while_a_status_names_one_of_its_name_though_the_reservation_vanished() -> None:
    holder = build_floating_ip("web", namespace="c-m-1", status=held_by(["10.0.0.1"]))
    cache = cache_of(ranges=[AWAY], floating_ips=[holder])
    assert is_shut(cache)
    cache.observe(FLOATING_IPS, newer(holder, status={}))
    assert not is_shut(cache)


@pytest.mark.parametrize(
    "end", [AllocationIndex.settle, lambda allocations, claim: allocations.abandon(claim.owner.key)]
)
def test_it_is_shut_while_one_of_its_name_is_asked_for(end: Callable[[AllocationIndex, Claim], None]) -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.3")])
    claim = claim_of("10.0.0.1")
    cache.allocations.expect(claim)
    cache.allocations.expect(claim)
    cache.forget(FLOATING_IP_RANGES, cache.ranges.all()[0])
    cache.observe(FLOATING_IP_RANGES, newer(AWAY))
    assert is_shut(cache)
    end(cache.allocations, claim)
    assert next_free(cache.allocations) == "10.0.0.1"


def test_what_says_nothing_of_its_space_is_of_that_of_its_range_whichever_is_seen_first() -> None:
    """The predecessor's objects name no space, and a floating IP may be seen before its range."""
    wish = build_floating_ip("web", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(floating_ips=[wish])
    cache.observe(FLOATING_IP_RANGES, AWAY)
    assert format_address(cache.allocations.next_free("pool", V4, ("c-m-2", "x"))) == "10.0.0.2"
