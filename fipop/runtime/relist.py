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

from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient, Listing
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
"""Who finds the Lease free has it by then: the first round is that of the new leader, too."""
LEAST_PAUSE_SECONDS = 30.0
"""Between two rounds, if no leader asks for one."""
LIST_SECONDS = 60.0


class Relister:
    """Compares stores with authoritative lists: at the start, every 5 minutes, and when asked to.

    The feeds are listed in their order, one after the other: who decides by two of them (is the owner of this
    reservation gone?) puts the one that refers before the one that is referred to.

    `every_seconds` and the pauses are met within a tenth, so that replicas spread; what is asked for waits no longer
    than half of `every_seconds`.
    """

    def __init__(
        self,
        feeds: Sequence[Feed[Any]],
        *,
        lister: KubeClient,
        random: Random,
        every_seconds: float = 300.0,
    ) -> None:
        self._feeds = tuple(feeds)
        self._lister = lister
        self._random = random
        self._every_seconds = every_seconds
        self._requested = asyncio.Event()
        self._loaded = asyncio.Event()
        self._hurried = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        """Those that wait for a round which begins after they asked."""
        self._served: list[asyncio.Future[None]] = []
        """Those that wait for the end of this round."""
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
        """Have a round that begins now, and again until one succeeded: a leader must know what the former did last."""
        succeeded = asyncio.get_running_loop().create_future()
        self._waiting.append(succeeded)
        self._hurried.set()
        self._requested.set()
        await succeeded

    async def run(self) -> None:
        """Go on until cancelled. Raises RestoredStoreError: the process must exit then, and start afresh."""
        await _wait(self._hurried, FIRST_PAUSE_SECONDS)
        left, failures = self._begin_round(), 0
        while True:
            failed = await self._relist_all(left)
            if not failed:
                self._end_round()
                await self._rest()
                left, failures = self._begin_round(), 0
                continue
            failures = failures + 1 if len(failed) == len(left) else 1
            left = failed
            if await _wait(self._hurried, _BACKOFF.delay_seconds(failures, self._random)):
                left, failures = self._begin_round(), 0

    def _begin_round(self) -> Sequence[Feed[Any]]:
        self._requested.clear()
        self._hurried.clear()
        self._served += self._waiting
        self._waiting = []
        return self._feeds

    def _end_round(self) -> None:
        for each in self._served:
            if not each.done():
                each.set_result(None)
        self._served = []

    async def _rest(self) -> None:
        """Wait for the next round; a request brings it forward, but never into a storm."""
        least_seconds = min(LEAST_PAUSE_SECONDS, self._every_seconds / 2)
        if not await _wait(self._hurried, self._spread(least_seconds)):
            await _wait(self._requested, max(0.0, self._spread(self._every_seconds) - least_seconds))

    async def _relist_all(self, feeds: Sequence[Feed[Any]]) -> Sequence[Feed[Any]]:
        """List resources; return those to list again: from the first failure on, as their order matters."""
        succeeded = [await self._relist(feed) for feed in feeds]
        if all(feed.store.loaded for feed in self._feeds):
            self._loaded.set()
        return () if all(succeeded) else feeds[succeeded.index(False) :]

    async def _relist(self, feed: Feed[Any]) -> bool:
        plural = feed.resource.plural
        seen_before = feed.store.highest_version
        try:
            listing = await self._lister.list(
                feed.resource, timeout_seconds=LIST_SECONDS, project=_without_managed_fields
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

    def _spread(self, seconds: float) -> float:
        return seconds * self._random.uniform(0.9, 1.1)


def _without_managed_fields(obj: dict[str, Any]) -> dict[str, Any]:
    """Drop what is often half of an object and nobody reads, before a whole list of them stands in memory."""
    obj["metadata"].pop("managedFields", None)
    return obj


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, up to so many seconds; return whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
