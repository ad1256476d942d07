"""The life that every role of fipop has: a start that waits for the API server, its health, an ordered end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from fipop.boundary import loop_time
from fipop.errors import FipopError, UnavailableError
from fipop.kube.client import KubeClient
from fipop.runtime.health import HealthFacts, ReadRecord

logger = logging.getLogger(__name__)

START_RETRY_SECONDS = 2.0
HEALTH_READ_SECONDS = 5.0
"""Between two reads of an object."""
AUTHORITY_FAILURES = ("CertificateInvalid", "TlsHandshake")
"""How requests fail where an API server has a certificate of an authority that is new to us."""


class Process:
    """How a role starts and ends, and the facts of its health.

    `read` reads an object of the API server, be it there or not; it raises what the client raises.
    Its steps and parts raise what only a new process can go on from: RestoredStoreError and StartError.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        read: Callable[[], Awaitable[object]],
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._client = client
        self._read = read
        self.reads = ReadRecord(clock=clock)
        self._not_ready: dict[str, str] = {"start": "has not finished"}

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

    def judge(self, *, silences: Mapping[str, float], is_loaded: bool) -> HealthFacts:
        """Return the facts that the probes decide by.

        `silences` has the seconds for which each watch has shown no life. `is_loaded`: this replica knows the whole
        ledger.
        """
        return HealthFacts(
            silences=silences,
            since_read=self.reads.since_read,
            reading_for=self.reads.reading_for,
            ledger_loaded=is_loaded,
            not_ready=dict(self._not_ready),
        )

    async def _read_for_health(self) -> None:
        """Read an object again and again: an API server whose store hangs still answers what needs no object.

        An answer that refuses us (401, 403, 429) is no read either: whatever else is asked for would be refused, too.
        Raises StartError: no waiting would bring an API server back whose certificate is not ours to trust.
        """
        while True:
            try:
                await self._read()
            except FipopError as error:
                logger.debug("Could not read any object", extra={"error": str(error)})
                self._check_authority(error)
            else:
                self.reads.record()
            await asyncio.sleep(HEALTH_READ_SECONDS)

    def _check_authority(self, error: FipopError) -> None:
        """Raise StartError where a request failed because we know an old authority of the server."""
        if isinstance(error, UnavailableError) and error.reason in AUTHORITY_FAILURES:
            self._client.check_authority()
