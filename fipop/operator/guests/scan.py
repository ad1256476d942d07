"""When guest clusters are asked which addresses they use, and which new addresses wait for the answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from fipop.errors import FipopError
from fipop.operator.guests.reported import ReportedAddresses
from fipop.runtime.retry import retry_passing
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory, GuestReport

logger = logging.getLogger(__name__)

SCAN_SECONDS = 60.0
"""The longest time that new addresses wait for a guest cluster."""
AGAIN_SECONDS = 5.0
"""When a connected guest cluster that did not answer is asked again, if new addresses wait for it."""
AGAIN_RATE = 50.0
"""The most of those that are asked again in a second."""
AGAIN_LATE_SECONDS = 60.0
"""When it is asked again if nothing waits for it."""
CONTESTED_SECONDS = 300.0
"""How often a guest cluster is asked again that uses an address of another owner."""
LATE_SECONDS = 0.5
"""The time between the connection of a guest cluster and the question: its kubeconfigs come one after the other."""
GATHER_SECONDS = 0.2
"""The longest time for which answers are gathered that are taken in together."""
SCAN_CONCURRENCY = 320
"""The most guest clusters that are resolved or asked at the same time."""


@dataclass(slots=True, kw_only=True)
class GuestScan:
    """Asks all guest clusters when that is required (`require_rescan`), and each that connects later.

    The gate waits for each connected guest cluster until it answered, 60 s at most. What it reported is compared with
    the ranges again if a range changes, or what the guest cluster can be served by. If some of it would be assigned to
    others now, the guest cluster is asked again first.

    `opened` is called when more new addresses may be assigned.
    """

    gate: AllocationGate
    guests: GuestDirectory
    reported: ReportedAddresses
    opened: Callable[[], None]
    _rescan_required: bool = False
    _changed_ranges: set[str] = field(default_factory=set)
    _until: float = 0.0
    _due: dict[str, float] = field(default_factory=dict)
    """When guest clusters are to be asked."""
    _asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _heard: dict[str, GuestReport] = field(default_factory=dict)
    """The last reports of guest clusters that answered, or cannot be asked; `_step` takes them in."""
    _open: frozenset[str] = frozenset()
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SCAN_CONCURRENCY))

    def require_rescan(self) -> None:
        """Assign nothing new before all guest clusters were asked: the ledger may lack what they use.

        So it is at a start, and when objects are gone without a DELETED event: the store may have been restored from
        a backup that is older than they were.
        """
        self._rescan_required = True
        self._shut()

    def note_range(self, name: str) -> None:
        """Assign nothing new before what guest clusters reported was compared with a range that changed."""
        self._changed_ranges.add(name)
        self._shut()

    @property
    def has_changed_ranges(self) -> bool:
        """Whether a range changed that nothing was compared with yet, and no scan of all is due that does so."""
        return bool(self._changed_ranges) and not self._rescan_required

    @property
    def is_asking(self) -> bool:
        """Whether guest clusters are asked, or are to be asked by now, or what one answered is to be taken in."""
        is_due = any(at <= self._now() for at in self._due.values())
        return not self._rescan_required and (is_due or bool(self._asking or self._heard))

    def note_guest(self, guest_id: str, *, may_carry: bool = False) -> None:
        """Compare what a guest cluster reported with what can serve it now, before others get any of it.

        If it `may_carry` addresses and did not answer yet, ask it: it may have connected only now.
        """
        self.gate.note_changed(guest_id)
        self._compare(guest_id)
        if may_carry and not self.reported.report_of(guest_id).is_fresh:
            if guest_id not in self._asking:
                self._due[guest_id] = self._now() + LATE_SECONDS
            if not self.gate.looked:
                self.gate.wait_for([guest_id], self._until)
        self._wake.set()

    async def run(self) -> None:
        """Ask whenever there is reason to, until cancelled."""
        try:
            while True:
                await self._rest()
                await self._step()
        finally:
            await asyncio.gather(*self._cancel(), return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[None]]:
        tasks = list(self._asking.values())
        self._asking.clear()
        for each in tasks:
            each.cancel()
        return tasks

    def _shut(self) -> None:
        self.gate.shut()
        self._open = frozenset()
        self._wake.set()

    async def _rest(self) -> None:
        """Wait until there is something to do."""
        at = min([*self._due.values(), *self.gate.awaited.values()], default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._wake.wait()
        self._wake.clear()
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=GATHER_SECONDS)

    async def _step(self) -> None:
        """Take in what was answered, and open the gate for what need not wait any longer."""
        if self._rescan_required:
            self._begin()
        ranges = [self.guests.cache.ranges.get("", name) for name in self._changed_ranges]
        self._changed_ranges.clear()
        if ranges:  # else each answer would cost a look at all reports
            for guest_id in self.reported.reporters_for([each for each in ranges if each is not None]):
                self._compare(guest_id)
        self._ask_due()
        heard, self._heard = self._heard, {}
        late = {guest_id for guest_id, until in self.gate.awaited.items() if until <= self._now()}
        if late:
            logger.info("Stopped waiting for guest clusters", extra={"guests": sorted(late)[:10]})
        for guest_id in sorted(heard.keys() | late):
            report = heard.get(guest_id) or self.reported.report_of(guest_id)
            await self.reported.quarantine_unowned(guest_id, report)
            self._contest(guest_id, report)
        if self._rescan_required:
            return
        for guest_id in heard.keys() | late:
            if not self._is_asked_again(guest_id, late):
                self.gate.awaited.pop(guest_id, None)
        if not self._changed_ranges:
            await self._open_gate()

    def _is_asked_again(self, guest_id: str, late: Collection[str]) -> bool:
        """Return whether a guest cluster is waited for though it answered: it is suspect, or connected just now."""
        due_in = self._due.get(guest_id, math.inf) - self._now()
        if guest_id in late:
            return due_in <= 0
        is_unheard = not self.reported.report_of(guest_id).is_fresh
        return guest_id in self._asking or due_in <= (LATE_SECONDS if is_unheard else 0)

    def _begin(self) -> None:
        """Wait for all guest clusters: those that Rancher is not connected to are sorted out before they are asked."""
        self._rescan_required = False
        self._changed_ranges.clear()
        self._cancel()
        self._heard.clear()
        self.reported.distrust()
        guest_ids = {each.cluster_name for each in self.guests.cache.clusters.all() if each.cluster_name}
        self._until = self._now() + SCAN_SECONDS
        self._due = dict.fromkeys(guest_ids, self._now())
        self.gate.awaited.clear()
        self.gate.wait_for(guest_ids, self._until)

    def _compare(self, guest_id: str) -> None:
        """Compare what a guest cluster reported with its ranges; ask it again if some would be assigned to others.

        The report may be months old. Since then guest clusters may have gone, and what was held may have been released
        and found to be used no more.
        """
        if not self.guests.exists(guest_id):
            self.gate.awaited.pop(guest_id, None)
        elif self.reported.is_suspect(guest_id):
            self.gate.wait_for([guest_id], self._now() + SCAN_SECONDS)
            if guest_id not in self._asking:
                self._due[guest_id] = self._now()
        else:
            self._contest(guest_id, self.reported.report_of(guest_id))

    async def _open_gate(self) -> None:
        self.gate.is_shut = False
        before, opened = self._open, set()
        for each in self.guests.cache.ranges.all():
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
            logger.info(
                "Scanned guest clusters", extra={"ranges": len(opened), "waiting_for": len(self.gate.awaited)}
            )
            self.opened()

    def _contest(self, guest_id: str, report: GuestReport) -> None:
        before = report.contested
        self.reported.contest(guest_id, report)
        if before - report.contested:
            self.opened()  # who waits for these addresses can have them now
        if report.contested and self.guests.exists(guest_id):
            # Its owner is served meanwhile, and does not ask for it.
            self._due.setdefault(guest_id, self._now() + CONTESTED_SECONDS)

    def _ask_due(self) -> None:
        now = self._now()
        for guest_id in sorted(guest_id for guest_id, at in self._due.items() if at <= now):
            del self._due[guest_id]
            if guest_id not in self._asking:
                self._asking[guest_id] = asyncio.create_task(self._ask(guest_id))

    async def _ask(self, guest_id: str) -> None:
        found, is_connected, report = None, True, self.reported.report_of(guest_id)
        try:
            is_connected = await self._resolve(guest_id)
            if is_connected:
                async with self._slots:  # in line behind all that are to be resolved
                    read = partial(self.reported.reader.read_in_use, guest_id)
                    found = await retry_passing(read, self.reported.backoff)
        except FipopError as error:
            logger.info("Could not scan guest cluster", extra={"guest": guest_id, "error": str(error)})
        except Exception:
            logger.exception("Scan of guest cluster crashed", extra={"guest": guest_id})
        del self._asking[guest_id]
        # If it went meanwhile, its answer is taken in all the same.
        if found is not None:
            report.addresses, report.is_fresh = found.single, True
        if report is not self.reported.report_of(guest_id) and self.guests.exists(guest_id):
            self._due[guest_id] = self._now()  # another one came back under its id
        # When one connects later, `note_guest` is called. What one answered since the last scan of all stays in force.
        if not is_connected or report.is_fresh:
            self._heard[guest_id] = report
        else:
            soon = max(AGAIN_SECONDS, len(self.gate.awaited) / AGAIN_RATE)
            self._due[guest_id] = self._now() + (
                soon if guest_id in self.gate.awaited else AGAIN_LATE_SECONDS
            )
        self._wake.set()

    async def _resolve(self, guest_id: str) -> bool:
        """Resolve the links of a guest cluster, and return whether Rancher is connected to it.

        Ranges of other Harvester clusters do not wait for its answer then, which does not count there. If the links
        cannot be read, it is asked all the same, and may be on any Harvester cluster.
        """
        async with self._slots:
            with contextlib.suppress(FipopError):
                await self.guests.discover(guest_id)
        self._wake.set()
        guest = self.guests.glimpse(guest_id, of_any_kind=True)
        return guest is not None and guest.connected

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
