"""Ranges, floating IPs and reservations, in short words."""

from fipop.api.models import Owner, Requested
from fipop.ipam.addresses import Family, format_address, parse_address
from fipop.state.allocations import Allocations
from fipop.state.claims import Claim
from tests.harness.objects import (
    build_range,
)

V4, V6 = Family.IPV4, Family.IPV6


def next_free(allocations: Allocations, range_name: str = "pool", family: Family = V4) -> str:
    return format_address(allocations.ranges.peek_free(range_name, family))


def claim_of(address: str, range_name: str = "pool", owner: str = "web", space: str = "default") -> Claim:
    return Claim(
        space=space,
        address=parse_address(address),
        range=range_name,
        owner=Owner(namespace="c-m-1", name=owner, uid="uid"),
        requested=Requested.DYNAMIC,
    )


def counts(allocations: Allocations, range_name: str = "pool") -> tuple[int, int, int, int]:
    capacity = allocations.ranges.usage(range_name)
    assert capacity is not None
    whole = capacity.whole
    assert whole.total == whole.used + whole.free + whole.quarantined
    return whole.used, whole.free, whole.quarantined, whole.out_of_range


AWAY = build_range("pool", "10.0.0.1-10.0.0.3", addressSpace="away")
