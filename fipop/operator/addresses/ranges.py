"""Reconcile one FloatingIPRange: its status says how full it is, whether it can be read, and who overlaps it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.api.models import FloatingIPRange, Reservation
from fipop.api.rendering import INT64_MAX, render_capacity, render_range_status
from fipop.errors import AddressSpaceChangedError, ApiConflictError, ApiNotFoundError, IpamError
from fipop.ipam.allocator import RangeUsage
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
)
from fipop.operator.addresses.values import Blocker, address_of, blocker_of
from fipop.operator.queues import Event, Key, Kind, Request
from fipop.rancher.objects import ManagementCluster
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Priority, RetryAfter
from fipop.state.allocations import Allocations
from fipop.state.cache import ClusterCache

logger = logging.getLogger(__name__)

WRITE_INTERVAL_SECONDS = 1.0
"""A burst of allocations is one write: the status of a range is written at most once in this time."""

COUNT_SECONDS = 0.2
"""How long changes of what a range holds are gathered: its status counts them together."""


@dataclass(slots=True, kw_only=True)
class RangeReconciler:
    """Writes the status of ranges, when it changed."""

    client: KubeClient
    cache: ClusterCache
    _written_at: dict[str, float] = field(default_factory=dict)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the ranges whose status an event may change."""
        change = event.change
        sides = [side for side in (change.old, change.new) if side is not None]
        if event.resource == FLOATING_IP_RANGES and is_respecified(change):
            # Overlaps concern every range of the space, also the one that it left.
            spaces = {side.address_space for side in sides}
            for each in self.cache.ranges.all():
                if each.address_space in spaces:
                    yield Request(Key(Kind.RANGE, "", each.name))
        elif event.resource == FLOATING_IPS:
            yield from self._count_again(side.status.range for side in sides)
        elif event.resource == FLOATING_IP_RESERVATIONS:
            for side in sides:
                yield from self._count_again(self._find_concerned(side))
        elif event.resource == MANAGEMENT_CLUSTERS and any(may_be_harvester(side) for side in sides):
            # Whether the Harvester cluster of a range is in Rancher.
            yield from self._count_again(each.name for each in self.cache.ranges.all())

    def _find_concerned(self, reservation: Reservation) -> Iterator[str]:
        """Yield the ranges that count an address, also of another name: one may have replaced the reservation's range.

        And those of the space of a range that the address may keep closed: once it assigns again, it overlaps them.
        """
        ranges, address = self.cache.ranges, address_of(reservation)
        named, has = ranges.get("", reservation.range), self.cache.allocations.ranges.has
        closed_in = named.address_space if named is not None else reservation.space
        for each in ranges.all():
            is_in_space = each.address_space == reservation.space
            is_concerned = has(each.name, address) if is_in_space else each.address_space == closed_in
            if is_concerned or each.name == reservation.range:
                yield each.name

    def watches_freed(self, space: str) -> Iterator[Request]:
        """Yield the ranges that may have counted an address of their space that is free now."""
        ranges = self.cache.ranges.all()
        yield from self._count_again(each.name for each in ranges if each.address_space == space)

    def _count_again(self, range_names: Iterable[str | None]) -> Iterator[Request]:
        for name in range_names:
            if name and self.cache.ranges.get("", name) is not None:
                yield Request(Key(Kind.RANGE, "", name), Priority.BACKGROUND, COUNT_SECONDS)

    async def reconcile(self, name: str) -> RetryAfter | None:
        """Do one round."""
        found = self.cache.ranges.get("", name)
        if found is None:
            self._written_at.pop(name, None)
            return None
        counted = self.cache.allocations.ranges.usage(name)
        capacity = render_capacity(counted) if counted is not None else None
        unknown = describe_unknown_harvester(self.cache, found)
        conditions = build_conditions(found, self.cache.allocations, unknown)
        wanted = merge_conditions(found.conditions, conditions, self.client.server_now())
        unchanged = found.status_capacity == capacity and found.conditions == wanted
        if unchanged and found.observed_generation == found.meta.generation:
            return None
        rest = self._written_at.get(name, float("-inf")) + WRITE_INTERVAL_SECONDS - self.cache.monotonic()
        if rest > 0:
            return RetryAfter(rest)
        return await self._write(found, capacity, wanted)

    async def _write(
        self, found: FloatingIPRange, capacity: Json | None, conditions: tuple[Condition, ...]
    ) -> RetryAfter | None:
        patch = {
            "metadata": {"resourceVersion": str(found.resource_version), "uid": found.uid},
            "status": render_range_status(capacity, conditions, found.meta.generation),
        }
        self._written_at[found.name] = self.cache.monotonic()
        try:
            answer = await self.client.merge_patch(
                FLOATING_IP_RANGES, found.name, patch, subresource="status"
            )
        except ApiNotFoundError:
            return None  # deleted meanwhile: the event tells
        except ApiConflictError:
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
