"""What kopf reads of answers: we take the objects out, and leave it what it needs to go on watching.

For each object kopf starts a task, finds handlers, and builds loggers and arguments: 0.5 ms of processor an event,
more than half of its thread, and 10 s for 20,000 objects at a start. Our one handler needs nothing of that. So kopf
lists, watches, begins again and keeps the version to go on from; what stands in lists and events goes to us at once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from fipop.jsons import Json, JsonView
from fipop.kube.resources import Resource
from fipop.runtime.kopf.bridge import EventType
from fipop.runtime.kopf.liveness import Liveness

Deliver = Callable[[EventType, JsonView], None]

_PROVEN_SECONDS = 10.0
"""A stream that was cut after so long had been working: idle connections are cut on the way at times."""
_TAKEN = {each.value: each for each in (EventType.ADDED, EventType.MODIFIED, EventType.DELETED)}


class ListContent:
    """The body of a list: its objects are delivered, and kopf reads the list without them."""

    def __init__(self, content: aiohttp.StreamReader, deliver: Deliver) -> None:
        self._content = content
        self._deliver = deliver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """Read all of it."""
        body = await self._content.read(n)
        try:
            listing = json.loads(body)
            objects = [_require_object(each) for each in listing["items"]]
        except (ValueError, LookupError, TypeError):
            return body  # kopf says what is wrong with it
        for obj in objects:
            self._deliver(EventType.LISTED, obj)
        return json.dumps({**listing, "items": []}).encode()


class WatchContent:
    """The body of a watch: it tells what it hears, and delivers the objects of its events."""

    def __init__(
        self, content: aiohttp.StreamReader, deliver: Deliver, signs: Liveness, resource: Resource
    ) -> None:
        self._content = content
        self._deliver = deliver
        self._signs = signs
        self._resource = resource

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    def iter_chunked(self, n: int) -> AsyncIterator[bytes]:
        """Iterate over what is left for kopf, as the body comes."""
        return _WatchChunks(self._content.iter_chunked(n), self._deliver, self._signs, self._resource)


class _WatchChunks:
    """An iterator object and no generator: the reader drops it half-way without closing it."""

    def __init__(
        self, chunks: AsyncIterator[bytes], deliver: Deliver, signs: Liveness, resource: Resource
    ) -> None:
        self._chunks = chunks
        self._deliver = deliver
        self._signs = signs
        self._resource = resource
        self._opened = signs.now()
        self._pending = b""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while True:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                self._signs.show(self._resource)
                if not self._pending:
                    raise
                half, self._pending = self._pending, b""
                return half
            except aiohttp.ClientError:
                if self._signs.now() - self._opened >= _PROVEN_SECONDS:
                    self._signs.show(self._resource)
                raise
            self._signs.show(self._resource)
            *lines, self._pending = (self._pending + chunk).split(b"\n")
            left = self._take(lines)
            if left:
                return left

    def _take(self, lines: list[bytes]) -> bytes:
        """Deliver the objects of these events; give what kopf has to see in place of them."""
        left: list[bytes] = []
        version: str | None = None
        for line in filter(None, lines):
            try:
                event = json.loads(line)
                event_type = _TAKEN[event["type"]]
                obj = _require_object(event["object"])
                version = str(obj["metadata"]["resourceVersion"])
            except (ValueError, LookupError, TypeError):
                # A bookmark, an error, or something for kopf to stumble over.
                left += [*_bookmarks(version), line + b"\n"]
                version = None
            else:
                self._deliver(event_type, obj)
        return b"".join([*left, *_bookmarks(version)])


def _require_object(obj: Any) -> Json:
    """Give an object that says who it is; raise LookupError or TypeError."""
    metadata = obj["metadata"]
    if not isinstance(metadata["name"], str):
        raise TypeError("a name is a text")
    return obj  # type: ignore[no-any-return] # whoever can be asked for these is a mapping


def _bookmarks(version: str | None) -> list[bytes]:
    """Build the event by which kopf learns where to go on, if there is something to learn."""
    if version is None:
        return []
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
    return [json.dumps(event).encode() + b"\n"]
