"""A keyed work queue: what to look at again, when, and never the same thing twice at once."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial
from random import Random
from typing import Generic, TypeVar

from fipop.backoff import Backoff
from fipop.errors import ApiThrottledError, FipopError

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Priority(IntEnum):
    """What goes first when more is due than may run."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


class Outcome(StrEnum):
    """How one run over a key ended."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """A handler's answer when nothing failed, but there is something to look at later: not urgently, then."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[K]):
    """One finished run over a key, for metrics."""

    key: K
    outcome: Outcome
    waited_seconds: float
    worked_seconds: float


@dataclass(frozen=True, slots=True)
class _Ready:
    priority: Priority
    sequence: int
    since: float


@dataclass(frozen=True, slots=True)
class _Delayed:
    priority: Priority
    due: float
    timer: asyncio.TimerHandle


@dataclass(slots=True)
class _Trouble:
    """A key's failures in a row, and the text that was logged for it last."""

    failures: int = 0
    logged: str = ""


Handler = Callable[[K], Coroutine[None, None, RetryAfter | None]]


class WorkQueue(Generic[K]):
    """Runs a handler over keys: a key never twice at once, at most `concurrency` keys at a time.

    Keys may be added at any time, also while nothing runs: none is lost, each is kept once. Everything belongs
    to one event loop, whose clock rules the delays.
    """

    def __init__(
        self,
        *,
        name: str,
        random: Random,
        backoff: Backoff | None = None,
        observe: Callable[[Run[K]], None] | None = None,
    ) -> None:
        self.name = name
        self.outcomes: Counter[Outcome] = Counter()
        self._random = random
        self._backoff = backoff or Backoff(first_seconds=0.5, limit_seconds=300.0)
        self._observe = observe
        self._ready: dict[K, _Ready] = {}
        self._urgency: Counter[Priority] = Counter()
        self._heap: list[tuple[Priority, int, K]] = []
        self._delayed: dict[K, _Delayed] = {}
        self._active: dict[K, asyncio.Task[RetryAfter | None]] = {}
        self._again: dict[K, tuple[float, Priority]] = {}
        self._troubles: dict[K, _Trouble] = {}
        self._sequence = 0
        self._handle: Handler[K] | None = None
        self._context = contextvars.Context()
        self._concurrency = 0
        self._stopping: asyncio.Event | None = None
        self._stop_deadline_seconds = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def depth(self) -> int:
        """How many keys are due and wait for their turn."""
        return len(self._ready)

    def waiting(self, priority: Priority) -> int:
        """How many keys that are due are at least so urgent."""
        return sum(self._urgency[each] for each in Priority if each <= priority)

    @property
    def delayed(self) -> int:
        """How many keys wait for their time."""
        return len(self._delayed)

    @property
    def active(self) -> int:
        """How many keys are being worked on."""
        return len(self._active)

    @property
    def failing(self) -> int:
        """How many keys failed at their last run."""
        return len(self._troubles)

    def add(self, key: K, *, delay_seconds: float = 0.0, priority: Priority = Priority.NORMAL) -> None:
        """Have `key` looked at in `delay_seconds`; of several adds the earliest and the most urgent wins.

        A key that is being worked on is looked at again afterwards.
        """
        self._schedule(key, asyncio.get_running_loop().time() + max(0.0, delay_seconds), priority)
        self._dispatch()

    def drop_rerun(self, key: K) -> None:
        """Have the run under way answer for what was added until now; its handler looks at all that is known, now."""
        again = self._again.get(key)
        if again is not None and again[0] <= asyncio.get_running_loop().time():
            del self._again[key]

    async def run(self, handle: Handler[K], *, concurrency: int) -> None:
        """Work until `stop` or cancellation; what could not be finished then stays in the queue.

        `handle` returns None (done) or RetryAfter. A FipopError or any other exception backs the key off.
        """
        if self._handle is not None:
            raise RuntimeError(f"queue {self.name} runs already")
        self._handle, self._concurrency = handle, concurrency
        # Handlers start in the context of this task: an add comes from anywhere.
        self._context = contextvars.copy_context()
        self._stopping = asyncio.Event()
        try:
            self._dispatch()
            await self._stopping.wait()
            if self._active:
                await asyncio.wait(self._active.values(), timeout=self._stop_deadline_seconds)
        finally:
            self._handle = None
            await self._cancel_active()

    def stop(self, *, deadline_seconds: float) -> None:
        """Start nothing new; `run` returns once everything is done, or cancelled at the deadline."""
        if self._stopping is not None:
            self._stop_deadline_seconds = deadline_seconds
            self._stopping.set()

    def resize(self, concurrency: int) -> None:
        """Work on another number of keys at once from now on."""
        self._concurrency = concurrency
        self._dispatch()

    async def wait_idle(self) -> None:
        """Wait until nothing is due and nothing is being worked on; what is delayed does not count."""
        await self._idle.wait()

    def _schedule(self, key: K, due: float, priority: Priority) -> None:
        if key in self._active:
            known_due, known_priority = self._again.get(key, (due, priority))
            self._again[key] = min(due, known_due), min(priority, known_priority)
            return
        delayed = self._delayed.get(key)
        if delayed is not None:
            due, priority = min(due, delayed.due), min(priority, delayed.priority)
            delayed.timer.cancel()
            del self._delayed[key]
        loop = asyncio.get_running_loop()
        ready = self._ready.get(key)
        if ready is not None:
            if priority < ready.priority:
                self._push(key, priority, ready.since)
        elif due <= loop.time():
            self._push(key, priority, due)
        else:
            timer = loop.call_at(due, self._on_due, key)
            self._delayed[key] = _Delayed(priority, due, timer)

    def _on_due(self, key: K) -> None:
        delayed = self._delayed.pop(key)
        self._push(key, delayed.priority, delayed.due)
        self._dispatch()

    def _push(self, key: K, priority: Priority, since: float) -> None:
        self._sequence += 1
        if key in self._ready:
            self._urgency[self._ready[key].priority] -= 1
        self._urgency[priority] += 1
        self._ready[key] = _Ready(priority, self._sequence, since)
        heapq.heappush(self._heap, (priority, self._sequence, key))
        self._idle.clear()

    def _dispatch(self) -> None:
        """Start as much as may run now."""
        while (
            self._ready
            and self._handle is not None
            and not (self._stopping is not None and self._stopping.is_set())
            and len(self._active) < self._concurrency
        ):
            _, sequence, key = heapq.heappop(self._heap)
            ready = self._ready.get(key)
            if ready is None or ready.sequence != sequence:
                continue  # its priority was raised: another entry of the heap stands for it
            del self._ready[key]
            self._urgency[ready.priority] -= 1
            self._start(key, self._handle, ready)
        if not self._ready and not self._active:
            self._heap.clear()
            self._idle.set()

    def _start(self, key: K, handle: Handler[K], ready: _Ready) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(handle(key), context=self._context.copy())
        self._active[key] = task
        # A callback and not a try in the task: a task that is cancelled before its first step runs nothing.
        task.add_done_callback(partial(self._finish, key, ready, loop.time()))

    def _finish(self, key: K, ready: _Ready, started: float, task: asyncio.Task[RetryAfter | None]) -> None:
        now = asyncio.get_running_loop().time()
        del self._active[key]
        outcome, delay_seconds = self._judge(key, task)
        if delay_seconds is not None:
            # What was urgent was its first run: it comes back behind those that have not had theirs.
            again = ready.priority if outcome is Outcome.CANCELLED else max(ready.priority, Priority.NORMAL)
            self._schedule(key, now + delay_seconds, again)
        if key in self._again:
            self._schedule(key, *self._again.pop(key))
        self.outcomes[outcome] += 1
        if self._observe is not None:
            waited = max(0.0, started - ready.since)
            self._observe(Run(key=key, outcome=outcome, waited_seconds=waited, worked_seconds=now - started))
        self._dispatch()

    def _judge(self, key: K, task: asyncio.Task[RetryAfter | None]) -> tuple[Outcome, float | None]:
        """Report how a run ended, and after how many seconds the key is run again (None: not by itself)."""
        if task.cancelled():
            # Ours: kept for whoever runs the queue next. Not ours: something inside was cancelled, a failure.
            return (
                (Outcome.CANCELLED, 0.0)
                if self._handle is None
                else self._fail(key, asyncio.CancelledError())
            )
        error = task.exception()
        if error is not None:
            return self._fail(key, error)
        trouble = self._troubles.pop(key, None)
        if trouble is not None:
            fields = {"queue": self.name, "key": str(key), "failures": trouble.failures}
            logger.info("Reconciliation succeeded again", extra=fields)
        result = task.result()
        return (Outcome.DONE, None) if result is None else (Outcome.RETRY, result.seconds)

    def _fail(self, key: K, error: BaseException) -> tuple[Outcome, float]:
        trouble = self._troubles.setdefault(key, _Trouble())
        trouble.failures += 1
        delay_seconds = self._backoff.delay_seconds(trouble.failures, self._random)
        if isinstance(error, ApiThrottledError):
            delay_seconds = max(delay_seconds, error.retry_after_seconds)
        fields = {
            "queue": self.name,
            "key": str(key),
            "failures": trouble.failures,
            "retry_seconds": delay_seconds,
        }
        if not isinstance(error, FipopError):
            # One traceback tells it all, the same one at every retry would bury the rest.
            crash = repr(error)
            level = logging.DEBUG if crash == trouble.logged else logging.ERROR
            trouble.logged = crash
            logger.log(level, "Reconciliation crashed, retrying", extra=fields, exc_info=error)
            return Outcome.CRASHED, delay_seconds
        level = logging.DEBUG if str(error) == trouble.logged else logging.WARNING
        trouble.logged = str(error)
        logger.log(level, "Reconciliation failed, retrying", extra={**fields, "error": str(error)})
        return Outcome.FAILED, delay_seconds

    async def _cancel_active(self) -> None:
        while self._active:
            for task in self._active.values():
                task.cancel()
            await asyncio.wait(self._active.values())
