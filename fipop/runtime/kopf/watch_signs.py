"""When each watch showed life last, seen from the requests that kopf makes and the events that it delivers.

The API server ends a watch after the time that was asked for; kopf ends a frozen or mute one, later. So a stream that
ended in between was alive until then. An event is a sign, too: a proxy may cut streams every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

import aiohttp
from yarl import URL

from fipop.kube.resources import Resource

logger = logging.getLogger(__name__)

SHORTEST_SECONDS = 1.0
"""A stream that ended sooner proves nothing, and the next one waits so long: a server must not be hammered."""


class WatchSigns:
    """Hears of the requests of HTTP sessions by its `trace`; written and read in different threads.

    `longest_seconds` is less than a frozen or mute stream lives, and more than any other. `on_gap` is called, in kopf's
    thread, after a failure and after a list: what was deleted meanwhile is shown neither by it nor by the next stream.
    """

    def __init__(
        self, resources: Collection[Resource], server: str, longest_seconds: float, on_gap: Callable[[], None]
    ) -> None:
        prefix = URL(server).path.rstrip("/")
        self._resource_of = {prefix + resource.path(): resource for resource in resources}
        self._longest_seconds = longest_seconds
        self._now = asyncio.get_running_loop().time
        self._on_gap = on_gap
        self._alive_at = dict.fromkeys(resources, self._now())
        self._began_at: dict[Resource, float] = {}
        self._failing: set[Resource] = set()
        self.asked: set[Resource] = set()
        """What kopf has asked for since this was emptied."""
        self.trace = aiohttp.TraceConfig()
        self.trace.on_request_start.append(self._begin)
        self.trace.on_request_end.append(self._take_answer)
        self.trace.on_request_exception.append(self._take_failure)
        self.trace.on_response_chunk_received.append(self._take_list)

    def silences(self) -> dict[str, float]:
        """Return for how many seconds each watch has shown no sign of life, by `plural.group`."""
        return {resource.full_name: self._now() - at for resource, at in self._alive_at.items()}

    def show(self, *resources: Resource) -> None:
        """Record a sign of life of each."""
        self._alive_at.update(dict.fromkeys(resources, self._now()))

    async def _begin(self, _: Any, __: Any, told: aiohttp.TraceRequestStartParams) -> None:
        """Judge the stream that was before this request by how long it lived."""
        if resource := self._resource_of.get(told.url.path):
            self.asked.add(resource)
            lived = self._now() - self._began_at.pop(resource, float("-inf"))
            if lived < SHORTEST_SECONDS:
                await asyncio.sleep(SHORTEST_SECONDS)
            elif lived < self._longest_seconds:
                self.show(resource)
            if "watch" in told.url.query:
                self._began_at[resource] = self._now()

    async def _take_answer(self, _: Any, __: Any, told: aiohttp.TraceRequestEndParams) -> None:
        resource = self._resource_of.get(told.url.path)
        if not told.response.ok:
            self._fail(resource, f"HTTP {told.response.status}")
        elif resource in self._failing:
            self._failing.discard(resource)
            logger.info("Watch works again", extra={"resource": resource.full_name})
            self._on_gap()

    async def _take_failure(self, _: Any, __: Any, told: aiohttp.TraceRequestExceptionParams) -> None:
        if not isinstance(told.exception, asyncio.CancelledError):
            self._fail(self._resource_of.get(told.url.path), type(told.exception).__name__)

    async def _take_list(self, _: Any, __: Any, told: aiohttp.TraceResponseChunkReceivedParams) -> None:
        """Hear that an answer was read to its end; of watches this does not tell."""
        if (resource := self._resource_of.get(told.url.path)) and resource not in self._failing:
            self.show(resource)
            self._on_gap()

    def _fail(self, resource: Resource | None, why: str) -> None:
        if resource is not None:
            self._began_at.pop(resource, None)
            if resource not in self._failing:
                self._failing.add(resource)
                logger.warning("Watch failed, retrying", extra={"resource": resource.full_name, "why": why})
