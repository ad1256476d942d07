"""What the guests carry, asked of them before new addresses are given out, and of those that come later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from fipop.backoff import Backoff
from fipop.control.retry import retry_passing
from fipop.errors import FipopError
from fipop.guest.in_use import InUseAddresses
from fipop.ipam.addresses import Address, from_ip
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.operator.guests.unowned import LOOK_BACKOFF, UnownedAddresses
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 60.0
CONTINUED_LOOK_SECONDS = 5.0
"""What a look at all may take where another fipop had looked, and led until a moment ago: the ledger knows of all
that guests carried then, and no store was restored behind its back. Who was not reached is looked at afterwards."""
CONTINUED_WITHIN_SECONDS = 60.0
"""So long ago its Lease may have been renewed last."""
AGAIN_SECONDS = 60.0
"""How often a connected guest is asked again that did not answer yet."""
LATE_SECONDS = 0.5
"""So long guests that connect are gathered: their kubeconfigs come with them, one after the other."""
LOOK_CONCURRENCY = 320


class Inspector(Protocol):
    """Who is asked what a guest carries."""

    async def can_be_asked(self, guest_id: str) -> bool:
        """Resolve the guest's links, and tell whether Rancher is connected to it."""

    async def read_in_use(self, guest_id: str) -> InUseAddresses:
        """Give what a guest carries; GuestError for what is the guest's own fault."""


@dataclass(slots=True, kw_only=True)
class GuestScan:
    """Scans all guests when that is required (`require_rescan`), with the gate closed, and at each that connects later.

    When ranges change, those are asked again that were seen to carry what would be given out now.

    `opened` is called when new addresses may be given out. `backoff` is for trouble of our own API server.
    """

    cache: ClusterCache
    gate: AllocationGate
    unowned: UnownedAddresses
    conflicts: AddressConflicts
    guests: GuestDirectory
    inspector: Inspector
    opened: Callable[[], None]
    backoff: Backoff = LOOK_BACKOFF
    is_continued: bool = False
    """Whether another fipop had looked at the guests and led until a moment ago; for the first look of a term."""
    _rescan_required: bool = False
    _ranges_changed: bool = False
    _late: set[str] = field(default_factory=set)
    _missed: set[str] = field(default_factory=set)
    _seen: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _wake_for_late: asyncio.Event = field(default_factory=asyncio.Event)

    def require_rescan(self) -> None:
        """Give out nothing new before the guests were looked at again: the ledger may lack what they carry.

        So it is at a start, and when objects are gone that nobody was seen to delete: the store may have been
        restored from a backup that is older than they were.
        """
        self.gate.looked = False
        self._rescan_required = True
        self._wake.set()

    def note_ranges(self) -> None:
        """Give out nothing new before what guests were seen to carry was compared with ranges that changed."""
        self.gate.looked = False
        self._ranges_changed = True
        self._wake.set()

    def note_guest(self, guest_id: str) -> None:
        """Look at a guest that was not looked at yet: it may have connected only now."""
        if guest_id not in self._seen:
            self._late.add(guest_id)
            self._wake_for_late.set()

    def forget(self, guest_id: str) -> None:
        """Forget a guest of which Rancher has nothing left; should it be back, it is looked at like a new one."""
        self._seen.pop(guest_id, None)
        self._missed.discard(guest_id)
        self.unowned.forget(guest_id)
        self.conflicts.forget(guest_id)

    async def run(self) -> None:
        """Look whenever there is reason to, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._open_gate())
            group.create_task(self._look_at_late())

    async def _open_gate(self) -> None:
        """Do what new addresses wait for, whenever the gate was closed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._rescan_required:
                self._rescan_required = self._ranges_changed = False
                self._seen.clear()
                self._late.clear()
                # Whatever asks for another look later is a reason to distrust what is known.
                seconds = CONTINUED_LOOK_SECONDS if self.is_continued else LOOK_SECONDS
                self.is_continued = False
                await self._look_at(self._all(), seconds)
            elif self._ranges_changed:
                self._ranges_changed = False
                await self._compare_with_ranges()
            if not (self.gate.looked or self._rescan_required or self._ranges_changed):
                self.gate.looked = True
                self.opened()
            self._wake_for_late.set()

    async def _look_at_late(self) -> None:
        """Look at guests that connect later, and again at those that did not answer: nobody else waits for them."""
        while True:
            try:
                async with asyncio.timeout(AGAIN_SECONDS if self._missed else None):
                    await self._wake_for_late.wait()
            except TimeoutError:
                self._late |= self._missed
            await asyncio.sleep(LATE_SECONDS)
            self._wake_for_late.clear()
            if not self.gate.looked:
                continue  # the look at all comes first, and wakes us at its end
            late, self._late = self._late - self._seen.keys(), set()
            if late:
                await self._look_at(late, LOOK_SECONDS)

    def _all(self) -> set[str]:
        return {cluster.cluster_name for cluster in self.cache.clusters.all() if cluster.cluster_name}

    async def _compare_with_ranges(self) -> None:
        """Ask those again of whose addresses some would be given out now: the last look may be months old.

        Since then guests may have gone, and what was held may have been released and found to be carried no more.
        """
        for guest_id in [each for each in self._seen if not self.guests.exists(each)]:
            self.forget(guest_id)
        suspects = {
            guest_id
            for guest_id, addresses in self._seen.items()
            if self.unowned.is_suspect(guest_id, addresses)
        }
        await self._look_at(suspects, LOOK_SECONDS)

    async def _look_at(self, guest_ids: Collection[str], seconds: float) -> None:
        """Ask these guests for so long at most, and quarantine the addresses that they carry and nobody owns.

        Of a guest that does not answer, what was seen before stays in force: it may carry it still.
        """
        seen = await self._ask(guest_ids, seconds)
        self._seen |= {guest_id: tuple(map(from_ip, carried.single)) for guest_id, carried in seen.items()}
        self._missed.difference_update(self._seen)
        await self.unowned.keep_all({each: self._seen[each] for each in guest_ids if each in self._seen})
        self.conflicts.learn(seen)
        for guest_id in guest_ids:
            if not self.guests.exists(guest_id):
                self.forget(guest_id)  # it went while it was looked at, and nobody tells of that again
        if guest_ids:
            logger.info("guests were looked at", extra={"guests": len(guest_ids), "answered": len(seen)})

    async def _ask(self, guest_ids: Collection[str], seconds: float) -> dict[str, InUseAddresses]:
        slots = asyncio.Semaphore(LOOK_CONCURRENCY)
        seen: dict[str, InUseAddresses] = {}
        unreached = set(guest_ids)

        async def ask(guest_id: str) -> None:
            async with slots:
                unreached.discard(guest_id)
                if not await self._retry(lambda: self.inspector.can_be_asked(guest_id)):
                    self._missed.discard(guest_id)  # one that connects later is told of
                    return
                self._missed.add(guest_id)
                carried = await self._retry(lambda: self.inspector.read_in_use(guest_id))
                if carried is not None:
                    seen[guest_id] = carried
                    self._missed.discard(guest_id)

        tasks = [asyncio.create_task(ask(guest_id)) for guest_id in sorted(guest_ids)]
        if not tasks:
            return seen
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            for task in tasks:
                task.cancel()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(error, Exception):
                logger.error("a look at a guest crashed", exc_info=error)
        self._late |= unreached
        return seen

    async def _retry(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Do a step until our API server lets us; None where something else is in the way."""
        try:
            return await retry_passing(step, self.backoff)
        except FipopError as error:
            logger.info("guest did not tell what it carries", extra={"error": str(error)})
            return None
