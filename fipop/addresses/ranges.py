"""Reconcile one FloatingIPRange: its status says how full it is, whether it can be read, and who overlaps it."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from fipop.addresses.gate import GATE_RETRY_SECONDS, Gate
from fipop.addresses.handover import Note, digest_ranges
from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.range_status import build_status
from fipop.api.codec import write_patch
from fipop.api.objects import FloatingIPRange, Reported
from fipop.errors import WRITE_REFUSED, ApiError, ConflictError, NotFoundError
from fipop.interfaces import loop_time
from fipop.ipam.addresses import format_address
from fipop.ipam.ranges import RangeUsage
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, reference_to
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
)
from fipop.runtime.queues import Event, Key, Request, WorkQueues
from fipop.runtime.workqueue import Priority, RetryAfter

logger = logging.getLogger(__name__)

KIND = "ranges"
"""The kind of the one key: all ranges, which are counted together."""
COUNT_SECONDS = 1.0
"""How long changes of what ranges hold are gathered until the ranges are counted: they are written at most so often."""
REPORTED_SECONDS = 10.0
"""What guest clusters use without a floating IP is written at most so often for each range: tenants change it."""
MAX_REPORTED, MAX_REPORTED_OF_GUEST = 1024, 64
"""How many of these addresses a status shows, in all and of each guest cluster."""
RECOUNT_SECONDS = 60.0
"""How soon they are counted without a change."""


def request_count(delay_seconds: float = COUNT_SECONDS) -> Request:
    """Request a count of all ranges: one key for all of them, so that a change costs the same with many."""
    return Request(Key(KIND, "", ""), Priority.BACKGROUND, delay_seconds)


@dataclass(slots=True, kw_only=True)
class RangeReconciler:
    """Writes the status of ranges, when it changed."""

    client: KubeClient
    inventory: Inventory
    queues: WorkQueues
    events: EventRecorder
    gate: Gate
    """Whether it is known which addresses guest clusters use: these count, too."""
    is_traced: Callable[[], bool] = lambda: False
    """Returns whether what ranges hold is logged at each count (option traceIpamData)."""
    note: Note | None = None
    """What stands in the statuses of all ranges; None if one could not be written, or if guest clusters were not tried
    yet."""
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
            event.resource == MANAGEMENT_CLUSTERS and any(side.may_be_harvester for side in sides)
        ):
            yield request_count()

    async def reconcile(self) -> RetryAfter:
        """Count all ranges, and write the statuses that changed."""
        if not self.gate.is_open:
            return RetryAfter(GATE_RETRY_SECONDS)
        now, ranges = self.client.server_now(), self.inventory.ranges.all()
        note = Note(at=now, ranges=digest_ranges(ranges), waits=self.gate.waiting)
        has_tried_all = self.gate.has_tried_all
        if self.is_traced():
            self._trace()
        usages, problem, seconds = self.inventory.count(), None, RECOUNT_SECONDS
        for each in ranges:
            try:
                is_current = self.inventory.ranges.get("", each.name) == each  # else it is counted again
                left = await self._settle(each, usages.get(each.name)) if is_current else COUNT_SECONDS
                seconds = min(seconds, left)
            except ApiError as error:
                problem = error  # of one range: the others have their status all the same
                if error.is_refusal:
                    about = reference_to(FLOATING_IP_RANGES, each.metadata)
                    self.events.record(about, EventType.WARNING, WRITE_REFUSED, error.explain())
        if problem is not None:
            self.note = None
            raise problem
        if has_tried_all and seconds == RECOUNT_SECONDS:
            self.note = note
        return RetryAfter(seconds)

    async def _settle(self, found: FloatingIPRange, usage: RangeUsage | None) -> float:
        """Write the status of a range if it changed; return when to count it again.

        What guest clusters use is written at most every REPORTED_SECONDS, but always with a new generation: a status
        shows what counts in the range as it is at `observedGeneration`.
        """
        before, seconds = found.status, RECOUNT_SECONDS
        reported, count = self._find_reported(found)
        has_news = (reported, count) != (before.reported, before.reported_count)
        left = self._reported_at.get(found.name, -math.inf) + REPORTED_SECONDS - loop_time()
        if has_news and left > 0 and before.observed_generation == found.metadata.generation:
            reported, count, has_news, seconds = before.reported, before.reported_count, False, left
        status = build_status(self.inventory, found, usage, self.client.server_now())
        wanted = replace(status, reported=reported, reported_count=count)
        if wanted == before:
            return seconds
        if not await self._write(found, write_patch(wanted)):
            return COUNT_SECONDS
        if has_news:
            self._reported_at[found.name] = loop_time()
        return seconds

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
        patch = {"metadata": found.precondition, "status": status}
        try:
            answer = await self.client.merge_patch(
                FLOATING_IP_RANGES, found.name, patch, subresource="status"
            )
        except NotFoundError:
            return False
        except ConflictError:
            live = await self.client.get(FLOATING_IP_RANGES, found.name)
            if live is not None:
                self.inventory.observe(FLOATING_IP_RANGES, live)
            return False
        self.inventory.observe(FLOATING_IP_RANGES, answer)
        return True
