"""Pools of addresses from the text of a user: CIDRs, `first-last`, single addresses, separated by commas."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from fipop.ipam.addresses import (
    DHCP,
    MAPPED_FIRST,
    MAPPED_LAST,
    Address,
    Family,
    format_address,
    parse_address,
)
from fipop.ipam.errors import AddressSyntaxError, IpamError, quote
from fipop.ipam.intervals import ENDS, ORDINARY, AddressSet, IntervalSet, kind_of

MAX_PARTS = 10_000
MAX_TEXT_LENGTH = 256 * 1024
MAX_GUEST_PARTS = 4096
"""How many parts of the texts of one guest cluster are read at most: that takes about 50 ms."""

LONGEST_WITH_ENDS = 30
"""The longest prefix of IPv4 that has a network and a broadcast address."""

_NUMBER = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_SEVERAL = re.compile(r"[\w.:]\s+[\w.:]|;")
"""Finds two parts that something other than a comma separates."""
_OBJECTS = {Family.IPV4: IPv4Address, Family.IPV6: IPv6Address}
_UNASSIGNABLE = {
    "multicast": "is_multicast",
    "loopback": "is_loopback",
    "link-local": "is_link_local",
    "unspecified": "is_unspecified",
}
"""Blocks of addresses, and the attribute that tells of one whether it is in there."""
_MAPPED = IntervalSet.of([(MAPPED_FIRST, MAPPED_LAST)])


class Withheld(enum.StrEnum):
    """Why a pool does not assign an address; the value ends the sentence `<address> …`."""

    OUTSIDE = "is not in it"
    EXCLUDED = "is excluded"
    CIDR_END = "is the network or broadcast address of a CIDR in it (skipEndIPs)"
    BUGGY = "ends in .0 or .255, which some programs refuse (avoidBuggyIPs)"
    ANYCAST = "is the subnet-router anycast address of a CIDR in it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What a pool text describes: `addresses` are exactly those that can be assigned.

    `written` are the addresses of all parts, `excluded` those of the exclusions.
    """

    text: str
    addresses: AddressSet = field(repr=False)
    written: AddressSet = field(repr=False)
    excluded: AddressSet = field(repr=False)
    masked: tuple[str, ...] = ()
    """What each CIDR means that was written with host bits, also as an exclusion."""
    outside: tuple[str, ...] = ()
    """The parts of the exclusions that have no address of the pool."""
    avoid_buggy_ips: bool = False

    @property
    def families(self) -> tuple[Family, ...]:
        """The families it serves, IPv4 first."""
        return tuple(family for family in Family if self.addresses.of(family))

    def __contains__(self, address: Address) -> bool:
        return address in self.addresses

    def why_withheld(self, address: Address) -> Withheld | None:
        """Return why the address is not assigned; None if it is."""
        if address in self.addresses:
            return None
        if address not in self.written:
            return Withheld.OUTSIDE
        if address in self.excluded:
            return Withheld.EXCLUDED
        if address.family is Family.IPV6:
            return Withheld.ANYCAST
        is_buggy = self.avoid_buggy_ips and kind_of(address.value) == ENDS
        return Withheld.BUGGY if is_buggy else Withheld.CIDR_END


class Part(NamedTuple):
    """One part of a pool's text; `prefix_length` if it is a CIDR, `masked` if it was written with host bits."""

    family: Family
    first: int
    last: int
    prefix_length: int | None = None
    masked: bool = False

    def holds(self, address: Address) -> bool:
        """Return whether it has an address."""
        return address.family is self.family and self.first <= address.value <= self.last


def parse_pool(
    text: str,
    *,
    exclude: Iterable[str] = (),
    skip_end_ips: bool = False,
    avoid_buggy_ips: bool = False,
) -> Pool:
    """Read a pool: the set union of its parts, without the exclusions (texts in the same grammar).

    `skip_end_ips` leaves out network and broadcast address of each IPv4 CIDR up to /30, unless another part holds
    them other than as its own ends; `avoid_buggy_ips` leaves out all IPv4 addresses ending in .0 or .255. The
    subnet-router anycast address of an IPv6 CIDR (RFC 4291 2.6.1) is left out always, but for /127 (RFC 6164) and /128.
    Raises IpamError, which quotes the part that is wrong and its position, and beyond MAX_PARTS or MAX_TEXT_LENGTH.
    """
    parts = tuple(parse_parts(text, "the pool"))
    _refuse_unassignable(parts)
    exclusions = tuple(parse_exclusions(tuple(exclude)))
    bare, excluded = [part for _, _, part in parts], union_of(part for _, _, part in exclusions)
    written = union_of(bare)
    kept = (_without_ends(part) for part in bare) if skip_end_ips else iter(bare)
    addresses = union_of(kept) - excluded - _anycasts(bare)
    if avoid_buggy_ips:
        ordinary = IntervalSet.of(((each.first, each.last) for each in addresses.v4.intervals), ORDINARY)
        addresses = AddressSet(v4=ordinary, v6=addresses.v6)
    return Pool(
        text=text,
        addresses=addresses,
        written=written,
        excluded=excluded,
        masked=describe_masked((*parts, *exclusions)),
        outside=tuple(
            text for _, text, part in exclusions if not written.of(part.family).meets(part.first, part.last)
        ),
        avoid_buggy_ips=avoid_buggy_ips,
    )


def parse_parts(text: str, where: str) -> Iterator[tuple[int, str, Part]]:
    """Yield (position from 1, text of the part, part)."""
    _check_size(text, where)
    for position, part in enumerate(text.split(","), start=1):
        stripped = part.strip()
        try:
            yield position, stripped, _parse_part(stripped)
        except AddressSyntaxError as error:
            quoted = error.text.strip()
            problem = error.problem if quoted == stripped else f'has "{quoted[:48]}", which {error.problem}'
            raise _build_error(where, stripped, position, problem) from None


def _build_error(where: str, part: str, position: int, problem: str) -> IpamError:
    """Return the error of a part. `where` names the text (the pool, exclusion 2), `position` counts from 1."""
    return IpamError(f"part {position} of {where}, {quote(part)}, {problem}")


def count_parts(text: str) -> int:
    """Return of how many parts a text is, which is what reading it costs."""
    return text.count(",") + 1


def parse_leniently(text: str) -> tuple[Part, ...]:
    """Read a text that others write in a guest cluster, without the parts outside the grammar and those for DHCP."""
    found = []
    for part in text.split(","):
        with suppress(AddressSyntaxError):
            found.append(_parse_part(part.strip()))
    return tuple(part for part in found if part.last > 0)


def _check_size(text: str, where: str) -> None:
    limits = (len(text), MAX_TEXT_LENGTH, "characters"), (count_parts(text), MAX_PARTS, "parts")
    for found, limit, unit in limits:
        if found > limit:
            raise IpamError(
                f"{where} must have at most {limit} {unit}: it has {found}. Split it into several ranges"
            )


def _parse_part(part: str) -> Part:
    if not part:
        raise AddressSyntaxError(text=part, problem="must not be empty")
    if _SEVERAL.search(part):
        raise AddressSyntaxError(text=part, problem="must be separated by commas")
    if "-" not in part:
        return _parse_cidr(part)
    low, _, high = part.partition("-")
    first, last = parse_address(low), parse_address(high)
    if first.family is not last.family:
        raise AddressSyntaxError(text=part, problem="must not mix IPv4 and IPv6")
    if first.value > last.value:
        raise AddressSyntaxError(text=part, problem="must not end below its first address")
    return Part(first.family, first.value, last.value)


def _parse_cidr(part: str) -> Part:
    text, slash, length_text = part.partition("/")
    address = parse_address(text)
    family, value = address
    if not slash:
        return Part(family, value, value)
    if not _NUMBER.fullmatch(length_text.strip()):
        raise AddressSyntaxError(text=part, problem="must have a decimal number as prefix length")
    # The length of an IPv4-mapped CIDR counts the 96 bits before the IPv4 address.
    written_bits = 128 if ":" in text else 32
    host_bits = written_bits - int(length_text)
    if not 0 <= host_bits <= family.bits:
        limits = f"{written_bits - family.bits} to {written_bits}"
        raise AddressSyntaxError(text=part, problem=f"must have a prefix length from {limits}")
    network = value >> host_bits << host_bits
    return Part(family, network, network + (1 << host_bits) - 1, family.bits - host_bits, network != value)


def _refuse_unassignable(parts: Iterable[tuple[int, str, Part]]) -> None:
    """Refuse parts that are wholly of addresses that no load balancer can have, and 0.0.0.0/32: DHCP in a guest."""
    for position, quoted, part in parts:
        ends = [_OBJECTS[part.family](value) for value in (part.first, part.last)]
        kinds = [
            kind for kind, attribute in _UNASSIGNABLE.items() if all(getattr(end, attribute) for end in ends)
        ]
        if kinds:
            is_dhcp = (part.family, part.last) == DHCP
            problem = (
                "must not be the address for DHCP" if is_dhcp else f"must not be of {kinds[0]} addresses"
            )
            raise _build_error("the pool", quoted, position, problem)


def parse_exclusions(texts: tuple[str, ...]) -> Iterator[tuple[int, str, Part]]:
    """Yield the excluded parts, as `parse_parts`."""
    _check_size(",".join(texts), "the exclusions")
    for number, text in enumerate(texts, start=1):
        yield from parse_parts(text, f"exclusion {number}")


def _without_ends(part: Part) -> Part:
    return part._replace(first=part.first + 1, last=part.last - 1) if _has_ends(part) else part


def _anycasts(parts: Iterable[Part]) -> AddressSet:
    cidrs = (part for part in parts if part.family is Family.IPV6 and part.prefix_length is not None)
    return AddressSet(
        v6=IntervalSet.of((cidr.first, cidr.first) for cidr in cidrs if cidr.last - cidr.first > 1)
    )


def union_of(parts: Iterable[Part]) -> AddressSet:
    """Return all addresses of some parts."""
    pairs: dict[Family, list[tuple[int, int]]] = {family: [] for family in Family}
    for part in parts:
        pairs[part.family].append((part.first, part.last))
    # An IPv4-mapped address inside a wide IPv6 part would be read back as the IPv4 address: two names for one address.
    return AddressSet(v4=IntervalSet.of(pairs[Family.IPV4]), v6=IntervalSet.of(pairs[Family.IPV6]) - _MAPPED)


def describe_masked(parts: Iterable[tuple[int, str, Part]]) -> tuple[str, ...]:
    """Return what each CIDR means that was written with host bits."""
    return tuple(
        f"{text} means {format_address(Address(part.family, part.first))}/{part.prefix_length}"
        for _, text, part in parts
        if part.masked
    )


# Pools of a guest cluster's ConfigMap, with the rules of kube-vip-cloud-provider
#
# They differ from those of a FloatingIPRange in what of a CIDR is assigned. Of an IPv6 CIDR its first address, too; of
# an IPv4 CIDR up to /30 no x.x.x.0 and no x.x.x.255, as users write 192.168.1.0/24. With `skip_end_ips` the ends
# go after the CIDRs were merged, so that two adjacent /30 of one /29 lose two addresses, and not four.


def parse_guest_pool(text: str, *, exclude: str = "", skip_end_ips: bool = False) -> AddressSet:
    """Read what a key assigns: the union of its parts, without the exclusions (a text in the same grammar).

    Raises IpamError, as `parse_pool`.
    """
    parts = [part for _, _, part in parse_parts(text, "the pool")]
    excluded = union_of(part for _, _, part in parse_exclusions((exclude,) if exclude.strip() else ()))
    with_ends = [part for part in parts if _has_ends(part)]
    whole = union_of(part for part in parts if not _has_ends(part))
    merged = union_of(with_ends).v4
    if skip_end_ips:
        merged = IntervalSet.of(_inner(merged))
    ordinary = IntervalSet.of(((each.first, each.last) for each in merged.intervals), ORDINARY)
    return (whole | AddressSet(v4=ordinary)) - excluded


def _has_ends(part: Part) -> bool:
    """Return whether a part is a CIDR of IPv4 with a network and a broadcast address."""
    length = part.prefix_length
    return part.family is Family.IPV4 and length is not None and length <= LONGEST_WITH_ENDS


def _inner(merged: IntervalSet) -> Iterator[tuple[int, int]]:
    """Yield the CIDRs that make up a set, each without its ends."""
    for interval in merged.intervals:
        for first, last in _split(interval.first, interval.last):
            yield (first + 1, last - 1) if last - first > 1 else (first, last)


def _split(first: int, last: int) -> Iterable[tuple[int, int]]:
    """Yield the largest aligned blocks that an interval is made of, in order."""
    while first <= last:
        aligned = first & -first if first else 1 << Family.IPV4.bits
        size = min(aligned, 1 << (last + 1 - first).bit_length() - 1)
        yield first, first + size - 1
        first += size
