"""What the page shows: one look at the cluster for all who ask within a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.report.snapshot import ClusterSnapshot
from fipop.report.status import StatusReport, report_status

FRESH_SECONDS = 5.0
"""So old may a look be without a new one being begun."""
STALE_SECONDS = 60.0
"""So old may a look be that is shown while a new one is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One reading and what was judged of it; `taken` is monotonic."""

    status: StatusReport
    taken: float


class Snapshots:
    """Gives the newest snapshot; however many ask, the cluster is read once at a time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[ClusterSnapshot]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._latest: Snapshot | None = None
        self._reading: asyncio.Task[Snapshot] | None = None

    def begin(self) -> asyncio.Task[Snapshot]:
        """Begin a look, unless one is under way: who asks soon waits less."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._take())
            self._reading.add_done_callback(self._end)
        return self._reading

    async def get(self) -> StatusReport:
        """Return a report that is fresh, or at most STALE_SECONDS old; FipopError where nothing can be read."""
        latest, now = self._latest, self._monotonic()
        if latest is not None and now - latest.taken < FRESH_SECONDS:
            return latest.status
        reading = self.begin()
        if latest is not None and now - latest.taken < STALE_SECONDS:
            return latest.status
        return (await asyncio.shield(reading)).status

    async def close(self) -> None:
        """End what is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _take(self) -> Snapshot:
        cluster, taken = await self._read(), self._monotonic()
        # Thousands of objects: not on the loop that answers everybody.
        status = await asyncio.to_thread(report_status, cluster)
        self._latest = Snapshot(status=status, taken=taken)
        return self._latest

    def _end(self, done: asyncio.Task[Snapshot]) -> None:
        self._reading = None
        if not done.cancelled() and isinstance(done.exception(), FipopError):
            # Who waits for it hears of it; where nobody does, the next to ask tries again.
            self._latest = None
