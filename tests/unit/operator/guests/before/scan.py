"""What the guests carry, asked of them before new addresses are given out, and of those that come later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.ipam.addresses import Address
from tests.unit.operator.guests.before.conflicts import AddressConflicts
from tests.unit.operator.guests.before.inspection import GuestInspector
from tests.unit.operator.guests.before.unowned import LOOK_BACKOFF, UnownedAddresses
from fipop.runtime.retry import retry_passing
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 60.0
"""So long new addresses wait for a guest at most."""
AGAIN_SECONDS = 5.0
"""How soon a connected guest that new addresses wait for is asked again where it did not answer."""
AGAIN_RATE = 50.0
"""So many of those are asked again in a second at most."""
AGAIN_LATE_SECONDS = 60.0
"""How often one is asked again that nobody waits for."""
LATE_SECONDS = 0.5
"""So long after a guest connected it is asked: its kubeconfigs come with it, one after the other."""
GATHER_SECONDS = 0.2
"""So long answers are gathered that are taken in together."""
RESOLVE_SECONDS = 2.0
"""Whose answer takes longer is looked into: which Harvester it is on tells which ranges need not wait for it."""
RESOLVE_CONCURRENCY = 20
LOOK_CONCURRENCY = 320


@dataclass(slots=True, kw_only=True)
class GuestScan:
    """Asks all guests when that is required (`require_rescan`), and each that connects later.

    The gate waits for each connected guest until it answered, 60 s at most. What a guest answered stays in force until
    it answers again. It is compared with the ranges whenever either changes; when ranges change, those are asked again
    that were seen to carry what would be given out now.

    `opened` is called when more new addresses may be given out. `backoff` is for trouble of our own API server.
    """

    cache: ClusterCache
    gate: AllocationGate
    unowned: UnownedAddresses
    conflicts: AddressConflicts
    guests: GuestDirectory
    inspector: GuestInspector
    opened: Callable[[], None]
    backoff: Backoff = LOOK_BACKOFF
    _rescan_required: bool = False
    _ranges_changed: bool = False
    _until: float = 0.0
    _resolve_at: float = math.inf
    _resolving: asyncio.Task[None] | None = None
    _due: dict[str, float] = field(default_factory=dict)
    """When guests are to be asked."""
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _heard: set[str] = field(default_factory=set)
    """Who answered, or cannot be asked: what was seen last is to be taken in."""
    _changed: set[str] = field(default_factory=set)
    """Of whom only that is to be compared again."""
    _seen: dict[str, tuple[Address, ...]] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)
    """Who answered since the last rescan began."""
    _open: frozenset[str] = frozenset()
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOOK_CONCURRENCY))

    def require_rescan(self) -> None:
        """Give out nothing new before the guests were looked at again: the ledger may lack what they carry.

        So it is at a start, and when objects are gone that nobody was seen to delete: the store may have been
        restored from a backup that is older than they were.
        """
        self._rescan_required = True
        self._shut()

    def note_ranges(self) -> None:
        """Give out nothing new before what guests were seen to carry was compared with ranges that changed."""
        self._ranges_changed = True
        self._shut()

    def note_guest(self, guest_id: str, *, may_carry: bool) -> None:
        """Ask a guest that did not answer yet, if it is connected and not newly made; else compare what it answered.

        It may have connected only now, or its labels may make it a guest of other ranges.
        """
        self.gate.note_changed(guest_id)
        if guest_id in self._seen:
            self._changed.add(guest_id)
        if may_carry and guest_id not in self._fresh and guest_id not in self._asking:
            self._due[guest_id] = self._now() + LATE_SECONDS
            if not self.gate.looked:
                self.gate.wait_for([guest_id], self._until)
        self._wake.set()

    def forget(self, guest_id: str) -> None:
        """Forget a guest of which Rancher has nothing left; should it be back, it is looked at like a new one."""
        self._seen.pop(guest_id, None)
        self.gate.awaited.pop(guest_id, None)
        self._fresh.discard(guest_id)
        self.unowned.forget(guest_id)
        self.conflicts.forget(guest_id)
        self._wake.set()

    @property
    def has_asked_all(self) -> bool:
        """Whether all that new addresses wait for were asked; those that did not answer are asked again."""
        return not self.gate.is_shut and self.gate.awaited.keys() <= self._due.keys()

    async def run(self) -> None:
        """Ask whenever there is reason to, until cancelled."""
        try:
            while True:
                await self._rest()
                await self._step()
        finally:
            tasks = [*self._asking.values(), *([self._resolving] if self._resolving else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._asking.clear()

    def _shut(self) -> None:
        self.gate.shut()
        self._open = frozenset()
        self._wake.set()

    async def _rest(self) -> None:
        """Wait until there is something to do."""
        at = min([*self._due.values(), *self.gate.awaited.values(), self._resolve_at])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(at) else max(0.0, at - self._now())):
                await self._wake.wait()
        self._wake.clear()
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=GATHER_SECONDS)

    async def _step(self) -> None:
        """Take in what was answered, and open the gate for what need not wait any longer."""
        if self._rescan_required:
            self._begin()
        if self._ranges_changed:
            self._compare_with_ranges()
        self._ask_due()
        heard, self._heard = self._heard, set()
        changed, self._changed = self._changed, set()
        late = {guest_id for guest_id, until in self.gate.awaited.items() if until <= self._now()}
        if late:
            logger.info("Stopped waiting for guest clusters", extra={"guests": sorted(late)[:10]})
        await self._take_in(changed | heard | late)
        if self._resolve_at <= self._now():
            self._resolve_at = math.inf
            self._resolving = asyncio.create_task(self._resolve_slow())
        if self._rescan_required:
            return
        for guest_id in heard | late:
            self.gate.awaited.pop(guest_id, None)
        if not self._ranges_changed:
            await self._open_gate()

    def _begin(self) -> None:
        """Wait for all guests: those that Rancher is not connected to are sorted out before they are asked."""
        self._rescan_required = self._ranges_changed = False
        for task in (*self._asking.values(), *([self._resolving] if self._resolving else [])):
            task.cancel()
        self._asking.clear()
        self._heard.clear()
        self._fresh.clear()
        guest_ids = {each.cluster_name for each in self.cache.clusters.all() if each.cluster_name}
        self._until, self._resolve_at = self._now() + LOOK_SECONDS, self._now() + RESOLVE_SECONDS
        self._due = dict.fromkeys(guest_ids, self._now())
        self.gate.awaited.clear()
        self.gate.wait_for(guest_ids, self._until)

    def _compare_with_ranges(self) -> None:
        """Ask those again of whose addresses some would be given out now: the last look may be months old.

        Since then guests may have gone, and what was held may have been released and found to be carried no more.
        """
        self._ranges_changed = False
        for guest_id in [each for each in self._seen if not self.guests.exists(each)]:
            self.forget(guest_id)
        for guest_id, addresses in self._seen.items():
            if self.unowned.is_suspect(guest_id, addresses):
                self._due[guest_id] = self._now()
                self.gate.wait_for([guest_id], self._now() + LOOK_SECONDS)
            else:
                self._changed.add(guest_id)

    async def _open_gate(self) -> None:
        self.gate.is_shut = False
        before, opened = self._open, set()
        for each in self.cache.ranges.all():
            if self.gate.is_open(each.name):
                opened.add(each.name)
            if self.gate.awaited:
                await asyncio.sleep(0)  # one range among thousands of guests takes milliseconds
        if self.gate.is_shut:
            return
        self._open = frozenset(opened)
        if self.gate.looked:
            self._open |= {""}  # beyond all ranges
        if self._open - before:
            logger.info("Scanned guest clusters", extra={"answered": len(self._fresh)})
            self.opened()

    async def _take_in(self, guest_ids: Collection[str]) -> None:
        """Quarantine the addresses that these guests were seen to carry, and nobody owns."""
        for guest_id in sorted(guest_ids):
            addresses = self._seen.get(guest_id, ())
            await self.unowned.keep(guest_id, addresses)
            self.conflicts.learn(guest_id, addresses)
            if not self.guests.exists(guest_id):
                self.forget(guest_id)  # it went while it was looked at, and nobody tells of that again

    def _ask_due(self) -> None:
        now = self._now()
        for guest_id in sorted(guest_id for guest_id, at in self._due.items() if at <= now):
            del self._due[guest_id]
            if guest_id not in self._asking:
                self._asking[guest_id] = asyncio.create_task(self._ask(guest_id))

    async def _ask(self, guest_id: str) -> None:
        carried = None
        async with self._slots:
            is_connected = await self._retry(lambda: self.inspector.can_be_asked(guest_id))
        if is_connected:
            async with self._slots:  # in line behind all that are to be resolved
                carried = await self._retry(lambda: self.inspector.read_in_use(guest_id))
        del self._asking[guest_id]
        if carried is not None:
            self._seen[guest_id] = carried.single
            self._fresh.add(guest_id)
        # One that connects later is told of; what one answered since the last rescan stays in force.
        if is_connected is False or guest_id in self._fresh:
            self._heard.add(guest_id)
        else:
            soon = max(AGAIN_SECONDS, len(self.gate.awaited) / AGAIN_RATE)
            self._due[guest_id] = self._now() + (
                soon if guest_id in self.gate.awaited else AGAIN_LATE_SECONDS
            )
        self._wake.set()

    async def _resolve_slow(self) -> None:
        """Resolve the links of guests that answer slowly: ranges of other Harvester clusters do not wait for them."""
        slots = asyncio.Semaphore(RESOLVE_CONCURRENCY)

        async def resolve(guest_id: str) -> None:
            async with slots:
                if guest_id in self.gate.awaited and not self.guests.is_resolved(guest_id):
                    with contextlib.suppress(FipopError):
                        await self.guests.discover(guest_id)
                    self._wake.set()

        await asyncio.gather(*map(resolve, sorted(self.gate.awaited)))

    async def _retry(self, step: Callable[[], Awaitable[T]]) -> T | None:
        """Do a step until our API server lets us; None where something else is in the way."""
        try:
            return await retry_passing(step, self.backoff)
        except FipopError as error:
            logger.info("Could not scan guest cluster", extra={"error": str(error)})
        except Exception:
            logger.exception("Scan of guest cluster crashed")
        return None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
