"""What the status of a range says: whether it can be read, what it means, who overlaps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fipop.addresses.inventory import Inventory
from fipop.addresses.request import describe_problem
from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.api.objects import FloatingIPRange, RangeStatus, build_capacity
from fipop.ipam.addresses import Family
from fipop.ipam.ranges import MOST_NAMED, OVERLAP_REMEDY, RangeUsage
from fipop.texts import count_text, sentence, suggest


def build_status(
    inventory: Inventory, found: FloatingIPRange, usage: RangeUsage | None, now: datetime
) -> RangeStatus:
    """Return the status of a range: its usage, None if it cannot be read, and its conditions.

    What guest clusters use without a floating IP stays as it is.
    """
    conditions = build_conditions(inventory, found, usage)
    return replace(
        found.status,
        capacity=build_capacity(usage) if usage is not None else None,
        conditions=merge_conditions(found.status.conditions, conditions, now),
        observed_generation=found.metadata.generation,
    )


def describe_unknown_harvester(inventory: Inventory, found: FloatingIPRange) -> str:
    """Return a sentence if Rancher does not have the Harvester cluster of a range; "" if it has."""
    clusters = inventory.management.all()
    wanted = found.harvester_cluster
    if not wanted or any(each.may_be_harvester and each.display_name == wanted for each in clusters):
        return ""
    known = sorted(each.display_name for each in clusters if each.is_harvester)
    shown = ", ".join(f'"{each}"' for each in known) or "none"
    return (
        f'Rancher has no Harvester cluster "{wanted}"{suggest(wanted, known)}: it has {shown}. Correct the annotation '
        "harvesterClusterName, or import the cluster into Rancher with that name."
    )


def build_conditions(
    inventory: Inventory, found: FloatingIPRange, usage: RangeUsage | None
) -> tuple[Condition, ...]:
    """Say whether the range can be read and what it means, and which older ranges take addresses from it.

    A range may be made before its Harvester cluster is imported, and serves floating IPs that name it: it is ready
    all the same.
    """
    others = inventory.pools.older(found.name) if usage is not None else []
    status, reason = Verdict.FALSE, "Invalid"
    if usage is None:
        message = describe_problem(found.name, inventory.problems.get(found.name), reason).message
    elif found.spec.draining:
        reason = "Draining"
        message = f'Range "{found.name}" is draining: it assigns no addresses, and FloatingIPs keep theirs.'
    else:
        unknown = describe_unknown_harvester(inventory, found)
        status, reason = Verdict.TRUE, "HarvesterNotFound" if unknown else "Ready"
        notes = (
            describe_total(inventory, found, usage),
            describe_overlap(inventory, found, usage, others),
            *find_ineffective(inventory, found, is_used=usage.whole.used > 0 or usage.whole.out_of_range > 0),
            unknown,
        )
        message = " ".join(filter(None, notes))
    message = " ".join((message, *found.spelling_warnings))
    ready = Condition(type=ConditionType.READY, status=status, reason=reason, message=message)
    conflict = Condition(
        type=ConditionType.CONFLICT,
        status=Verdict.TRUE if others else Verdict.FALSE,
        reason="Overlap" if others else "NoOverlap",
        message=f'Range "{found.name}" overlaps the older {", ".join(others)}. {OVERLAP_REMEDY}.'
        if others
        else "",
    )
    return tuple(
        replace(condition, observed_generation=found.metadata.generation) for condition in (ready, conflict)
    )


def describe_total(inventory: Inventory, found: FloatingIPRange, usage: RangeUsage) -> str:
    """Return how many addresses a range assigns, each family apart; of none, why."""
    totals = {Family.IPV4: usage.ipv4.total, Family.IPV6: usage.ipv6.total}
    parts = [f"{count_text(total)} {family.label}" for family, total in totals.items() if total]
    if parts:
        noun = "address" if usage.whole.total == 1 else "addresses"
        return f'Range "{found.name}" has {" and ".join(parts)} {noun}.'
    lacks = (inventory.pools.describe_lack(found.name, family) for family in Family)
    return f'Range "{found.name}" has no addresses: {". ".join(filter(None, lacks))}.'


def describe_overlap(
    inventory: Inventory, found: FloatingIPRange, usage: RangeUsage, older: Sequence[str]
) -> str:
    """Return how many addresses of a range older ranges assign, and which; "" if none or all."""
    read = inventory.pools.get(found.name)
    if read is None or not older or not usage.whole.total:
        return ""
    lost = sum(read.pool.addresses.of(family).count for family in Family) - usage.whole.total
    names = ", ".join(f'"{each}"' for each in older[:MOST_NAMED])
    return f"{count_text(lost)} of its addresses are those of older ranges: {names}. {OVERLAP_REMEDY}."


def find_ineffective(inventory: Inventory, found: FloatingIPRange, *, is_used: bool) -> tuple[str, ...]:
    """Return a sentence about each part of a range that means another thing than it shows, or has no effect.

    `is_used`: floating IPs hold its addresses.
    """
    ranges, spec = inventory.pools, found.spec
    read = ranges.get(found.name)
    if read is None:
        return ()
    pool = read.pool
    notes = [
        f"{each}. Write the network, or one address without prefix length."
        for each in pool.masked[:MOST_NAMED]
    ]
    notes += [
        f"The exclusion {each} is outside of spec.iprange and excludes nothing. Correct spec.exclude."
        for each in pool.outside[:MOST_NAMED]
    ]
    # Without any address at all, that is what the range says first.
    lacking = [family for family in Family if family not in pool.families] if pool.families else []
    notes += filter(None, (sentence(ranges.describe_lack(found.name, family)) for family in lacking))
    if spec.per_guest and spec.max_per_guest and spec.per_guest.max_allocate > spec.max_per_guest:
        notes.append(
            f"The limit spec.perGuest.maxAllocate is {spec.per_guest.max_allocate}, but spec.maxPerGuest allows a "
            f"guest cluster only {spec.max_per_guest}. Raise maxPerGuest, or lower maxAllocate."
        )
    if not found.harvester_cluster and found.match_labels is None and not is_used:
        serves = "no guest cluster" if spec.restrict_to_matching else "only FloatingIPs that name it"
        notes.append(
            f"The range serves {serves}: it has neither the annotation harvesterClusterName nor spec.clusterSelector. "
            "Set one to serve new guest clusters."
        )
    return tuple(notes)
