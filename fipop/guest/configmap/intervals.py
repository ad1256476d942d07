"""Addresses in the texts of a guest's objects, read leniently: what is no address says nothing.

The pools of our own objects are read strictly, by the IPAM core; these texts belong to others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_PARTS = 4096
"""How many parts of one guest's texts are read at most: some 50 ms. Who reads more than one text adds them up."""

_MAX_PART = 128


@dataclass(frozen=True, slots=True)
class Interval:
    """All addresses of one family from `first` to `last`, both included."""

    first: Address
    last: Address

    def holds(self, address: Address) -> bool:
        """Whether the address is one of them."""
        return address.version == self.first.version and int(self.first) <= int(address) <= int(self.last)


def parse_address(text: str) -> Address | None:
    """Read one address; an IPv4-mapped one is IPv4, one with a zone none, `0.0.0.0` (DHCP) none."""
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return None
    address = _unmapped(address)
    return None if address.is_unspecified else address


def count_parts(text: str) -> int:
    """Give of how many parts a list is, and so what reading it takes; this itself takes next to nothing."""
    return text.count(",") + 1


def parse_intervals(text: str) -> tuple[Interval, ...]:
    """Read a list of addresses, CIDRs (host bits masked) and ranges; parts that are none of these are left out."""
    found = (_parse_part(part.strip()) for part in text.split(",") if len(part) <= _MAX_PART)
    return tuple(span for span in found if span is not None)


def parse_hosts(text: str) -> frozenset[Address] | None:
    """Read a list of single addresses (bare or as a CIDR of one); None where it holds anything else or nothing."""
    return as_hosts(parse_intervals(text), count_parts(text))


def as_hosts(intervals: Sequence[Interval], parts: int) -> frozenset[Address] | None:
    """Give the single addresses that a list of so many parts was read as; None where it holds anything else."""
    if len(intervals) != parts or any(span.first != span.last for span in intervals):
        return None
    return frozenset(span.first for span in intervals)


def _parse_part(part: str) -> Interval | None:
    if "/" in part:
        return _parse_cidr(part)
    if "-" in part:
        first, _, last = part.partition("-")
        low, high = parse_address(first), parse_address(last)
        if low is None or high is None or low.version != high.version or int(low) > int(high):
            return None
        return Interval(low, high)
    address = parse_address(part)
    return Interval(address, address) if address is not None else None


def _parse_cidr(part: str) -> Interval | None:
    text, _, prefix = part.partition("/")
    if not prefix.isascii() or not prefix.isdigit() or "%" in text or len(prefix) > len("128"):
        return None
    try:
        network = ipaddress.ip_network(f"{text.strip()}/{prefix}", strict=False)
    except ValueError:
        return None
    first, last = _unmapped(network[0]), _unmapped(network[-1])
    if first.version != last.version or (first == last and first.is_unspecified):
        return None
    return Interval(first, last)


def _unmapped(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
