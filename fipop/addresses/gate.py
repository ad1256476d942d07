"""When addresses can be assigned that their owners did not have: once it is known which guest clusters use them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from fipop.addresses.inventory import Inventory
from fipop.interfaces import loop_time

GATE_SECONDS = 60.0
"""The longest time that new addresses wait for guest clusters that are not read, if others are."""
UNREADABLE_SECONDS = 600.0
"""The longest time that they wait if no guest cluster can be read: Rancher may start, too, and take longer."""

CHECK_SECONDS = 1.0
"""How often deadlines are checked while something waits."""
GATE_RETRY_SECONDS = 5.0
"""When other work that waits for the gate is tried again."""


class GateEvent(StrEnum):
    """What the gate has news of."""

    OPENED = "opened"
    RELEASED = "released"
    """Something that held new addresses back since the gate is open holds nothing back any more."""


@dataclass(slots=True, kw_only=True)
class Gate:
    """Closed from when this process leads, until each guest cluster that was connected then was read once.

    While it is closed, floating IPs keep what they have, nothing new is assigned, and no guest cluster is written. It
    opens at the latest GATE_SECONDS after the last of the first readings began and a guest cluster was read; if none
    can be read, UNREADABLE_SECONDS after the start.

    A guest cluster that connects later and can have Services holds back new addresses of its ranges, until it was read
    or for GATE_SECONDS; and each floating IP for no longer than that, however many of them there are.
    """

    inventory: Inventory
    is_open: bool = False
    awaited: set[str] = field(default_factory=set)
    """Those that are read before it opens."""
    untried: set[str] = field(default_factory=set)
    """Those of which the last leader knew what they use, until this process has tried to read each."""
    _unbegun: set[str] = field(default_factory=set)
    """Those of `awaited` whose first reading has not begun."""
    _started_at: float = 0.0
    _begun_at: float = 0.0
    _read_at: float | None = None
    """When a guest cluster was first read."""
    _late: set[str] = field(default_factory=set)
    """Those that connected later, and hold back addresses."""
    _is_outdated: bool = False
    """Whether a range changed: what those use there that were not tried yet, the last leader alone knew."""
    _held_since: dict[tuple[str, str], float] = field(default_factory=dict)
    """Since when floating IPs wait for those."""
    _events: deque[GateEvent] = field(default_factory=deque)
    _has_news: asyncio.Event = field(default_factory=asyncio.Event)

    def wait_for(self, guest_ids: Iterable[str], *, known: Iterable[str] = ()) -> None:
        """Wait for the first readings of guest clusters; without any, open. What `known` ones use is known."""
        self.awaited, self.untried, self._started_at = set(guest_ids), set(known), loop_time()
        self._unbegun = set(self.awaited)
        for each in self.awaited:
            self.inventory.records.of(each).awaited_until = loop_time() + GATE_SECONDS
        for each in self.untried:
            self.inventory.records.of(each).awaited_until = loop_time()
        self._open_if_due()

    @property
    def waiting(self) -> frozenset[str]:
        """The guest clusters for which new addresses wait."""
        return frozenset(self.awaited | self._late)

    @property
    def blocking(self) -> frozenset[str]:
        """The guest clusters for which all new addresses wait."""
        return frozenset(self.awaited | (self.untried if self._is_outdated else set()))

    @property
    def has_tried_all(self) -> bool:
        """Whether new addresses are assigned by what this process read itself: if it could read nothing, by nothing."""
        return self.is_open and not self.untried and self._read_at is not None

    def waits_for(self, guest_id: str) -> bool:
        """Return whether new addresses wait for a guest cluster."""
        is_needed = self._is_outdated and guest_id in self.untried
        return is_needed or guest_id in self.awaited or guest_id in self._late

    def needs(self, guest_id: str) -> bool:
        """Return whether a guest cluster is read before the gate is open."""
        return guest_id in self.untried or self.waits_for(guest_id)

    def note_begun(self, guest_id: str) -> None:
        """Note that a guest cluster is being read."""
        if guest_id in self._unbegun:
            self._unbegun.discard(guest_id)
            self._begun_at = loop_time()

    @contextmanager
    def trying(self, guest_id: str) -> Iterator[None]:
        """Note at the end that a guest cluster was read, or could not be. What is broken off is no try."""
        try:
            yield
        except Exception:
            self._note_tried(guest_id)
            raise
        self._note_tried(guest_id)

    def _note_tried(self, guest_id: str) -> None:
        if guest_id in self.untried:
            self.untried.discard(guest_id)
            if not self.untried:
                self._is_outdated = False
                self._add(GateEvent.RELEASED)

    def note_range_changed(self) -> None:
        """Note that a range is another one than the last leader knew."""
        self._is_outdated = bool(self.untried)

    def note_reached(self) -> None:
        """Note that Services or nodes of a guest cluster were read: Rancher works."""
        if self._read_at is None:
            self._read_at = loop_time()

    def note_read(self, guest_id: str) -> None:
        """Note that a guest cluster was read wholly."""
        self.inventory.records.of(guest_id).was_read = True
        self.note_left(guest_id)

    def note_gone(self, guest_id: str) -> None:
        """Note that the gate need not wait: a guest cluster is disconnected, or has no usable kubeconfig."""
        self.awaited.discard(guest_id)
        self._unbegun.discard(guest_id)
        self._note_tried(guest_id)
        self._open_if_due()

    def note_left(self, guest_id: str) -> None:
        """Note that nothing need wait for a guest cluster: it left Rancher, or was read."""
        self.note_gone(guest_id)
        self._release([guest_id])

    def note_late(self, guest_id: str) -> None:
        """Note that a guest cluster that can have Services is connected."""
        record = self.inventory.records.of(guest_id)
        if record.awaited_until is None:
            record.awaited_until = loop_time() + GATE_SECONDS
        if not record.was_read and guest_id not in self.awaited and loop_time() < record.awaited_until:
            self._late.add(guest_id)
            self._has_news.set()

    def _release(self, guest_ids: Iterable[str]) -> None:
        """Continue what waits for guest clusters that connected later."""
        late = self._late.intersection(guest_ids)
        self._late -= late
        if late:
            self._add(GateEvent.RELEASED)

    async def events(self) -> AsyncIterator[GateEvent]:
        """Yield each event, and see to it that none comes too late."""
        while True:
            while self._events:
                yield self._events.popleft()
            try:
                async with asyncio.timeout(None if self.is_open and not self._late else CHECK_SECONDS):
                    await self._has_news.wait()
            except TimeoutError:
                pass
            self._has_news.clear()
            self._open_if_due()
            self._release([each for each in self._late if not self._is_awaited(each)])
            if not self._late:
                self._held_since.clear()

    def may_assign(self, floating_ip: tuple[str, str], range_name: str) -> bool:
        """Return whether a floating IP can get new addresses of a range."""
        if not self.is_open or self._is_outdated:
            return False
        if not any(self.inventory.could_serve(range_name, guest_id) for guest_id in self._late):
            return True
        return loop_time() - self._held_since.setdefault(floating_ip, loop_time()) >= GATE_SECONDS

    def _is_awaited(self, guest_id: str) -> bool:
        record = self.inventory.records.get(guest_id)
        return record is not None and loop_time() < (record.awaited_until or 0.0)

    def _open_if_due(self) -> None:
        if self.is_open:
            return
        if self._read_at is None:
            is_over = loop_time() - self._started_at >= UNREADABLE_SECONDS
        else:
            is_over = not self._unbegun and loop_time() - max(self._begun_at, self._read_at) >= GATE_SECONDS
        if is_over or not self.awaited:
            self.is_open = True
            self.awaited.clear()
            self._add(GateEvent.OPENED)

    def _add(self, event: GateEvent) -> None:
        self._events.append(event)
        self._has_news.set()
