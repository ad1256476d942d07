"""The life that every role of fipop has: a start that waits for the API server, its health, an ordered end.

A role is live as long as it answers: what it cannot survive ends its process. It is ready if it knows all objects, and
read one of the API server within the last 30 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from fipop.errors import FipopError, UntrustedServerError
from fipop.interfaces import loop_time
from fipop.kube.client import KubeClient

logger = logging.getLogger(__name__)

START_RETRY_SECONDS = 2.0
HEALTH_READ_SECONDS = 5.0
"""Between two reads of an object."""
ANSWER_LIMIT_SECONDS = 30.0


class Process:
    """How a role starts and ends, and whether it is ready.

    `read` reads an object of the API server, be it there or not; it raises what the client raises. `is_loaded` returns
    whether all objects were listed. Steps and parts raise what only a new process can go on from: RestoredStoreError
    and StartError.
    """

    def __init__(
        self, *, client: KubeClient, read: Callable[[], Awaitable[object]], is_loaded: Callable[[], bool]
    ) -> None:
        self._client = client
        self._read = read
        self._is_loaded = is_loaded
        self._not_ready: dict[str, str] = {"start": "has not finished"}
        self._read_at: float | None = None
        self._read_problem = ""
        """Why the last read failed; "" if it did not."""

    @property
    def since_read(self) -> float | None:
        """Seconds since an object was read; None before the first."""
        return None if self._read_at is None else loop_time() - self._read_at

    def why_not_ready(self) -> dict[str, str]:
        """Return what keeps this replica from being ready, by a name, {} if nothing does."""
        found, since = dict(self._not_ready), self.since_read
        if since is None or since > ANSWER_LIMIT_SECONDS:
            waited = "" if since is None else f" for {since:.0f} s"
            why = f": {self._read_problem}" if self._read_problem else ""
            found["api-server"] = f"no object was read{waited}{why}"
        if not self._is_loaded():
            found["objects"] = "not loaded yet"
        return found

    async def take_step(self, step: Callable[[], Awaitable[None]], name: str) -> None:
        """Repeat a step of the start until it succeeds; the log and readiness say why it does not."""
        while True:
            try:
                await step()
            except FipopError as error:
                self._check_authority(error)
                if self._not_ready.get(name) != str(error):
                    logger.warning("Start is waiting", extra={"step": name, "error": str(error)})
                self._not_ready[name] = str(error)
                await asyncio.sleep(START_RETRY_SECONDS)
            else:
                self._not_ready.pop(name, None)
                return

    def record_started(self) -> None:
        """Note that every step of the start is done."""
        self._not_ready.clear()

    async def run_parts(self, *parts: Coroutine[Any, Any, None]) -> None:
        """Run everything that runs at once; the first that fails ends the rest, the last of them first."""
        tasks = [asyncio.create_task(part) for part in (self._read_for_health(), *parts)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # What comes last stands on what comes before it.
            for task in reversed(tasks):
                task.cancel()
                await asyncio.wait([task])

    async def _read_for_health(self) -> None:
        """Read an object again and again: an API server whose store hangs still answers what needs no object.

        An answer that refuses us (401, 403, 429) is no read either: whatever else is asked for would be refused, too.
        Raises StartError: no waiting would bring an API server back whose certificate is not ours to trust.
        """
        while True:
            try:
                await self._read()
            except FipopError as error:
                if str(error) != self._read_problem:
                    logger.warning("Could not read any object", extra={"error": str(error)})
                self._read_problem = str(error)
                self._check_authority(error)
            else:
                self._read_at, self._read_problem = loop_time(), ""
            await asyncio.sleep(HEALTH_READ_SECONDS)

    def _check_authority(self, error: FipopError) -> None:
        """Raise StartError where a request failed because we know an old authority of the server."""
        if isinstance(error, UntrustedServerError):
            self._client.check_authority()
