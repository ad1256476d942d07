"""How fast the IPAM core is, beside `netaddr.IPSet` and plain `ipaddress` with a dict, in the same run.

Every figure is taken through the calls of the product: ask for the next free address, then note its owner. All three
keep the owners in a dict. What is slower than its budget of 5 seconds is stopped, and its rate so far is
compared. Seconds are of processor time: on an idle machine they are those of the clock, on a busy one the neighbours
do not count.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import netaddr

from bench.results import describe_machine, write_section
from fipop.api.objects import EPOCH
from fipop.ipam.addresses import Address, Family
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeTable

BUDGET_SECONDS = 5.0
REPEATS = 7
HOLES = 13_000
CIDR_16 = "10.0.0.0/16"
CIDR_64 = "2001:db8::/64"
SIZE_16 = 65_534
MANY = 100_000
OWNERS = [f"guest-{number}/ingress" for number in range(MANY)]

Work = Callable[[float], int]
"""Allocates until all is done or the processor time reaches the deadline; gives the number of allocations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One line of the table: the same work, prepared for each of the three."""

    title: str
    fipop: Callable[[], Work]
    netaddr: Callable[[], Work]
    plain: Callable[[], Work]


def measure(prepare: Callable[[], Work], *, repeats: int) -> float:
    """Give allocations per second: the best of some runs, the one least disturbed by what else the machine does."""
    best = 0.0
    for _ in range(repeats):
        work = prepare()
        gc.collect()
        start = time.process_time()
        count = work(start + BUDGET_SECONDS)
        best = max(best, count / (time.process_time() - start))
    return best


def until(deadline: float, steps: Iterable[object]) -> int:
    """Count steps of a slow contender, up to the deadline."""
    count = 0
    for _ in steps:
        count += 1
        if time.process_time() > deadline:
            break
    return count


def holes_of_16() -> list[int]:
    """Choose 13,000 addresses of the /16, the same for all contenders."""
    first = int(IPv4Network(CIDR_16)[1])
    return random.Random(4).sample(range(first, first + SIZE_16), HOLES)


def picks_of_churn() -> list[int]:
    return random.Random(4).choices(range(SIZE_16 // 2), k=MANY)


# fipop


@dataclass(slots=True)
class Ranges:
    """One range, and the owners of its addresses."""

    table: RangeTable = field(default_factory=RangeTable)
    owners: dict[Address, str] = field(default_factory=dict)
    freed: int = 0

    def claim(self, family: Family, owner: str) -> Address:
        """Make the next free address the owner's."""
        address = self.table.next_free("lan", family, self.owners, self.freed)
        assert isinstance(address, Address)
        self.owners[address] = owner
        return address

    def release(self, address: Address) -> None:
        """Free an address."""
        del self.owners[address]
        self.freed += 1


def make_ranges(text: str) -> Ranges:
    ranges = Ranges()
    pool = parse_pool(text, skip_end_ips=True)
    ranges.table.enter(Range(name="lan", space="default", pool=pool, created=EPOCH))
    return ranges


def fipop_claims(ranges: Ranges, family: Family, count: int) -> Work:
    return lambda deadline: until(deadline, (ranges.claim(family, owner) for owner in OWNERS[:count]))


def fipop_holes() -> Work:
    ranges = make_ranges(CIDR_16)
    fipop_claims(ranges, Family.IPV4, SIZE_16)(float("inf"))
    for value in holes_of_16():
        ranges.release(Address(Family.IPV4, value))
    return fipop_claims(ranges, Family.IPV4, HOLES)


def fipop_strewn() -> Work:
    ranges = make_ranges(CIDR_16)
    ranges.owners.update(dict.fromkeys((Address(Family.IPV4, value) for value in holes_of_16()), "early"))
    return fipop_claims(ranges, Family.IPV4, SIZE_16 - HOLES)


def fipop_churn() -> Work:
    ranges = make_ranges(CIDR_16)
    held = [ranges.claim(Family.IPV4, owner) for owner in OWNERS[: SIZE_16 // 2]]

    def change(pick: int, owner: str) -> None:
        ranges.release(held[pick])
        held[pick] = ranges.claim(Family.IPV4, owner)

    return lambda deadline: until(deadline, map(change, picks_of_churn(), OWNERS))


# netaddr: an IPSet of the free addresses, a dict of owners


def netaddr_claims(free: netaddr.IPSet, count: int) -> Work:
    owners: dict[netaddr.IPAddress, str] = {}

    def claim(owner: str) -> None:
        address = next(iter(free))
        free.remove(address)
        owners[address] = owner

    return lambda deadline: until(deadline, map(claim, OWNERS[:count]))


def netaddr_lowest_first(text: str, count: int) -> Work:
    network = netaddr.IPNetwork(text)
    return netaddr_claims(netaddr.IPSet(netaddr.IPRange(network[1], network[-2])), count)


def netaddr_holes() -> Work:
    return netaddr_claims(netaddr.IPSet(map(netaddr.IPAddress, holes_of_16())), HOLES)


def netaddr_strewn() -> Work:
    taken, first = set(holes_of_16()), int(IPv4Network(CIDR_16)[1])
    free = (value for value in range(first, first + SIZE_16) if value not in taken)
    return netaddr_claims(netaddr.IPSet(map(netaddr.IPAddress, free)), SIZE_16 - HOLES)


def netaddr_churn() -> Work:
    network = netaddr.IPNetwork(CIDR_16)
    held = [network[number] for number in range(1, SIZE_16 // 2 + 1)]
    free = netaddr.IPSet(netaddr.IPRange(network[SIZE_16 // 2 + 1], network[-2]))
    owners = dict(zip(held, OWNERS, strict=False))

    def change(pick: int, owner: str) -> None:
        free.add(held[pick])
        del owners[held[pick]]
        held[pick] = next(iter(free))
        free.remove(held[pick])
        owners[held[pick]] = owner

    return lambda deadline: until(deadline, map(change, picks_of_churn(), OWNERS))


# Plain: walk over the hosts until one is not in use

Network = IPv4Network | IPv6Network
Used = dict[IPv4Address | IPv6Address, str]


def plain_claims(network: Network, used: Used, count: int) -> Work:
    def claim(owner: str) -> None:
        used[next(host for host in network.hosts() if host not in used)] = owner

    return lambda deadline: until(deadline, map(claim, OWNERS[:count]))


def plain_holes() -> Work:
    network = IPv4Network(CIDR_16)
    holes = set(holes_of_16())
    used: Used = {host: "early" for host in network.hosts() if int(host) not in holes}
    return plain_claims(network, used, HOLES)


def plain_strewn() -> Work:
    used: Used = {IPv4Address(value): "early" for value in holes_of_16()}
    return plain_claims(IPv4Network(CIDR_16), used, SIZE_16 - HOLES)


def plain_churn() -> Work:
    network = IPv4Network(CIDR_16)
    held = list(network.hosts())[: SIZE_16 // 2]
    used: Used = dict.fromkeys(held, "early")

    def change(pick: int, owner: str) -> None:
        del used[held[pick]]
        held[pick] = next(host for host in network.hosts() if host not in used)
        used[held[pick]] = owner

    return lambda deadline: until(deadline, map(change, picks_of_churn(), OWNERS))


SCENARIOS = (
    Scenario(
        title="65,534 lowest-first from a /16",
        fipop=lambda: fipop_claims(make_ranges(CIDR_16), Family.IPV4, SIZE_16),
        netaddr=lambda: netaddr_lowest_first(CIDR_16, SIZE_16),
        plain=lambda: plain_claims(IPv4Network(CIDR_16), {}, SIZE_16),
    ),
    Scenario(
        title="13,000 holes, freed at random in a full /16",
        fipop=fipop_holes,
        netaddr=netaddr_holes,
        plain=plain_holes,
    ),
    Scenario(
        title="a free /16 strewn with 13,000 holders",
        fipop=fipop_strewn,
        netaddr=netaddr_strewn,
        plain=plain_strewn,
    ),
    Scenario(
        title="100,000 random releases, each with a claim, in a half full /16",
        fipop=fipop_churn,
        netaddr=netaddr_churn,
        plain=plain_churn,
    ),
    Scenario(
        title="100,000 lowest-first from an IPv6 /64",
        fipop=lambda: fipop_claims(make_ranges(CIDR_64), Family.IPV6, MANY),
        netaddr=lambda: netaddr_lowest_first(CIDR_64, MANY),
        plain=lambda: plain_claims(IPv6Network(CIDR_64), {}, MANY),
    ),
)


def range_kib(text: str, family: Family, claims: int) -> float:
    """Return the peak memory of one range with some claims."""
    gc.collect()
    tracemalloc.start()
    try:
        ranges = make_ranges(text)
        for owner in OWNERS[:claims]:
            ranges.claim(family, owner)
        return tracemalloc.get_traced_memory()[1] / 1024
    finally:
        tracemalloc.stop()


def memory_table() -> list[str]:
    lines = ["| one range | empty, KiB | with 250 claims, KiB |", "|---|---:|---:|"]
    for text, family in (("10.0.0.0/24", Family.IPV4), ("10.0.0.0/8", Family.IPV4), ("::/0", Family.IPV6)):
        lines.append(f"| {text} | {range_kib(text, family, 0):.0f} | {range_kib(text, family, 250):.0f} |")
    return lines


def main() -> None:
    lines = [
        "## IPAM core",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "Allocations per second (of processor time) through the public API, with owners recorded.",
        f"fipop: the best of {REPEATS} runs. The others: one run. A run is stopped after {BUDGET_SECONDS:.0f} s.",
        "",
        "| work | fipop/s | netaddr.IPSet/s | ratio | ipaddress + dict/s | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    print("\n".join(lines), flush=True)
    rates: list[tuple[float, float]] = []
    for scenario in SCENARIOS:
        ours = measure(scenario.fipop, repeats=REPEATS)
        theirs = measure(scenario.netaddr, repeats=1)
        plain = measure(scenario.plain, repeats=1)
        rates.append((ours, theirs))
        lines.append(
            f"| {scenario.title} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:,.0f} | {plain:,.0f} "
            f"| {ours / plain:,.0f} |"
        )
        print(lines[-1], flush=True)
    (lowest, netaddr_lowest), (holes, netaddr_hole) = rates[:2]
    last = (
        f"ipam: lowest_first_per_s={lowest:.0f} holes_per_s={holes:.0f} "
        f"netaddr_ratio={lowest / netaddr_lowest:.0f} holes_netaddr_ratio={holes / netaddr_hole:.0f}"
    )
    memory = memory_table()
    write_section("ipam", [*lines, "", *memory, "", f"`{last}`"])
    print("", *memory, "", last, sep="\n")


if __name__ == "__main__":
    main()
