"""How full the ranges are, how fast they fill, and what stands in their way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from fipop.api.conditions import ConditionType
from fipop.api.models import FloatingIPRange, Reservation
from fipop.ipam.ledger import RangeUsage, Usage
from fipop.operator.addresses.ranges import build_conditions
from fipop.report.picture import Picture

FORECAST_DAYS = 30
_LONGEST_FORECAST_DAYS = 3650.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range.

    `percent` is what is used or in quarantine, 0 to 100, of what the range can give out. `growth_per_day` is the mean
    of the last FORECAST_DAYS days, assignments less releases; `full_in_days` is None where the range does not fill.
    """

    name: str
    space: str
    pool: str
    harvester_cluster: str
    harvester_network: str
    percent: float
    whole: Usage
    ipv4: Usage
    ipv6: Usage
    growth_per_day: float
    full_in_days: float | None
    ready: bool
    draining: bool
    reason: str
    message: str
    conflict: str


def report_ranges(picture: Picture) -> tuple[RangeReport, ...]:
    """Report all ranges, by name."""
    grown = _growth(picture)
    return tuple(_report(picture, each, grown.get(name, 0)) for name, each in sorted(picture.ranges.items()))


def _report(picture: Picture, found: FloatingIPRange, grown: int) -> RangeReport:
    usage = picture.allocations.ranges.usage(found.name)
    conditions = {each.type: each for each in build_conditions(found, picture.allocations, usage)}
    ready, conflict = conditions[ConditionType.READY], conditions[ConditionType.CONFLICT]
    whole, ipv4, ipv6 = usage or RangeUsage()
    per_day = grown / FORECAST_DAYS
    days = whole.free / per_day if per_day > 0 else None
    return RangeReport(
        name=found.name,
        space=found.address_space,
        pool=found.iprange,
        harvester_cluster=found.harvester_cluster or "",
        harvester_network=found.harvester_network or "",
        percent=percent_of(whole),
        whole=whole,
        ipv4=ipv4,
        ipv6=ipv6,
        growth_per_day=round(per_day, 2),
        full_in_days=round(days, 1) if days is not None and days < _LONGEST_FORECAST_DAYS else None,
        ready=ready.is_true,
        draining=found.draining,
        reason=ready.reason,
        message=ready.message,
        conflict=conflict.message,
    )


def percent_of(usage: Usage) -> float:
    """Give how full that is, 0 to 100; what has no address at all is full."""
    taken = usage.used + usage.quarantined
    return round(100 * taken / usage.total, 1) if usage.total else 100.0


def _growth(picture: Picture) -> dict[str, int]:
    """Count by range how many more addresses are held now than were some days ago."""
    begin = picture.facts.now - timedelta(days=FORECAST_DAYS)
    grown: dict[str, int] = {}
    for each in picture.facts.reservations:
        grown[each.range] = grown.get(each.range, 0) + each.is_held - _was_held(each, begin)
    return grown


def _was_held(found: Reservation, moment: datetime) -> bool:
    """Whether an address was held at a time; when past owners got it is not kept: each counts from the one before."""
    if found.since < moment:
        return found.is_held or (bool(found.history) and found.history[0].released_at >= moment)
    earlier = found.history if found.is_held else found.history[1:]
    return any(past.released_at >= moment for past in earlier)
