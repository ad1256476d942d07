"""Objects of one kind, listed and watched for ever: what a role follows that has no need of kopf."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from http import HTTPStatus

from fipop.backoff import Backoff
from fipop.boundary import loop_time
from fipop.deadlines import LONGEST_WATCH_SECONDS
from fipop.errors import FipopError, UnavailableError
from fipop.jsons import Json
from fipop.kube.client import KubeClient, Listing, WatchEvent
from fipop.kube.resources import Resource

_FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 10.0
_SHORTEST_ROUND_SECONDS = 2.0
_OBJECT_EVENTS = frozenset({"ADDED", "MODIFIED", "DELETED"})

_logger = logging.getLogger(__name__)


class ListWatch:
    """Follows the objects of a resource: iterate `changes`; `last_heard_at` says whether the stream lives.

    A watch that the server ends goes on where it was; after anything else, and when the last list is older than
    `relist_seconds`, there is a list first, so what happened while blind is seen. `on_list` is called right before one
    is asked for; `project` cuts its objects down.
    """

    def __init__(  # noqa: PLR0913 - the limits of a watch, each with a default
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        field_selector: str | None = None,
        relist_seconds: float = 600.0,
        server_timeout_seconds: int = LONGEST_WATCH_SECONDS - 10,
        longest_backoff_seconds: float = LONGEST_BACKOFF_SECONDS,
        project: Callable[[Json], Json] | None = None,
        on_list: Callable[[], None] = lambda: None,
        chance: random.Random | None = None,
    ) -> None:
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._field_selector = field_selector
        self._relist_seconds = relist_seconds
        self._server_timeout_seconds = min(server_timeout_seconds, LONGEST_WATCH_SECONDS)
        self._longest_backoff_seconds = longest_backoff_seconds
        self._project = project or (lambda obj: obj)
        self._on_list = on_list
        self._chance = chance or random.Random()  # noqa: S311 - spreads retries, guards nothing
        self.last_heard_at: float | None = None
        """The monotonic time of the last list, event or bookmark; None before the first."""

    async def changes(self) -> AsyncGenerator[Listing[Json] | WatchEvent, None]:
        """Yield lists and events (ADDED, MODIFIED, DELETED) as they come. Ends only when closed."""
        version: int | None = None
        listed_at, failures = 0.0, 0
        while True:
            began = loop_time()
            failure: FipopError | None = None
            try:
                if version is None or began - listed_at >= self._relist_seconds:
                    listing = await self._list()
                    version, listed_at = listing.resource_version, began
                    yield listing
                async with aclosing(self._watch(version)) as events:
                    async for event in events:
                        version = _version_of(event, version)
                        if event.type in _OBJECT_EVENTS:
                            yield event
            except FipopError as error:
                failure, version = error, None
            # A server that ends every watch at once, politely or with 410, must not be asked in a tight loop.
            failures = failures + 1 if loop_time() - began < _SHORTEST_ROUND_SECONDS else 0
            if failure is not None or failures:
                await self._back_off(max(failures, 1), failure)

    async def _list(self) -> Listing[Json]:
        self._on_list()
        listing = await self._client.list(
            self._resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            project=self._project,
        )
        self.last_heard_at = loop_time()
        return listing

    async def _watch(self, version: int) -> AsyncGenerator[WatchEvent, None]:
        events = self._client.watch(
            self._resource,
            namespace=self._namespace,
            field_selector=self._field_selector,
            resource_version=version,
            timeout_seconds=self._server_timeout_seconds,
        )
        async with aclosing(events):
            async for event in events:
                self.last_heard_at = loop_time()
                yield event

    async def _back_off(self, failures: int, failure: FipopError | None) -> None:
        longest = self._longest_backoff_seconds
        backoff = Backoff(first_seconds=_FIRST_BACKOFF_SECONDS, limit_seconds=longest)
        delay = backoff.delay_seconds(failures, self._chance)
        if isinstance(failure, UnavailableError):
            delay = max(delay, min(failure.retry_after, longest))
        level = (
            logging.DEBUG
            if failure is None or getattr(failure, "status", 0) == HTTPStatus.GONE
            else logging.WARNING
        )
        _logger.log(
            level,
            "Watch ended early, retrying",
            extra={
                "kind": self._resource.kind,
                "selector": self._field_selector or "",
                "error": str(failure or "ended by the server"),
                "failures": failures,
                "delay_seconds": round(delay, 1),
            },
        )
        await asyncio.sleep(delay)


def _version_of(event: WatchEvent, before: int) -> int:
    try:
        return int(event.object["metadata"]["resourceVersion"])
    except (KeyError, ValueError):
        return before
