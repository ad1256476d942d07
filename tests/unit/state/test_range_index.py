"""Ranges in their address spaces: what each may give out."""

from collections.abc import Callable

import pytest

from fipop.ipam.addresses import Family, parse_address
from fipop.ipam.errors import AddressOutOfRangeError, AddressSpaceChangedError
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.state.allocations import Allocations
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim
from tests.harness.objects import (
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    held_by,
    newer,
)
from tests.harness.steps import count_steps
from tests.unit.state.entries import AWAY, claim_of, counts, next_free


def test_a_quarantined_address_is_not_the_next_free_one() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1-10.0.0.2")],
        reservations=[build_reservation("10.0.0.1", "me", quarantined_until="2026-03-01T12:00:00Z")],
    )
    assert next_free(cache.allocations) == "10.0.0.2"
    assert counts(cache.allocations) == (0, 1, 1, 0)


def test_a_range_that_cannot_be_read_gives_nothing_and_forgets_nothing() -> None:
    good = build_range("pool", "10.0.0.1-10.0.0.2")
    cache = cache_of(ranges=[good], reservations=[build_reservation("10.0.0.1")])
    cache.observe(FLOATING_IP_RANGES, newer(good, spec={"iprange": "10.0.0.9-10.0.0.1"}))
    assert cache.allocations.ranges.problem_of("pool") is not None
    assert cache.allocations.ranges.usage("pool") is None
    assert cache.allocations.ranges.is_full("pool", Family.IPV4)
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
    assert isinstance(refusal, AddressOutOfRangeError)
    assert refusal.older_range == "old"


@pytest.mark.parametrize(
    ("held", "full"), [([], set()), (["10.0.0.1"], {Family.IPV4}), (["fd00::1"], {Family.IPV6})]
)
def test_a_range_is_full_for_a_family_when_its_addresses_of_that_family_are_used_up(
    held: list[str], full: set[Family]
) -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.1,fd00::1")],
        reservations=[build_reservation(each) for each in held],
    )
    assert {each for each in Family if cache.allocations.ranges.is_full("pool", each)} == full


def is_shut(cache: ClusterCache) -> bool:
    return (
        isinstance(cache.allocations.ranges.problem_of("pool"), AddressSpaceChangedError)
        and cache.allocations.ranges.usage("pool") is None
        and cache.allocations.ranges.is_full("pool", Family.IPV4)
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
    "end", [Allocations.finish_claim, lambda allocations, claim: allocations.cancel_claims(claim.owner.key)]
)
def test_it_is_shut_while_one_of_its_name_is_asked_for(end: Callable[[Allocations, Claim], None]) -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.3")])
    claim = claim_of("10.0.0.1")
    cache.allocations.begin_claim(claim)
    cache.allocations.begin_claim(claim)
    cache.forget(FLOATING_IP_RANGES, cache.ranges.all()[0])
    cache.observe(FLOATING_IP_RANGES, newer(AWAY))
    assert is_shut(cache)
    end(cache.allocations, claim)
    assert next_free(cache.allocations) == "10.0.0.1"


def test_an_edit_of_a_range_counts_its_own_addresses_only() -> None:
    """An edit counted every address in use against every range of its space, and the operator stood still."""
    ranges = [build_range(f"pool-{number}", f"10.{number}.0.0/24") for number in range(100)]
    reservations = [
        build_reservation(f"10.{number}.0.{host}", range_name=f"pool-{number}")
        for number in range(100)
        for host in range(1, 21)
    ]
    cache = cache_of(ranges=ranges, reservations=reservations)

    def edit_and_count_all() -> None:
        cache.observe(FLOATING_IP_RANGES, newer(ranges[7], spec={"iprange": "10.7.0.0/25"}))
        for each in cache.ranges.all():
            cache.allocations.ranges.usage(each.name)

    assert counts(cache.allocations, "pool-7") == (20, 234, 0, 0)
    for each in cache.ranges.all():
        cache.allocations.ranges.usage(each.name)
    steps = count_steps(edit_and_count_all)
    assert steps < 20_000, "far fewer than one for each of 2,000 addresses and 100 ranges"
    assert counts(cache.allocations, "pool-7") == (20, 106, 0, 0)
