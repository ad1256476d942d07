"""One replica works, the others stand by: the leader's work runs only while its Lease is surely held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random

from fipop.boundary import boottime
from fipop.deadlines import (
    LEASE_DURATION_SECONDS,
    LEASE_RENEW_DEADLINE_SECONDS,
    LEASE_RENEW_SECONDS,
    LEASE_RETRY_SECONDS,
    STOP_MARGIN_SECONDS,
)
from fipop.errors import FipopError, StartError
from fipop.runtime.lease import LeaseLock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """Seconds. Between the renew deadline and the end of the lease the work has time to stop.

    A new leader is there after `retry` when the old one left, after `duration` + 2 `retry` when it was killed.
    """

    duration_seconds: int = LEASE_DURATION_SECONDS
    renew_deadline_seconds: float = LEASE_RENEW_DEADLINE_SECONDS
    renew_seconds: float = LEASE_RENEW_SECONDS
    retry_seconds: float = LEASE_RETRY_SECONDS

    def __post_init__(self) -> None:
        if (
            not 0
            < self.retry_seconds
            <= self.renew_seconds
            < self.renew_deadline_seconds
            < self.duration_seconds
        ):
            raise ValueError("lease times: needed is 0 < retry <= renew < renew deadline < duration")


class LeaderWorkStuckError(FipopError):
    """The leader's work did not stop in time: the process must end at once, before another one leads."""

    def __init__(self, *, waited_seconds: float) -> None:
        self.waited_seconds = waited_seconds
        super().__init__(
            f"the leader's work did not stop within {waited_seconds:.1f} s; the process must end"
        )


_STOP_GRACE_SECONDS = 1.0
"""What work gets to stop when the lease is gone already: it was cancelled, and looks before each write."""
_RELEASE_SECONDS = 2.0
_LEAST_CALL_SECONDS = 0.01
"""No call is begun that has less time than this."""


class LeaderElector:
    """Runs the leader's work while the Lease is held; without a Lease (election switched off) always.

    `clock` is the one that the Lease's `valid_until` is counted in. What it shows decides, not whether a task has
    noticed yet: a process that was stopped for a minute is no leader from its first instruction on.
    """

    def __init__(
        self,
        lease: LeaseLock | None,
        *,
        random: Random,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self._lease = lease
        self._times = times or LeaseTimes()
        self._random = random
        self._clock = clock
        self._leading = False

    @property
    def is_leader(self) -> bool:
        """Whether the work may go on."""
        return self._leading and (self._lease is None or self._clock() < self._work_until(self._lease))

    def still_leading_for(self, seconds: float) -> bool:
        """Whether nobody else can lead within the next `seconds`: for a look right before a write."""
        if self._lease is None:
            return self._leading
        valid_until = self._lease.valid_until
        return self.is_leader and valid_until is not None and self._clock() + seconds < valid_until

    async def run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do `work` whenever this replica leads, until it returns or fails by itself, or until cancelled.

        Work is cancelled when the lease can't be renewed in time, and started anew when it is held again. Whenever
        it has stopped, the Lease is given up. Raises LeaderWorkStuckError when it does not stop.
        """
        if self._lease is None:
            self._begin()
            try:
                await work()
            finally:
                self._end("finished")
            return
        while not await self._lead_once(self._lease, work):
            pass

    async def lead(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do `work` once, when this replica leads, until it ends or until cancelled.

        Raises: StartError if the Lease is lost meanwhile, and what `run` raises.
        """
        if self._lease is None:
            await self.run(work)
        elif not await self._lead_once(self._lease, work):
            raise StartError(what=self._lease.place, problem="was lost: the process must end")

    async def _lead_once(self, lease: LeaseLock, work: Callable[[], Coroutine[None, None, None]]) -> bool:
        """Acquire, work, stop, release; True where the work ended by itself."""
        await self._acquire(lease)
        self._begin()
        working = asyncio.create_task(work())
        keeping = asyncio.create_task(self._keep(lease))
        try:
            await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended_by_itself, lost = working.done(), keeping.done()
            self._end("finished" if ended_by_itself else "lost" if lost else "stopping")
            keeping.cancel()
            await self._stop_work(lease, working)
            await self._release(lease)
        if lost:
            keeping.result()
        if ended_by_itself:
            working.result()
        return ended_by_itself

    async def _acquire(self, lease: LeaseLock) -> None:
        failing, holder = False, ""
        while True:
            try:
                async with asyncio.timeout(2 * self._call_seconds):  # a read and a write
                    if await lease.try_acquire() and self._clock() < self._work_until(lease):
                        return
                failing = False
                if lease.is_foreign and lease.holder != holder:
                    holder = lease.holder
                    logger.info("Waiting for Lease", extra={"lease": lease.place, "holder": holder})
            except (FipopError, TimeoutError) as error:
                _log_failure("Could not acquire Lease, retrying", error, first=not failing)
                failing = True
            # Jitter, so that candidates do not ask in step for ever.
            await asyncio.sleep(self._times.retry_seconds * self._random.uniform(0.8, 1.0))

    async def _keep(self, lease: LeaseLock) -> None:
        """Renew for as long as that works; return when the work has to stop."""
        failing = False
        while True:
            pause = self._times.retry_seconds if failing else self._times.renew_seconds
            await asyncio.sleep(min(pause, max(0.0, self._work_until(lease) - self._clock())))
            left = self._work_until(lease) - self._clock()
            if left < _LEAST_CALL_SECONDS:
                return
            try:
                async with asyncio.timeout(min(self._call_seconds, left)):
                    if not await lease.renew():
                        return
                failing = False
            except (FipopError, TimeoutError) as error:
                _log_failure("Could not renew Lease, retrying", error, first=not failing)
                failing = True

    async def _stop_work(self, lease: LeaseLock, working: asyncio.Task[None]) -> None:
        working.cancel()
        left = (lease.valid_until or 0.0) - self._clock() - STOP_MARGIN_SECONDS
        patience = max(_STOP_GRACE_SECONDS, left)
        done, _ = await asyncio.wait({working}, timeout=patience)
        if not done:
            raise LeaderWorkStuckError(waited_seconds=patience)
        if not working.cancelled() and (error := working.exception()) is not None:
            logger.error("The work of the leader failed", exc_info=error)

    async def _release(self, lease: LeaseLock) -> None:
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await lease.release()
        except (FipopError, TimeoutError) as error:
            _log_failure("Could not release Lease, it will expire", error, first=True)

    @property
    def _call_seconds(self) -> float:
        return self._times.renew_deadline_seconds / 2

    def _work_until(self, lease: LeaseLock) -> float:
        if lease.valid_until is None:
            return float("-inf")
        return lease.valid_until - (self._times.duration_seconds - self._times.renew_deadline_seconds)

    def _begin(self) -> None:
        self._leading = True
        logger.info("This replica leads")

    def _end(self, why: str) -> None:
        self._leading = False
        logger.info("This replica stopped leading", extra={"why": why})


def _log_failure(message: str, error: BaseException, *, first: bool) -> None:
    level = logging.WARNING if first else logging.DEBUG
    logger.log(level, message, extra={"error": str(error) or type(error).__name__})
