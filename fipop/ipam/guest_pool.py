"""Pools of a guest's ConfigMap: the grammar of `ipam.pool`, with the rules of kube-vip-cloud-provider.

They differ from those of a FloatingIPRange in what of a CIDR is assigned. Of an IPv6 CIDR its first address, too; of
an IPv4 CIDR up to /30 no x.x.x.0 and no x.x.x.255, as users write 192.168.1.0/24. With `skip_end_ips` the ends
go after the CIDRs were merged, so that two adjacent /30 of one /29 lose two addresses, and not four.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fipop.ipam.addresses import Family
from fipop.ipam.intervals import ORDINARY, AddressSet, IntervalSet
from fipop.ipam.pool import Part, parse_exclusions, parse_parts, union_of

LONGEST_WITH_ENDS = 30
"""The longest prefix of IPv4 that has a network and a broadcast address."""


def parse_guest_pool(text: str, *, exclude: str = "", skip_end_ips: bool = False) -> AddressSet:
    """Read what a key assigns: the union of its parts, without the exclusions (a text in the same grammar).

    PoolSyntaxError quotes the part and its position; PoolTooLargeError beyond the limits of `ipam.pool`.
    """
    parts = [part for _, _, part in parse_parts(text, "the pool")]
    excluded = union_of(parse_exclusions((exclude,) if exclude.strip() else ()))
    with_ends = [part for part in parts if _has_ends(part)]
    whole = union_of(part for part in parts if not _has_ends(part))
    merged = union_of(with_ends).v4
    if skip_end_ips:
        merged = IntervalSet.of(_inner(merged))
    ordinary = IntervalSet.of(((each.first, each.last) for each in merged.intervals), ORDINARY)
    return (whole | AddressSet(v4=ordinary)) - excluded


def _has_ends(part: Part) -> bool:
    is_cidr = part.family is Family.IPV4 and part.prefix_length is not None
    return is_cidr and (part.prefix_length or 0) <= LONGEST_WITH_ENDS


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
