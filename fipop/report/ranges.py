"""How full the ranges are, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.addresses.range_status import build_conditions, describe_unknown_harvester, find_ineffective
from fipop.api.conditions import ConditionType
from fipop.api.objects import FloatingIPRange
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import RangeUsage, Usage
from fipop.report.snapshot import Kind, Snapshot

NEARLY_FULL_PERCENT = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range. Counts and `percent` are None if its pool, or not everything that takes addresses, can be read."""

    name: str
    space: str
    pool: str
    harvester_cluster: str
    harvester_network: str
    percent: float | None
    """What is used or in quarantine of what the range can assign, 0 to 100, in its fullest family."""
    family: str
    """The fullest family."""
    whole: Usage | None
    ipv4: Usage | None
    ipv6: Usage | None
    ready: bool
    draining: bool
    state: str
    """Ready, NearlyFull or Full for a range that assigns addresses, Unknown if that is not known, else `reason`."""
    reason: str
    message: str
    conflict: str
    lack: str
    """Why it assigns no address of its fullest family at all, and the remedy; "" if it assigns any."""
    notes: tuple[str, ...]
    """What of the range has no effect, or means another thing than it shows."""

    @property
    def families(self) -> tuple[tuple[str, Usage], ...]:
        """The usage of the fullest family, and of the other if that counts anything; none if it is not known."""
        found = (Family.IPV4.label, self.ipv4), (Family.IPV6.label, self.ipv6)
        return tuple(
            (label, usage)
            for label, usage in found
            if usage is not None and (label == self.family or any(usage))
        )


def report_ranges(snapshot: Snapshot) -> tuple[RangeReport, ...]:
    """Report all ranges, by name."""
    usages = snapshot.cache.count()
    return tuple(_report(snapshot, each, usages.get(each.name)) for each in snapshot.cache.ranges.all())


def _report(snapshot: Snapshot, found: FloatingIPRange, usage: RangeUsage | None) -> RangeReport:
    read = snapshot.cache.pools.get(found.name)
    is_rancher_read = snapshot.is_read(Kind.HARVESTERS)
    unknown = describe_unknown_harvester(snapshot.cache, found) if is_rancher_read else ""
    conditions = {each.type: each for each in build_conditions(snapshot.cache, found, usage, unknown)}
    ready, conflict = conditions[ConditionType.READY], conditions[ConditionType.CONFLICT]
    families = {}
    if usage is not None and read is not None:
        counts = {Family.IPV4: usage.ipv4, Family.IPV6: usage.ipv6}
        written = (each for each in Family if read.pool.written.of(each))
        families = {each: counts[each] for each in read.pool.families or written}
    fullest = max(families, key=lambda each: families[each].percent, default=Family.IPV4)
    percent = families.get(fullest, Usage()).percent
    state = ready.reason
    if ready.is_true and not snapshot.is_counted:
        state = "Unknown"
    elif ready.is_true and percent >= NEARLY_FULL_PERCENT:
        is_full = any(each.free == 0 for each in families.values())
        state = "Full" if is_full else "NearlyFull"
    whole, ipv4, ipv6 = usage if usage is not None and snapshot.is_counted else (None, None, None)
    return RangeReport(
        name=found.name,
        space=found.spec.address_space,
        pool=found.spec.iprange,
        harvester_cluster=found.harvester_cluster or "",
        harvester_network=found.harvester_network or "",
        percent=percent if whole is not None else None,
        family=fullest.label,
        whole=whole,
        ipv4=ipv4,
        ipv6=ipv6,
        ready=ready.is_true,
        draining=found.spec.draining,
        state=state,
        reason=ready.reason,
        message=ready.message,
        conflict=conflict.message,
        lack=snapshot.cache.pools.describe_lack(found.name, fullest) if read is not None else "",
        notes=find_ineffective(snapshot.cache, found, usage) if usage is not None else (),
    )
