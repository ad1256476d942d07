"""The rules of pools and ranges over plain enumerated sets: slow, obvious, and written without the core's code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

from fipop.ipam.addresses import Address, Family
from fipop.ipam.pool import Pool

V4_BASE = int(ip_address("10.0.0.248"))
V6_BASE = int(ip_address("2001:db8::"))
WIDTH = 24
"""Small universes meet often: 10.0.0.248 to 10.0.1.15 (across .255 and .0) and 2001:db8:: to 2001:db8::17."""

UNIVERSE = tuple(
    Address(family, base + offset)
    for family, base in ((Family.IPV4, V4_BASE), (Family.IPV6, V6_BASE))
    for offset in range(WIDTH)
)


def capacity_of(pool: Pool, family: Family | None = None) -> int:
    """How many addresses can be assigned, of one family or of both."""
    return sum(pool.addresses.of(each).count for each in Family if family in (None, each))


def text_of(address: Address) -> str:
    return str(ip_address(address.value.to_bytes(4 if address.family is Family.IPV4 else 16, "big")))


def enumerate_part(part: str) -> tuple[set[Address], set[Address], set[Address]]:
    """All addresses of a part, the ends of an IPv4 CIDR up to /30, the anycast address of an IPv6 CIDR."""
    if "-" in part:
        first, last = (ip_address(text.strip()) for text in part.split("-"))
        family = Family(first.version)
        return {Address(family, value) for value in range(int(first), int(last) + 1)}, set(), set()
    network = ip_network(part.strip(), strict=False)
    family = Family(network.version)
    everything = {Address(family, int(ip)) for ip in network}
    edges = {Address(family, int(network[0])), Address(family, int(network[-1]))}
    if "/" not in part:
        return everything, set(), set()
    if family is Family.IPV4:
        return everything, edges if network.prefixlen <= 30 else set(), set()
    return everything, set(), {min(edges)} if network.prefixlen < 127 else set()


def naive_pool(
    parts: Iterable[str],
    exclude: Iterable[str] = (),
    *,
    skip_end_ips: bool = False,
    avoid_buggy_ips: bool = False,
) -> set[Address]:
    found: set[Address] = set()
    anycasts: set[Address] = set()
    for part in parts:
        everything, ends, anycast = enumerate_part(part)
        found |= everything - ends if skip_end_ips else everything
        anycasts |= anycast
    for part in exclude:
        found -= enumerate_part(part)[0]
    if avoid_buggy_ips:
        found = {each for each in found if each.family is Family.IPV6 or each.value % 256 not in (0, 255)}
    return found - anycasts


@st.composite
def parts(draw: st.DrawFn) -> str:
    """One part that lies in the universe or sticks out of it a little."""
    address = draw(st.sampled_from(UNIVERSE))
    kind = draw(st.sampled_from(["single", "range", "cidr", "cidr"]))
    if kind == "single":
        return text_of(address)
    if kind == "range":
        end = address._replace(value=address.value + draw(st.integers(0, 12)))
        return f"{text_of(address)} - {text_of(end)}"
    return f"{text_of(address)}/{address.family.bits - draw(st.integers(0, 4))}"


@dataclass
class NaiveRange:
    space: str
    pool: set[Address]
    created: datetime
    descending: bool
    draining: bool


@dataclass
class NaiveTable:
    """What each operation of a table of ranges means, by enumeration; `used` are the addresses in use of each space."""

    ranges: dict[str, NaiveRange] = field(default_factory=dict)
    used: set[tuple[str, Address]] = field(default_factory=set)

    def older(self, name: str) -> list[str]:
        mine = self.ranges[name]
        found = [
            other
            for other, its in self.ranges.items()
            if (its.created, other) < (mine.created, name)
            and its.space == mine.space
            and its.pool & mine.pool
        ]
        return sorted(found, key=lambda other: (self.ranges[other].created, other))

    def assigned(self, name: str) -> set[Address]:
        taken: set[Address] = set().union(*(self.ranges[older].pool for older in self.older(name)))
        return self.ranges[name].pool - taken

    def next(self, name: str, family: Family) -> Address | None:
        """The address that is assigned next; None: there is none."""
        found = self.ranges[name]
        if found.draining:
            return None
        mine = [each for each in self.assigned(name) if each.family is family]
        pick = max if found.descending else min
        return pick((each for each in mine if (found.space, each) not in self.used), default=None)
