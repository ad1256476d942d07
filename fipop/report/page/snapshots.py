"""What the web UI shows: one reading of the cluster for all who ask within a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from fipop.errors import FipopError
from fipop.report.snapshot import Snapshot
from fipop.report.status import StatusReport, report_status

FRESH_SECONDS = 5.0
"""How old a report may be before the cluster is read again."""
STALE_SECONDS = 60.0
"""How old a report may be that is shown while the cluster is read."""


class Snapshots:
    """Returns the newest report. However many ask, the cluster is read once at a time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Snapshot]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._latest: StatusReport | None = None
        self._read_at = 0.0
        self._reading: asyncio.Task[StatusReport] | None = None

    def begin(self) -> asyncio.Task[StatusReport]:
        """Begin to read the cluster, unless that is under way: whoever asks soon waits less."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._take())
            self._reading.add_done_callback(self._end)
        return self._reading

    async def get(self) -> StatusReport:
        """Return a report that is fresh, or at most STALE_SECONDS old. Raises FipopError if nothing can be read."""
        latest, age_seconds = self._latest, self._monotonic() - self._read_at
        if latest is not None and age_seconds < FRESH_SECONDS:
            return latest
        reading = self.begin()
        if latest is not None and age_seconds < STALE_SECONDS:
            return latest
        return await asyncio.shield(reading)

    async def close(self) -> None:
        """End what is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _take(self) -> StatusReport:
        cluster, at = await self._read(), self._monotonic()
        # Thousands of objects: not on the loop that answers all requests.
        status = await asyncio.to_thread(report_status, cluster)
        self._latest, self._read_at = status, at
        return status

    def _end(self, done: asyncio.Task[StatusReport]) -> None:
        self._reading = None
        if not done.cancelled() and isinstance(done.exception(), FipopError):
            # Whoever waits for it gets the error. If nothing waits, the next request tries again.
            self._latest = None
