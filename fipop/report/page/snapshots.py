"""What the page shows: one look at the cluster for all who ask within a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fipop.errors import FipopError
from fipop.report.facts import Facts
from fipop.report.fleet import FloatingIPReport, GuestReport, report_floating_ips, report_guests
from fipop.report.picture import Picture
from fipop.report.status import StatusReport, report_status

FRESH_SECONDS = 5.0
"""So old may a look be without a new one being begun."""
STALE_SECONDS = 60.0
"""So old may a look be that is shown while a new one is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look, and what was worked out of it; `taken` is monotonic."""

    picture: Picture
    status: StatusReport
    floating_ips: tuple[FloatingIPReport, ...]
    guests: tuple[GuestReport, ...]
    taken: float


class Snapshots:
    """Gives the newest snapshot; however many ask, the cluster is read once at a time."""

    def __init__(
        self, read: Callable[[], Awaitable[Facts]], *, monotonic: Callable[[], float] = time.monotonic
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

    async def get(self) -> Snapshot:
        """Give a snapshot that is fresh, or at most STALE_SECONDS old; FipopError where nothing can be read."""
        latest, now = self._latest, self._monotonic()
        if latest is not None and now - latest.taken < FRESH_SECONDS:
            return latest
        reading = self.begin()
        if latest is not None and now - latest.taken < STALE_SECONDS:
            return latest
        return await asyncio.shield(reading)

    async def close(self) -> None:
        """End what is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _take(self) -> Snapshot:
        facts = await self._read()
        # Thousands of objects: not on the loop that answers everybody.
        self._latest = await asyncio.to_thread(_work_out, facts, self._monotonic())
        return self._latest

    def _end(self, done: asyncio.Task[Snapshot]) -> None:
        self._reading = None
        if not done.cancelled() and isinstance(done.exception(), FipopError):
            # Who waits for it hears of it; where nobody does, the next to ask tries again.
            self._latest = None


def _work_out(facts: Facts, taken: float) -> Snapshot:
    picture = Picture(facts)
    floating_ips = report_floating_ips(picture)
    return Snapshot(
        picture=picture,
        status=report_status(picture),
        floating_ips=floating_ips,
        guests=report_guests(picture, floating_ips),
        taken=taken,
    )
