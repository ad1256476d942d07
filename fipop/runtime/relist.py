"""Stores kept true: events as they come, an authoritative list of everything now and then.

Watches lose things: what is deleted while a watch is down never shows as DELETED, and a store restored from a
backup goes on as if nothing had been. Only a list shows both. A list that fails says nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from random import Random
from typing import Any, Generic, TypeVar

from fipop.backoff import Backoff, Delays
from fipop.errors import FipopError
from fipop.jsons import JsonView
from fipop.kube.client import KubeReader, Listing
from fipop.kube.resources import Resource
from fipop.runtime.store import Change, Projection, Store

logger = logging.getLogger(__name__)

_BACKOFF = Backoff(first_seconds=1.0, limit_seconds=30.0)

P = TypeVar("P", bound=Projection)


class EventType(StrEnum):
    """What happened to an object; LISTED where a list found it."""

    LISTED = "LISTED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


Callback = Callable[[EventType, JsonView], None]
"""Takes an event of an object in."""


class Source(Enum):
    """How a change was learned: a deletion that only a list shows deserves more distrust."""

    EVENT = auto()
    LIST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed(Generic[P]):
    """One resource, the store that it fills, and who is told of changes."""

    resource: Resource
    store: Store[P]
    on_change: Callable[[Change[P], Source], None]

    def take_event(self, event_type: EventType, obj: JsonView) -> None:
        """Take in an event of this resource. One bad object must not stop the others: what it raises is logged."""
        is_deleted = event_type is EventType.DELETED
        try:
            change = self.store.delete(obj) if is_deleted else self.store.put(obj)
            if change is not None:
                self.on_change(change, Source.EVENT)
        except Exception:
            logger.exception("Could not process event", extra={"resource": self.resource.plural})

    def take_list(self, listing: Listing[JsonView], *, seen_before: int) -> None:
        """Take in an authoritative list; raises RestoredStoreError."""
        for change in self.store.resync(listing, seen_before=seen_before):
            self.on_change(change, Source.LIST)


FIRST_PAUSE_SECONDS = 1.5
"""Who finds the Lease free has it by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelistTimes:
    """Seconds. `every` and the rest between two rounds are met within a tenth, so that replicas spread.

    `first_pause`: so long at the start a leader's own lists are waited for, which are as good as a round.
    """

    every_seconds: float = 300.0
    list_seconds: float = 60.0
    backoff: Backoff = _BACKOFF
    least_pause_seconds: float = 30.0
    first_pause_seconds: float = 0.0


class Relister:
    """Compares stores with authoritative lists: at the start, every 5 minutes, and when asked to.

    The feeds are listed in their order, one after the other: who decides by two of them (is the owner of this
    reservation gone?) puts the one that refers before the one that is referred to. `on_round` is called after
    each round in which every list succeeded.
    """

    def __init__(
        self,
        feeds: Sequence[Feed[Any]],
        *,
        lister: KubeReader,
        random: Random,
        times: RelistTimes | None = None,
        on_round: Callable[[], None] | None = None,
    ) -> None:
        self._feeds = tuple(feeds)
        self._lister = lister
        self._random = random
        self._times = times or RelistTimes()
        self._on_round = on_round
        self._requested = asyncio.Event()
        self._loaded = asyncio.Event()
        self._refreshing = asyncio.Event()
        self._refreshed = asyncio.Event()
        self._failing: set[str] = set()

    @property
    def loaded(self) -> bool:
        """Whether every store has taken in a list: before that nothing may be concluded from absence."""
        return self._loaded.is_set()

    async def wait_loaded(self) -> None:
        """Wait until every store has taken in a list."""
        await self._loaded.wait()

    def request(self) -> None:
        """Have a round soon: something happened that watches may not have shown."""
        self._requested.set()

    async def refresh(self) -> None:
        """List everything now, until all of it succeeded: a new leader must know what the former one did last."""
        self._refreshing.set()
        try:
            for feed in self._feeds:
                await self._retry(feed)
            self._loaded.set()
        finally:
            self._refreshed.set()

    async def run(self) -> None:
        """Go on until cancelled. Raises RestoredStoreError: the process must exit then, and start afresh."""
        times, failures = self._times, 0
        is_listed = await self._is_listed_by_leader()
        while True:
            self._requested.clear()
            if is_listed or await self._round():
                is_listed = False
                failures = 0
                await asyncio.sleep(self._spread(times.least_pause_seconds))
                await self._wait_requested(self._spread(times.every_seconds) - times.least_pause_seconds)
            else:
                failures += 1
                await asyncio.sleep(times.backoff.delay_seconds(failures, self._random))

    async def _is_listed_by_leader(self) -> bool:
        """Wait for the lists of a leader that begins now: to list everything twice at once would take twice as long."""
        try:
            async with asyncio.timeout(self._times.first_pause_seconds):
                await self._refreshing.wait()
        except TimeoutError:
            return False
        await self._refreshed.wait()
        return self.loaded

    async def _round(self) -> bool:
        """List every resource once; True where all succeeded."""
        succeeded = [await self._relist(feed) for feed in self._feeds]
        if all(feed.store.loaded for feed in self._feeds):
            self._loaded.set()
        if not all(succeeded):
            return False
        if self._on_round is not None:
            self._on_round()
        return True

    async def _relist(self, feed: Feed[Any]) -> bool:
        plural = feed.resource.plural
        seen_before = feed.store.highest_version
        try:
            listing = await self._lister.list(
                feed.resource, timeout_seconds=self._times.list_seconds, project=_without_managed_fields
            )
        except FipopError as error:
            level = logging.DEBUG if plural in self._failing else logging.WARNING
            self._failing.add(plural)
            logger.log(
                level, "Could not list resources, retrying", extra={"resource": plural, "error": str(error)}
            )
            return False
        self._failing.discard(plural)
        feed.take_list(listing, seen_before=seen_before)
        return True

    async def _retry(self, feed: Feed[Any]) -> None:
        for delay in Delays(self._times.backoff, self._random):
            if await self._relist(feed):
                return
            await asyncio.sleep(delay)

    async def _wait_requested(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._requested.wait()
        except TimeoutError:
            return

    def _spread(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.9, 1.1)


def _without_managed_fields(obj: dict[str, Any]) -> dict[str, Any]:
    """Drop what is often half of an object and nobody reads, before a whole list of them stands in memory."""
    obj["metadata"].pop("managedFields", None)
    return obj


def build_relist_times(every_seconds: float) -> RelistTimes:
    """Compare with lists every so many seconds; what is asked for in between waits no longer than that either."""
    usual = RelistTimes()
    return RelistTimes(
        every_seconds=every_seconds,
        least_pause_seconds=min(usual.least_pause_seconds, every_seconds / 2),
        first_pause_seconds=FIRST_PAUSE_SECONDS,
    )
