"""Stores kept true: events as they come, and a complete list of everything now and then.

Watches lose things: what is deleted while a watch is down never shows as DELETED, a watch can be mute, and a store
restored from a backup goes on as if nothing had been. Only a list shows that. A list that fails says nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from random import Random
from typing import Any, Generic, TypeVar

from fipop.backoff import Backoff
from fipop.errors import ApiError, UnavailableError
from fipop.interfaces import loop_time
from fipop.jsons import Json, JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import Resource
from fipop.runtime.store import Change, Projection, Store

P = TypeVar("P", bound=Projection)

Callback = Callable[[str | None, JsonView], None]
"""Takes the type of an event (None if a list shows the object) and the object."""
Watch = Callable[[Mapping[Resource, Callback]], Coroutine[Any, Any, None]]
"""Watches resources until cancelled."""
LIST_SECONDS = 60.0
OBJECTS_AT_ONCE = 50
"""How many objects of a list are taken in before others have the loop: the Lease must be renewed meanwhile."""
FIRST_PAUSE_SECONDS = 1.5
"""Who finds the Lease free has it by then: the first lists are those of the new leader, too."""
RELIST_SECONDS = 300.0
SHORTEST_WATCH_SECONDS, PAUSE_SECONDS = 2.0, 2.0
"""An API server that ends a watch sooner is asked again only after a pause."""
_BACKOFF = Backoff(first_seconds=1.0, limit_seconds=30.0)
FRESH_SECONDS = 15.0
"""If a watch fails and the last list is younger, only the watch is repeated: a busy server may refuse watches alone."""

logger = logging.getLogger(__name__)


class Informer(Generic[P]):
    """Fills the store of one resource, and calls `changed` with each change.

    `trim` cuts a listed object down, before a whole list of them stands in memory.
    """

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        store: Store[P],
        changed: Callable[[Change[P]], None],
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        trim: Callable[[Json], Json] | None = None,
    ) -> None:
        self.resource = resource
        self.loaded = asyncio.Event()
        """It was listed once: before that nothing can be concluded from absence."""
        self._client = client
        self._store = store
        self._changed = changed
        self._namespace, self._field_selector = namespace, field_selector
        self._trim = trim or _without_managed_fields

    async def relist(self) -> int:
        """Compare the store with a complete list; return its version. Raises: ApiError, RestoredStoreError."""
        seen_before = self._store.highest_version
        listing = await self._client.list(
            self.resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            timeout_seconds=LIST_SECONDS,
            project=self._trim,
        )
        for number, change in enumerate(self._store.resync(listing, seen_before=seen_before), start=1):
            if change is not None:
                self._changed(change)
            if number % OBJECTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self.loaded.set()
        return listing.resource_version

    def take(self, event_type: str | None, obj: JsonView) -> None:
        """Take in an event. One bad object must not stop the others: what it raises is logged."""
        try:
            change = self._store.delete(obj) if event_type == "DELETED" else self._store.put(obj)
            if change is not None:
                self._changed(change)
        except Exception:
            logger.exception("Could not process event", extra={"resource": self.resource.plural})

    async def run(self, random: Random) -> None:
        """List and watch, for ever; at least every RELIST_SECONDS there is a list. Raises RestoredStoreError."""
        version, listed_at, problem = 0, 0.0, ""
        while True:
            began, asked = loop_time(), 0.0
            try:
                if not version or began - listed_at >= RELIST_SECONDS:
                    version, listed_at = await self.relist(), began
                version, problem = await self._watch(version), ""
            except ApiError as error:
                if str(error) != problem:
                    fields = {"resource": self.resource.plural, "error": str(error)}
                    logger.warning("Could not list or watch, retrying", extra=fields)
                problem = str(error)
                asked = error.retry_after if isinstance(error, UnavailableError) else 0.0
                if error.status == HTTPStatus.GONE or loop_time() - listed_at >= FRESH_SECONDS:
                    version = 0
            if problem or loop_time() - began < SHORTEST_WATCH_SECONDS:
                await asyncio.sleep(max(asked, PAUSE_SECONDS * random.uniform(0.5, 1.0)))

    async def _watch(self, version: int) -> int:
        events = self._client.watch(
            self.resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            resource_version=version,
        )
        async with aclosing(events):
            async for event in events:
                version = int(event.object["metadata"].get("resourceVersion") or version)
                if event.type != "BOOKMARK":
                    self.take(event.type, event.object)
        return version


class Relister:
    """Lists several resources again and again, for those that something else watches.

    They are listed in their order, one after the other: who decides by two of them (is the owner of this reservation
    gone?) puts the one that refers before the one that is referred to.
    """

    def __init__(self, informers: Sequence[Informer[Any]], *, random: Random, every_seconds: float) -> None:
        self.loaded = asyncio.Event()
        """Every resource was listed once: before that nothing can be concluded from absence."""
        self._informers = informers
        self._random = random
        self._every_seconds = every_seconds
        self._turn = asyncio.Lock()
        self._due_at = 0.0

    async def refresh(self) -> None:
        """List everything from now on: a leader must know what the former one did last. Raises RestoredStoreError."""
        async with self._turn:
            await self._list()

    async def run(self) -> None:
        """Go on until cancelled. Raises RestoredStoreError: the process must exit then, and start again."""
        self._due_at = loop_time() + FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(self._due_at - loop_time())
            async with self._turn:
                if loop_time() >= self._due_at:
                    await self._list()

    async def _list(self) -> None:
        left, failures = self._informers, 0
        while left:
            listed = [await self._relist(each) for each in left]
            # From the first failure on, as their order matters.
            left = left[listed.index(False) :] if False in listed else ()
            if left:
                failures += 1
                await asyncio.sleep(_BACKOFF.delay_seconds(failures, self._random))
        self.loaded.set()
        self._due_at = loop_time() + self._every_seconds * self._random.uniform(0.9, 1.0)

    async def _relist(self, informer: Informer[Any]) -> bool:
        try:
            await informer.relist()
        except ApiError as error:
            fields = {"resource": informer.resource.plural, "error": str(error)}
            logger.warning("Could not list resources, retrying", extra=fields)
            return False
        return True


def _without_managed_fields(obj: Json) -> Json:
    """Drop the managed fields, which are often half of an object and are never read."""
    obj["metadata"].pop("managedFields", None)
    return obj
