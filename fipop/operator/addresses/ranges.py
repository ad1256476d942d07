"""Reconcile one FloatingIPRange: its status says how full it is, whether it can be read, and who overlaps it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.api.models import FloatingIPRange
from fipop.api.rendering import INT64_MAX, render_capacity, render_range_status
from fipop.errors import ConflictError, NotFoundError
from fipop.ipam.allocator import RangeUsage
from fipop.ipam.errors import AddressSpaceChangedError, IpamError
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
)
from fipop.operator.addresses.values import Blocker, blocker_of
from fipop.operator.queues import Event, Key, Kind, Request, WorkQueues
from fipop.rancher.objects import ManagementCluster
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Priority, RetryAfter
from fipop.state.allocations import Allocations
from fipop.state.cache import ClusterCache

COUNT_SECONDS = 1.0
"""How long changes of what ranges hold are gathered until the ranges are counted: they are written at most so often."""
RECOUNT_SECONDS = 60.0
"""How soon they are counted without a change: a claim that fails causes none, and counts until then."""


def request_count(delay_seconds: float = COUNT_SECONDS) -> Request:
    """Request a count of all ranges: one key for all of them, so that a change costs the same with many."""
    return Request(Key(Kind.RANGE, "", ""), Priority.BACKGROUND, delay_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReconciler:
    """Writes the status of ranges, when it changed."""

    client: KubeClient
    cache: ClusterCache
    queues: WorkQueues

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield a count of the ranges if an event may change the status of one: at once if a range was edited."""
        change = event.change
        sides = [side for side in (change.old, change.new) if side is not None]
        if event.resource == FLOATING_IP_RANGES and is_respecified(change):
            yield request_count(0.0)
        elif event.resource in {FLOATING_IPS, FLOATING_IP_RESERVATIONS} or (
            # Whether the Harvester cluster of a range is in Rancher.
            event.resource == MANAGEMENT_CLUSTERS and any(map(may_be_harvester, sides))
        ):
            yield request_count()

    async def reconcile(self, name: str) -> RetryAfter | None:
        """Write the status of a range if it changed; without a name, count all, and request those to write."""
        if not name:
            return await self._count()
        found = self.cache.ranges.get("", name)
        wanted = self._find_new_status(found) if found is not None else None
        return await self._write(found, *wanted) if found is not None and wanted is not None else None

    async def _count(self) -> RetryAfter:
        for each in self.cache.ranges.all():
            if self._find_new_status(each) is not None:
                self.queues.add(Request(Key(Kind.RANGE, "", each.name), Priority.BACKGROUND))
            await asyncio.sleep(0)  # there may be hundreds
        return RetryAfter(RECOUNT_SECONDS)

    def _find_new_status(self, found: FloatingIPRange) -> tuple[Json | None, tuple[Condition, ...]] | None:
        """Return the capacity and the conditions to write; None if the status has them."""
        counted = self.cache.allocations.ranges.usage(found.name)
        capacity = render_capacity(counted) if counted is not None else None
        unknown = describe_unknown_harvester(self.cache, found)
        conditions = build_conditions(found, self.cache.allocations, unknown)
        wanted = merge_conditions(found.conditions, conditions, self.client.server_now())
        unchanged = found.status_capacity == capacity and found.conditions == wanted
        is_current = found.observed_generation == found.meta.generation
        return None if unchanged and is_current else (capacity, wanted)

    async def _write(
        self, found: FloatingIPRange, capacity: Json | None, conditions: tuple[Condition, ...]
    ) -> RetryAfter | None:
        patch = {
            "metadata": {"resourceVersion": str(found.resource_version), "uid": found.uid},
            "status": render_range_status(capacity, conditions, found.meta.generation),
        }
        try:
            answer = await self.client.merge_patch(
                FLOATING_IP_RANGES, found.name, patch, subresource="status"
            )
        except NotFoundError:
            return None  # deleted meanwhile: the event tells
        except ConflictError:
            live = await self.client.get(FLOATING_IP_RANGES, found.name)
            if live is not None:
                self.cache.observe(FLOATING_IP_RANGES, live)
            return RetryAfter(0.0)
        self.cache.observe(FLOATING_IP_RANGES, answer)
        return None


def is_respecified(change: Change[FloatingIPRange]) -> bool:
    """Return whether a range changed in more than its status; it may assign now what it did not assign before."""
    old, new = change.old, change.new
    return (
        old is None
        or new is None
        or old.meta.generation != new.meta.generation
        or old.harvester_cluster != new.harvester_cluster
        or old.harvester_network != new.harvester_network
        or old.meta.deleting != new.meta.deleting
        or old.uid != new.uid
    )


def may_be_harvester(cluster: ManagementCluster) -> bool:
    """Return whether a cluster is a Harvester cluster, or just imported, so that Rancher does not know what it is."""
    return cluster.is_harvester or not cluster.provider


def describe_unknown_harvester(cache: ClusterCache, found: FloatingIPRange) -> str:
    """Return a sentence if Rancher does not have the Harvester cluster of a range; "" if it has."""
    clusters = cache.management.all()
    wanted = found.harvester_cluster
    if not wanted or any(may_be_harvester(each) and each.display_name == wanted for each in clusters):
        return ""
    known = ", ".join(sorted(f'"{each.display_name}"' for each in clusters if each.is_harvester))
    return (
        f'Rancher has no Harvester cluster "{wanted}": it has {known or "none"}. Correct the annotation '
        "harvesterClusterName, or import the cluster into Rancher with that name."
    )


def build_conditions(
    found: FloatingIPRange, allocations: Allocations, unknown: str = ""
) -> tuple[Condition, ...]:
    """Say whether the range can be read and what it means, and which older ranges take addresses from it.

    `unknown`: that its Harvester cluster is not in Rancher. A range may be made before that cluster is imported, and
    serves floating IPs that name it: it is ready all the same.
    """
    others, usage = allocations.ranges.conflicts(found.name), allocations.ranges.usage(found.name)
    problem = allocations.ranges.problem_of(found.name)
    verdict = Verdict.FALSE
    if problem is not None:
        blocker = describe_problem(found.name, problem, "Invalid")
        reason, message = blocker.reason, blocker.message
    elif usage is None:
        reason, message = "Invalid", ""
    elif found.draining:
        reason = "Draining"
        message = f'Range "{found.name}" is draining: it assigns no addresses, and FloatingIPs keep theirs.'
    else:
        verdict, reason = Verdict.TRUE, "HarvesterNotFound" if unknown else "Ready"
        message = " ".join(filter(None, (describe(found, allocations, usage), unknown)))
    ready = Condition(type=ConditionType.READY, verdict=verdict, reason=reason, message=message)
    conflict = Condition(
        type=ConditionType.CONFLICT,
        verdict=Verdict.TRUE if others else Verdict.FALSE,
        reason="Overlap" if others else "NoOverlap",
        message=f'Range "{found.name}" overlaps the older {", ".join(others)}.' if others else "",
    )
    return tuple(
        replace(condition, observed_generation=found.meta.generation) for condition in (ready, conflict)
    )


def describe_problem(name: str, problem: IpamError, invalid: str) -> Blocker:
    """Return why a range assigns nothing; `invalid` is the reason if it cannot be read."""
    if isinstance(problem, AddressSpaceChangedError):
        return blocker_of(problem)
    message = f'Range "{name}" is invalid: {problem}. Correct spec.iprange or spec.exclude.'
    return Blocker(reason=invalid, message=message)


def describe(found: FloatingIPRange, allocations: Allocations, usage: RangeUsage) -> str:
    """Return how many addresses there are, and which parts mean something else than they show."""
    notes = [f"{part.part} means {part.meaning}." for part in allocations.ranges.masked_parts(found.name)[:5]]
    if any(count.total > INT64_MAX for count in usage):
        notes.append(f"Counts above {INT64_MAX} are shown as that.")
    return " ".join([f'Range "{found.name}" has {usage.whole.total} addresses.', *notes])
