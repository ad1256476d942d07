"""Which addresses a range would give out next, and why the rest is not."""

from __future__ import annotations

from dataclasses import dataclass, field

from fipop.errors import IpamError
from fipop.ipam.addresses import Family, format_address
from fipop.ipam.ledger import Ledger
from fipop.report.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeReport:
    """What a range would give out next, in its order, and why the rest is not.

    `withheld` counts addresses of the pool's text by why they are not given out; `problem` is "" where a new guest
    gets an address.
    """

    range: str
    space: str
    addresses: tuple[str, ...] = ()
    free: int = 0
    used: int = 0
    quarantined: int = 0
    withheld: dict[str, int] = field(default_factory=dict)
    problem: str


def report_free(picture: Picture, range_name: str, family: Family | None, count: int) -> FreeReport:
    """Report the next addresses of a range; RangeUnknownError where there is none of that name.

    This takes them out of the picture's own ledger: ask last.
    """
    ranges = picture.allocations.ranges
    ledger = ranges.ledger_of(range_name)
    space = ranges.space_of(range_name) or ""
    problem = ranges.problem_of(range_name)
    if problem is not None:
        return FreeReport(range=range_name, space=space, problem=str(problem))
    # As a new guest does: IPv4 where the range has any.
    chosen = family or min(ranges.families(range_name), default=Family.IPV4)
    snapshot = ledger.snapshot(range_name)
    usage = snapshot.ipv4 if chosen is Family.IPV4 else snapshot.ipv6
    addresses, complaint = _take(ledger, range_name, chosen, count)
    return FreeReport(
        range=range_name,
        space=space,
        addresses=tuple(addresses),
        free=0 if picture.ranges[range_name].draining else usage.free,
        used=usage.used,
        quarantined=usage.quarantined,
        withheld=_withheld(picture, range_name, chosen),
        problem="" if addresses else complaint,
    )


def _take(
    ledger: Ledger[tuple[str, str]], range_name: str, family: Family, count: int
) -> tuple[list[str], str]:
    addresses: list[str] = []
    for number in range(count):
        try:
            addresses.append(format_address(ledger.claim_next(range_name, family, ("", f"asked-{number}"))))
        except IpamError as error:
            return addresses, str(error)
    return addresses, ""


def _withheld(picture: Picture, range_name: str, family: Family) -> dict[str, int]:
    pool = picture.allocations.ranges.ledger_of(range_name).range(range_name).pool
    excluded = (pool.written & pool.excluded).of(family).count
    left = (pool.written - pool.excluded).of(family)
    older = [
        picture.allocations.ranges.ledger_of(each).range(each).pool
        for each in picture.allocations.ranges.conflicts(range_name)
    ]
    shared, rest = 0, pool.addresses.of(family)
    for each in older:
        common = rest & each.addresses.of(family)
        shared, rest = shared + common.count, rest - common
    counts = {
        "excluded": excluded,
        "ends of CIDRs, .0 and .255": left.count - pool.addresses.of(family).count,
        "of an older range": shared,
    }
    return {why: number for why, number in counts.items() if number}
