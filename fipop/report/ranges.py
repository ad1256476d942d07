"""How full the ranges are, and what is wrong with them, as the operator wrote it into their statuses."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from fipop.addresses.range_status import find_ineffective
from fipop.api.conditions import Condition, ConditionType, Verdict, find_condition
from fipop.api.objects import AddressCounts, Capacity, FloatingIPRange, RangeStatus
from fipop.ipam.addresses import Family
from fipop.report.snapshot import Snapshot

NEARLY_FULL_PERCENT = 90.0
NOT_COUNTED = Condition(
    type=ConditionType.READY,
    status=Verdict.UNKNOWN,
    reason="Unknown",
    message="The operator has not counted the range since it was created or changed.",
)


class FamilyUsage(NamedTuple):
    """How full a family is that a range assigns; `free` and `total` as texts, exact up to 2^32."""

    family: str
    usage: AddressCounts
    free: str
    total: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One range. If its status is of a former spec, it has one that says so instead."""

    range: FloatingIPRange
    lack: str
    """Why it assigns no address of a family of its pool, and the remedy; "" if it assigns some of each."""
    notes: tuple[str, ...]
    """What of the range has no effect, or means another thing than it shows."""

    @property
    def ready(self) -> Condition:
        """The condition Ready."""
        return find_condition(self.range.status.conditions, ConditionType.READY) or NOT_COUNTED

    @property
    def conflict(self) -> str:
        """Which older ranges take addresses from it; "" for none."""
        found = find_condition(self.range.status.conditions, ConditionType.CONFLICT)
        return found.message if found is not None and found.is_true else ""

    @property
    def families(self) -> tuple[FamilyUsage, ...]:
        """The usage of each family of which it assigns addresses, IPv4 first."""
        found = self.range.status.capacity or Capacity()
        columns = ((Family.IPV4, found.ipv4, found.free_ipv4), (Family.IPV6, found.ipv6, found.free_ipv6))
        return tuple(
            FamilyUsage(each.label, usage, *text.split("/")) for each, usage, text in columns if text
        )

    @property
    def fullest(self) -> FamilyUsage | None:
        """The fullest family; None if it assigns no address."""
        return max(self.families, key=lambda each: each.usage.percent, default=None)

    @property
    def state(self) -> str:
        """Ready, NearlyFull or Full for a range that assigns addresses, else the reason of its condition Ready."""
        if not self.ready.is_true:
            return self.ready.reason
        if self.lack or any(each.usage.free == 0 for each in self.families):
            return "Full"
        is_nearly_full = any(each.usage.percent >= NEARLY_FULL_PERCENT for each in self.families)
        return "NearlyFull" if is_nearly_full else self.ready.reason

    def to_fields(self) -> dict[str, object]:
        """Return the fields of the JSON."""
        found, capacity, fullest = self.range, self.range.status.capacity, self.fullest
        counts = dict.fromkeys(("whole", "ipv4", "ipv6"))
        if capacity is not None:
            whole = {each.name: getattr(capacity, each.name) for each in fields(AddressCounts)}
            counts = {"whole": AddressCounts(**whole), "ipv4": capacity.ipv4, "ipv6": capacity.ipv6}
        return {
            "name": found.name,
            "space": found.spec.address_space,
            "pool": found.spec.iprange,
            "harvesterCluster": found.harvester_cluster or "",
            "harvesterNetwork": found.harvester_network or "",
            "percent": fullest.usage.percent if fullest is not None else None,
            "family": fullest.family if fullest is not None else Family.IPV4.label,
            **counts,
            "ready": self.ready.is_true,
            "draining": found.spec.draining,
            "state": self.state,
            "reason": self.ready.reason,
            "message": self.ready.message,
            "conflict": self.conflict,
            "lack": self.lack,
            "notes": self.notes,
        }


def report_ranges(snapshot: Snapshot) -> tuple[RangeReport, ...]:
    """Report all ranges, by name."""
    return tuple(_report(snapshot, each) for each in snapshot.inventory.ranges.all())


def _report(snapshot: Snapshot, found: FloatingIPRange) -> RangeReport:
    status, pools, lacks = found.status, snapshot.inventory.pools, list[str]()
    if not status.conditions or status.observed_generation != found.metadata.generation:
        status = RangeStatus(conditions=(NOT_COUNTED,))
    read, capacity = pools.get(found.name), status.capacity
    if read is not None:
        written = [each for each in Family if read.pool.written.of(each)]
        lacks = [pools.describe_lack(found.name, each) for each in read.pool.families or written]
    is_used = capacity is not None and bool(capacity.used or capacity.out_of_range)
    return RangeReport(
        range=replace(found, status=status),
        lack=next(filter(None, lacks), ""),
        notes=find_ineffective(snapshot.inventory, found, is_used=is_used) if capacity is not None else (),
    )
