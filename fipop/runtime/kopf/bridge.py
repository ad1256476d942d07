"""Watch events on their way from the thread that watches to the event loop that works."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum

from fipop.jsons import JsonView
from fipop.kube.resources import Resource

logger = logging.getLogger(__name__)


class EventType(StrEnum):
    """What happened to an object; LISTED where a list found it."""

    LISTED = "LISTED"
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


Callback = Callable[[EventType, JsonView], None]


class EventBridge:
    """Hands events over, in order, in slices: after a list of thousands others must get their turns too."""

    def __init__(
        self,
        callbacks: Mapping[Resource, Callback],
        loop: asyncio.AbstractEventLoop,
        *,
        slice_length: int = 100,
    ) -> None:
        self._callbacks = callbacks
        self._loop = loop
        self._slice_length = slice_length
        self._events: deque[tuple[Resource, EventType, JsonView]] = deque()
        self._scheduled = threading.Lock()

    def put(self, resource: Resource, event_type: EventType, obj: JsonView) -> None:
        """Send an event to its callback; from whatever thread. After the loop's end it goes nowhere."""
        self._events.append((resource, event_type, obj))
        if self._scheduled.acquire(blocking=False):
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        for _ in range(min(self._slice_length, len(self._events))):
            resource, event_type, obj = self._events.popleft()
            try:
                self._callbacks[resource](event_type, obj)
            except Exception:  # the outermost loop of all events: one bad object must not stop the others
                logger.exception("Could not process event", extra={"resource": resource.plural})
        # Released before the last look: an event that comes in between is seen here, or schedules by itself.
        self._scheduled.release()
        if self._events and self._scheduled.acquire(blocking=False):
            self._loop.call_soon(self._deliver)
