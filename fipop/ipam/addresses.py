"""Addresses as the core knows them: a family and an integer; texts and `ipaddress` objects at its edges."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from fipop.ipam.errors import AddressSyntaxError

MAPPED_FIRST = 0xFFFF << 32
"""The first of the IPv4-mapped IPv6 addresses (::ffff:0:0/96, RFC 4291 2.5.5.2); fipop reads them as IPv4 addresses."""
MAPPED_LAST = MAPPED_FIRST | 0xFFFF_FFFF

_LONGEST_TEXT = 45  # ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255
_LEADING_ZERO = re.compile(r"(?:^|[.:])0[0-9]+\.|\.0[0-9]", re.ASCII)


class Family(enum.IntEnum):
    """An IP family; IPv4 sorts before IPv6."""

    IPV4 = 4
    IPV6 = 6

    @property
    def bits(self) -> int:
        """The length of an address."""
        return 32 if self is Family.IPV4 else 128

    @property
    def label(self) -> str:
        """The name of the family in Kubernetes: `IPv4` or `IPv6`."""
        return f"IPv{self.value}"


class FamilyPolicy(enum.StrEnum):
    """As `ipFamilyPolicy` of a Service."""

    SINGLE_STACK = "SingleStack"
    PREFER_DUAL_STACK = "PreferDualStack"
    REQUIRE_DUAL_STACK = "RequireDualStack"


class Address(NamedTuple):
    """One address. A tuple, because one is made for every allocation: it hashes, compares and sorts in C."""

    family: Family
    value: int

    def __str__(self) -> str:
        return format_address(self)


DHCP = Address(Family.IPV4, 0)
"""0.0.0.0: not an address to hold, but the wish to get one by DHCP."""
DHCP_ADDRESSES = (DHCP, Address(Family.IPV6, 0))
"""0.0.0.0 and ::, with which kube-vip asks a DHCP server. They are never in use."""


def parse_address(text: str) -> Address:
    """Read one address in any spelling, blanks around it too; IPv4-mapped IPv6 becomes IPv4.

    AddressSyntaxError for anything else: zone ids, leading zeros in IPv4, prefix lengths, empty text.
    """
    stripped = text.strip()
    problem = "is not an IPv4 or IPv6 address"
    if len(stripped) <= _LONGEST_TEXT:
        try:
            if "%" not in stripped:
                return _parse(stripped)
            problem = "must not have a zone id (%...)"
        except ValueError:
            if _LEADING_ZERO.search(stripped):
                problem = "must not have leading zeros"
    raise AddressSyntaxError(text=text, problem=problem)


def parse_addresses(texts: Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses among texts that anybody may have written: each once, in their order."""
    found = []
    for text in texts:
        with suppress(AddressSyntaxError):
            found.append(parse_address(text))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=16_384)
def _parse(text: str) -> Address:
    """Read an address of bounded length; the same ones are read again and again."""
    if ":" in text:
        return _from_v6(int(IPv6Address(text)))
    return Address(Family.IPV4, int(IPv4Address(text)))


def format_address(address: Address) -> str:
    """Write the canonical text: dotted IPv4, compressed lower-case IPv6 (RFC 5952)."""
    return str(to_ip(address))


def explode_address(address: Address) -> str:
    """Write dotted IPv4, or IPv6 with all its 8 groups of 4 digits (without the colons it is `address_key`)."""
    return to_ip(address).exploded


def address_key(address: Address) -> str:
    """Write an address as in the name of a reservation: dotted IPv4, or 32 lower-case hex digits."""
    return f"{address.value:032x}" if address.family is Family.IPV6 else format_address(address)


def to_ip(address: Address) -> IPv4Address | IPv6Address:
    """Return the `ipaddress` object of an address."""
    return IPv4Address(address.value) if address.family is Family.IPV4 else IPv6Address(address.value)


def _from_v6(value: int) -> Address:
    if MAPPED_FIRST <= value <= MAPPED_LAST:
        return Address(Family.IPV4, value - MAPPED_FIRST)
    return Address(Family.IPV6, value)
