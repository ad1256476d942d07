"""Open claims: asked, and not answered yet."""

from fipop.ipam.addresses import parse_address
from tests.harness.objects import (
    build_range,
    cache_of,
)
from tests.unit.state.entries import V4, claim_of, counts, next_free


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
