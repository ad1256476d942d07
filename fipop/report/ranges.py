"""How full the ranges are, how fast they fill, and what stands in their way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from fipop.api.conditions import ConditionType
from fipop.api.objects import FloatingIPRange, FloatingIPReservation
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage, Usage
from fipop.operator.addresses.ranges import build_conditions, describe_unknown_harvester
from fipop.report.snapshot import ClusterSnapshot, Kind, read_address

FORECAST_WINDOW = timedelta(days=30)
LEAST_FORECAST_WINDOW = timedelta(days=1)
"""Growth over less time says nothing about the weeks to come."""
NEARLY_FULL_PERCENT = 90.0
_LONGEST_FORECAST_DAYS = 3650.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range.

    `percent` is what is used or in quarantine of what the range can give, 0 to 100, of its fullest `family`.
    `state` is Ready, NearlyFull or Full for a range that gives addresses, Unknown if that is not known, else `reason`.
    `growth_per_day` are assignments less releases, all families together; None if releases are not remembered long
    enough to tell. `full_in_days` is None if no family fills. Counts are None if what takes addresses could not be
    read.
    """

    name: str
    space: str
    pool: str
    harvester_cluster: str
    harvester_network: str
    percent: float | None
    family: str
    whole: Usage | None
    ipv4: Usage | None
    ipv6: Usage | None
    growth_per_day: float | None
    full_in_days: float | None
    ready: bool
    draining: bool
    state: str
    reason: str
    message: str
    conflict: str

    @property
    def fullest(self) -> Usage | None:
        """The usage of the fullest family."""
        return self.ipv6 if self.family == Family.IPV6.label else self.ipv4


def report_ranges(snapshot: ClusterSnapshot) -> tuple[RangeReport, ...]:
    """Report all ranges, by name."""
    found = snapshot.cache.ranges.all()
    grown = _count_growth(snapshot, {each.name: _window_of(snapshot, each) for each in found})
    usages = snapshot.cache.ledger.count()
    return tuple(_report(snapshot, each, usages.get(each.name), grown) for each in found)


RANGE_COLUMNS = (
    *("range", "space", "pool", "percent", "used", "quarantined", "free", "total", "outOfRange"),
    *("growthPerDay", "fullInDays", "reason", "conflict", "family", "state"),
)


def range_row(each: RangeReport) -> tuple[str, ...]:
    """Return the cells of a range in a CSV table; "" for what is not known."""
    whole = each.whole
    counts: tuple[int | None, ...] = (None,) * 5
    if whole is not None:
        counts = whole.used, whole.quarantined, whole.free, whole.total, whole.out_of_range
    return (
        *(each.name, each.space, each.pool, render_number(each.percent), *map(render_number, counts)),
        *(render_number(each.growth_per_day), render_number(each.full_in_days), each.reason, each.conflict),
        *(each.family, each.state),
    )


def render_number(number: float | None) -> str:
    """Write a number without needless digits; "" for one that is not known."""
    return "" if number is None else str(number) if isinstance(number, int) else f"{number:g}"


def percent_of(usage: Usage) -> float:
    """Return how full that is, 0 to 100; what has no address at all is full."""
    taken = usage.used + usage.quarantined
    return round(100 * taken / usage.total, 1) if usage.total else 100.0


def _report(
    snapshot: ClusterSnapshot,
    found: FloatingIPRange,
    usage: RangeUsage | None,
    grown: Counter[tuple[str, Family]],
) -> RangeReport:
    read = snapshot.cache.ledger.ranges.get(found.name)
    is_rancher_read = snapshot.is_read(Kind.HARVESTERS)
    unknown = describe_unknown_harvester(snapshot.cache, found) if is_rancher_read else ""
    conditions = {each.type: each for each in build_conditions(snapshot.cache, found, usage, unknown)}
    ready, conflict = conditions[ConditionType.READY], conditions[ConditionType.CONFLICT]
    families = {}
    if usage is not None and read is not None:
        counts = {Family.IPV4: usage.ipv4, Family.IPV6: usage.ipv6}
        families = {each: counts[each] for each in sorted(read.pool.families)}
    fullest = max(families, key=lambda each: percent_of(families[each]), default=Family.IPV4)
    percent = percent_of(families.get(fullest, Usage()))
    state = ready.reason
    if ready.is_true and not snapshot.is_counted:
        state = "Unknown"
    elif ready.is_true and percent >= NEARLY_FULL_PERCENT:
        is_full = not families or any(each.free == 0 for each in families.values())
        state = "Full" if is_full else "NearlyFull"
    growth, days = _forecast(snapshot, found, families, grown)
    whole, ipv4, ipv6 = (usage or RangeUsage()) if snapshot.is_counted else (None, None, None)
    return RangeReport(
        name=found.name,
        space=found.spec.address_space,
        pool=found.spec.iprange,
        harvester_cluster=found.harvester_cluster or "",
        harvester_network=found.harvester_network or "",
        percent=percent if snapshot.is_counted else None,
        family=fullest.label,
        whole=whole,
        ipv4=ipv4,
        ipv6=ipv6,
        growth_per_day=growth,
        full_in_days=days,
        ready=ready.is_true,
        draining=found.spec.draining,
        state=state,
        reason=ready.reason,
        message=ready.message,
        conflict=conflict.message,
    )


def _forecast(
    snapshot: ClusterSnapshot,
    found: FloatingIPRange,
    families: dict[Family, Usage],
    grown: Counter[tuple[str, Family]],
) -> tuple[float | None, float | None]:
    """Return the growth of a range per day, and in how many days the first of its families is full."""
    window = _window_of(snapshot, found)
    if window < LEAST_FORECAST_WINDOW or not snapshot.is_counted:
        return None, None
    per_day = {each: grown[found.name, each] / (window / timedelta(days=1)) for each in families}
    days = min((families[each].free / rate for each, rate in per_day.items() if rate > 0), default=None)
    is_near = days is not None and days < _LONGEST_FORECAST_DAYS
    return round(sum(per_day.values()), 2), round(days, 1) if days is not None and is_near else None


def _window_of(snapshot: ClusterSnapshot, found: FloatingIPRange) -> timedelta:
    """Return for how long every release of a range is remembered: a reservation ends with its quarantine."""
    quarantine = timedelta(seconds=found.spec.quarantine_seconds)
    return min(FORECAST_WINDOW, quarantine, snapshot.now - found.created)


def _count_growth(snapshot: ClusterSnapshot, windows: dict[str, timedelta]) -> Counter[tuple[str, Family]]:
    """Count by range and family how many more addresses are held now than at the beginning of the range's window."""
    grown: Counter[tuple[str, Family]] = Counter()
    for each in snapshot.cache.reservations.all():
        address = read_address(each.spec.address)
        if address is not None and each.spec.range in windows:
            begin = snapshot.now - windows[each.spec.range]
            grown[each.spec.range, address.family] += each.is_held - _was_held(each, begin)
    return grown


def _was_held(found: FloatingIPReservation, moment: datetime) -> bool:
    """Whether an address was held at a time; when past owners got it is not kept: each counts from the one before."""
    if found.spec.since < moment:
        return found.is_held or (bool(found.spec.history) and found.spec.history[0].released_at >= moment)
    earlier = found.spec.history if found.is_held else found.spec.history[1:]
    return any(past.released_at >= moment for past in earlier)
