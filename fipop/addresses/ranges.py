"""Reconcile one FloatingIPRange: its status says how full it is, whether it can be read, and who overlaps it."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.request import Blocker
from fipop.api.codec import write_patch
from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.api.objects import FloatingIPRange, RangeStatus, Reported, build_capacity
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, NotFoundError
from fipop.interfaces import loop_time
from fipop.ipam.addresses import Family, format_address
from fipop.ipam.errors import IpamError, UnreadableSpecError
from fipop.ipam.ranges import MOST_NAMED, OVERLAP_REMEDY, RangeUsage
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
)
from fipop.rancher.objects import ManagementCluster
from fipop.runtime.queues import Event, Key, Request, WorkQueues
from fipop.runtime.workqueue import Priority, RetryAfter
from fipop.texts import count_text, sentence

logger = logging.getLogger(__name__)

KIND = "ranges"
"""The kind of the one key: all ranges, which are counted together."""
COUNT_SECONDS = 1.0
"""How long changes of what ranges hold are gathered until the ranges are counted: they are written at most so often."""
GATE_RETRY_SECONDS = 5.0
"""When work is tried again that waits for the gate."""
REPORTED_SECONDS = 60.0
"""What guest clusters use without a floating IP is written at most so often for each range."""
MAX_REPORTED, MAX_REPORTED_OF_GUEST = 1024, 64
"""How many of these addresses a status shows, in all and of each guest cluster."""
RECOUNT_SECONDS = 60.0
"""How soon they are counted without a change: what guest clusters report causes none."""


def request_count(delay_seconds: float = COUNT_SECONDS) -> Request:
    """Request a count of all ranges: one key for all of them, so that a change costs the same with many."""
    return Request(Key(KIND, "", ""), Priority.BACKGROUND, delay_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReconciler:
    """Writes the status of ranges, when it changed."""

    client: KubeClient
    inventory: Inventory
    queues: WorkQueues
    events: EventRecorder
    is_gate_open: Callable[[], bool]
    """Returns whether it is known which addresses guest clusters use: these count, too."""
    is_traced: Callable[[], bool] = lambda: False
    """Returns whether the ledger is logged at each count (option traceIpamData)."""
    _reported_at: dict[str, float] = field(default_factory=dict)
    """By range, when what guest clusters use was last written."""

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield a count of the ranges if an event may change the status of one: at once if a range was edited."""
        change = event.change
        sides = [side for side in (change.old, change.new) if side is not None]
        if event.resource == FLOATING_IP_RANGES and is_respecified(change.old, change.new):
            yield request_count(0.0)
        elif event.resource in {FLOATING_IPS, FLOATING_IP_RESERVATIONS} or (
            # Whether the Harvester cluster of a range is in Rancher.
            event.resource == MANAGEMENT_CLUSTERS and any(map(may_be_harvester, sides))
        ):
            yield request_count()

    async def reconcile(self) -> RetryAfter:
        """Count all ranges, and write the statuses that changed."""
        if not self.is_gate_open():
            return RetryAfter(GATE_RETRY_SECONDS)
        if self.is_traced():
            self._trace()
        usages, problem = self.inventory.count(), None
        for each in self.inventory.ranges.all():
            try:
                if self.inventory.ranges.get("", each.name) == each:  # else its event has it counted again
                    await self._settle(each, usages.get(each.name))
            except ApiError as error:
                problem = error  # of one range: the others have their status all the same
                if error.is_refusal:
                    about = reference_to(FLOATING_IP_RANGES, each.metadata)
                    self.events.record(about, EventType.WARNING, WRITE_REFUSED, error.explain())
        if problem is not None:
            raise problem
        return RetryAfter(RECOUNT_SECONDS)

    async def _settle(self, found: FloatingIPRange, usage: RangeUsage | None) -> None:
        """Write the status of a range if it changed; what guest clusters use, at most once a minute."""
        read = self.inventory.pools.get(found.name)
        families = read.pool.families if read is not None else ()
        capacity = build_capacity(usage, families) if usage is not None else None
        unknown = describe_unknown_harvester(self.inventory, found)
        conditions = build_conditions(self.inventory, found, usage, unknown)
        before = found.status
        reported, count = self._find_reported(found)
        if loop_time() - self._reported_at.get(found.name, -math.inf) < REPORTED_SECONDS:
            reported, count = before.reported, before.reported_count
        wanted = RangeStatus(
            capacity=capacity,
            reported=reported,
            reported_count=count,
            conditions=merge_conditions(before.conditions, conditions, self.client.server_now()),
            observed_generation=found.metadata.generation,
        )
        is_written = wanted != before and await self._write(found, write_patch(wanted))
        if is_written and (reported, count) != (before.reported, before.reported_count):
            self._reported_at[found.name] = loop_time()

    def _find_reported(self, found: FloatingIPRange) -> tuple[tuple[Reported, ...], int | None]:
        """Return what guest clusters use without a floating IP, and its count; None for none.

        Of more than the status shows, those come first that can be learnt only from there: of guest clusters that
        cannot be read.
        """
        every: defaultdict[str, list[Reported]] = defaultdict(list)
        for guest_id, address in sorted(self.inventory.find_foreign_uses(found.name)):
            every[guest_id].append(Reported(format_address(address), guest_id))
        by_need = sorted(every, key=lambda each: (self.inventory.reports.unread_since(each) is None, each))
        shown = [one for guest_id in by_need for one in every[guest_id][:MAX_REPORTED_OF_GUEST]]
        return tuple(sorted(shown[:MAX_REPORTED])), sum(map(len, every.values())) or None

    def _trace(self) -> None:
        for name, usage in self.inventory.count().items():
            logger.info("IPAM data of range", extra={"range": name, **usage.whole.counts()})
        for each in self.inventory.reservations.all():
            spec, owner = each.spec, "/".join(each.spec.owner.key)
            fields = {"address": spec.address, "space": spec.space, "range": spec.range, "owner": owner}
            state = "held" if each.is_held else "quarantined"
            logger.info("IPAM data of address", extra={**fields, "state": state})

    async def _write(self, found: FloatingIPRange, status: Json) -> bool:
        """Write a status; return whether it was written. Raises ApiError."""
        patch = {
            "metadata": {"resourceVersion": str(found.resource_version), "uid": found.uid},
            "status": status,
        }
        try:
            answer = await self.client.merge_patch(
                FLOATING_IP_RANGES, found.name, patch, subresource="status"
            )
        except NotFoundError:
            return False  # the event of its end has the others counted
        except ConflictError:
            answer = await self.client.get(FLOATING_IP_RANGES, found.name) or {}
            self.queues.add(request_count())
            if answer:
                self.inventory.observe(FLOATING_IP_RANGES, answer)
            return False
        self.inventory.observe(FLOATING_IP_RANGES, answer)
        return True


def may_be_harvester(cluster: ManagementCluster) -> bool:
    """Return whether a cluster is a Harvester cluster, or just imported, so that Rancher does not know what it is."""
    return cluster.is_harvester or not cluster.provider


def describe_unknown_harvester(inventory: Inventory, found: FloatingIPRange) -> str:
    """Return a sentence if Rancher does not have the Harvester cluster of a range; "" if it has."""
    clusters = inventory.management.all()
    wanted = found.harvester_cluster
    if not wanted or any(may_be_harvester(each) and each.display_name == wanted for each in clusters):
        return ""
    known = ", ".join(sorted(f'"{each.display_name}"' for each in clusters if each.is_harvester))
    return (
        f'Rancher has no Harvester cluster "{wanted}": it has {known or "none"}. Correct the annotation '
        "harvesterClusterName, or import the cluster into Rancher with that name."
    )


def build_conditions(
    inventory: Inventory, found: FloatingIPRange, usage: RangeUsage | None, unknown: str = ""
) -> tuple[Condition, ...]:
    """Say whether the range can be read and what it means, and which older ranges take addresses from it.

    `unknown`: that its Harvester cluster is not in Rancher. A range may be made before that cluster is imported, and
    serves floating IPs that name it: it is ready all the same.
    """
    others = inventory.pools.older(found.name) if usage is not None else []
    status, reason = Verdict.FALSE, "Invalid"
    if usage is None:
        message = describe_problem(found.name, inventory.problems.get(found.name), reason).message
    elif found.spec.draining:
        reason = "Draining"
        message = f'Range "{found.name}" is draining: it assigns no addresses, and FloatingIPs keep theirs.'
    else:
        status, reason = Verdict.TRUE, "HarvesterNotFound" if unknown else "Ready"
        notes = (
            describe_total(inventory, found, usage),
            describe_overlap(inventory, found, usage, others),
            *find_ineffective(inventory, found, usage),
            unknown,
        )
        message = " ".join(filter(None, notes))
    message = " ".join((message, *found.oddities))
    ready = Condition(type=ConditionType.READY, status=status, reason=reason, message=message)
    conflict = Condition(
        type=ConditionType.CONFLICT,
        status=Verdict.TRUE if others else Verdict.FALSE,
        reason="Overlap" if others else "NoOverlap",
        message=f'Range "{found.name}" overlaps the older {", ".join(others)}.' if others else "",
    )
    return tuple(
        replace(condition, observed_generation=found.metadata.generation) for condition in (ready, conflict)
    )


def describe_problem(name: str, problem: IpamError | None, reason: str) -> Blocker:
    """Return why a range cannot be read."""
    remedy = "it" if isinstance(problem, UnreadableSpecError) else "spec.iprange or spec.exclude"
    return Blocker(reason=reason, message=f'Range "{name}" is invalid: {problem}. Correct {remedy}.')


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


def find_ineffective(inventory: Inventory, found: FloatingIPRange, usage: RangeUsage) -> tuple[str, ...]:
    """Return a sentence about each part of a range that means another thing than it shows, or has no effect."""
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
    is_used = usage.whole.used or usage.whole.out_of_range
    if not found.harvester_cluster and found.match_labels is None and not is_used:
        serves = "no guest cluster" if spec.restrict_to_matching else "only FloatingIPs that name it"
        notes.append(
            f"The range serves {serves}: it has neither the annotation harvesterClusterName nor spec.clusterSelector. "
            "Set one to serve new guest clusters."
        )
    return tuple(notes)
