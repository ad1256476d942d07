"""What ranges assign, and in which order."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest

from fipop.ipam.addresses import Address, Family, parse_address
from fipop.ipam.errors import (
    AddressOutOfRangeError,
    FamilyMissingError,
    IpamError,
    RangeFullError,
)
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeTable

V4, V6 = Family.IPV4, Family.IPV6
NOW = datetime(2026, 8, 1, tzinfo=UTC)


class Network:
    """Some ranges of one space, and the addresses in use."""

    def __init__(self, *ranges: Range) -> None:
        self.table = RangeTable()
        self.used: set[Address] = set()
        self.freed = 0
        for each in ranges:
            self.table.enter(each)

    def next(self, name: str = "lan", family: Family = V4) -> Address | IpamError:
        return self.table.next_free(name, family, self.used, self.freed)

    def claim(self, name: str = "lan", family: Family = V4) -> str:
        found = self.next(name, family)
        assert isinstance(found, Address), found
        self.used.add(found)
        return str(found)

    def claim_all(self, name: str = "lan", family: Family = V4) -> list[str]:
        claimed = []
        while isinstance(self.next(name, family), Address):
            claimed.append(self.claim(name, family))
        return claimed

    def free(self, text: str) -> None:
        self.used.discard(parse_address(text))
        self.freed += 1


def lan(
    text: str,
    *,
    name: str = "lan",
    age_days: int = 0,
    descending: bool = False,
    draining: bool = False,
    skip_end_ips: bool = False,
    avoid_buggy_ips: bool = False,
    exclude: tuple[str, ...] = (),
) -> Range:
    pool = parse_pool(text, exclude=exclude, skip_end_ips=skip_end_ips, avoid_buggy_ips=avoid_buggy_ips)
    created = NOW - timedelta(days=age_days)
    return Range(
        name=name, space="default", pool=pool, created=created, descending=descending, draining=draining
    )


# Order


# Refusals


def test_a_full_range_says_which_family_is_full() -> None:
    network = Network(lan("10.0.0.0/29,2001:db8::1", skip_end_ips=True))
    network.claim_all()
    error = network.next()
    assert isinstance(error, RangeFullError)
    assert 'range "lan" is full: every IPv4 address' in str(error)
    assert not any(map(str.isdigit, str(error).replace("IPv4", ""))), "a count would change each status"
    assert network.claim("lan", V6) == "2001:db8::1"


def test_a_missing_family_is_told_apart_from_a_full_range() -> None:
    error = Network(lan("10.0.0.1")).next("lan", V6)
    assert isinstance(error, FamilyMissingError)
    assert 'range "lan" ("10.0.0.1") has no IPv6: it has only IPv4' in str(error)


def test_a_range_that_is_all_excluded_has_no_addresses() -> None:
    error = Network(lan("10.0.0.1", exclude=("10.0.0.1",))).next()
    assert isinstance(error, FamilyMissingError)
    assert "all its IPv4 addresses are excluded. Correct spec.exclude" in str(error)


def test_a_range_that_older_ranges_cover_names_them_and_is_not_to_be_extended() -> None:
    network = Network(lan("10.0.0.1-10.0.0.4", age_days=1), lan("10.0.0.2", name="young"))
    error = network.next("young")
    assert isinstance(error, RangeFullError)
    assert 'those of older ranges: "lan"' in str(error)
    assert "extend" not in str(error)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.0.9.1", "is not in it"),
        ("2001:db8::1", "is not in it"),
        ("10.0.0.7", "is excluded"),
        ("10.0.2.128", "is the network or broadcast address of a CIDR in it"),
        ("10.0.2.191", "is the network or broadcast address of a CIDR in it"),
        ("10.0.0.0", "ends in .0 or .255"),
        ("10.0.0.255", "ends in .0 or .255"),
    ],
)
def test_an_address_that_the_range_does_not_assign_is_refused_with_the_reason(
    address: str, reason: str
) -> None:
    text = "10.0.0.0/24,10.0.2.128/26"
    network = Network(lan(text, exclude=("10.0.0.7",), skip_end_ips=True, avoid_buggy_ips=True))
    refusal = network.table.refusal("lan", parse_address(address))
    assert isinstance(refusal, AddressOutOfRangeError)
    assert f", which {reason}" in str(refusal)


# Overlapping ranges


def test_an_address_in_an_overlap_is_refused_to_the_younger_range_and_the_older_is_named() -> None:
    table = Network(lan("10.0.0.0/29", name="young"), lan("10.0.0.4/30", name="old", age_days=2)).table
    refusal = table.refusal("young", parse_address("10.0.0.5"))
    assert isinstance(refusal, AddressOutOfRangeError)
    assert 'belongs to the older range "old"' in str(refusal)
    assert table.refusal("old", parse_address("10.0.0.5")) is None


# Size


@pytest.mark.parametrize("text", ["10.0.0.0/8", "::/0", "0.0.0.0/0,::/0"])
@pytest.mark.parametrize("descending", [False, True])
def test_memory_does_not_grow_with_the_pools(text: str, descending: bool) -> None:
    family = V6 if ":" in text else V4
    tracemalloc.start()
    try:
        network = Network(lan(text, descending=descending, avoid_buggy_ips=True, skip_end_ips=True))
        for _ in range(100):
            network.claim("lan", family)
        assert tracemalloc.get_traced_memory()[1] < 256 * 1024
    finally:
        tracemalloc.stop()
