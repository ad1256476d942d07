"""A keyed work queue: what to look at again, when, and never the same thing twice at once."""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from random import Random
from typing import Generic, TypeVar

from fipop.backoff import Backoff
from fipop.errors import FipopError, UnavailableError

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Priority(IntEnum):
    """What goes first when more is due than may run."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """A handler's answer when nothing failed, but there is something to look at later: not urgently, then."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[K]):
    """One finished run over a key, for metrics."""

    key: K
    success: bool
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

    Keys may be added at any time, also before it runs: none is lost, each is kept once. It runs once, and what is not
    done when that ends is forgotten. Everything belongs to one event loop, whose clock rules the delays.
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

    @property
    def depth(self) -> int:
        """How many keys are due and wait for their turn."""
        return len(self._ready)

    def waiting(self, priority: Priority) -> int:
        """How many keys that are due are at least so urgent."""
        return sum(self._urgency[each] for each in Priority if each <= priority)

    @property
    def active(self) -> int:
        """How many keys are being worked on."""
        return len(self._active)

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
        """Work until cancelled.

        `handle` returns None (done) or RetryAfter. A FipopError or any other exception backs the key off.
        """
        self._handle, self._concurrency = handle, concurrency
        # Handlers start in the context of this task: an add comes from anywhere.
        self._context = contextvars.copy_context()
        try:
            self._dispatch()
            await asyncio.Event().wait()
        finally:
            self._handle = None
            await self._cancel_active()

    def resize(self, concurrency: int) -> None:
        """Work on another number of keys at once from now on."""
        self._concurrency = concurrency
        self._dispatch()

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

    def _dispatch(self) -> None:
        """Start as much as may run now."""
        while self._ready and self._handle is not None and len(self._active) < self._concurrency:
            _, sequence, key = heapq.heappop(self._heap)
            ready = self._ready.get(key)
            if ready is None or ready.sequence != sequence:
                continue  # its priority was raised: another entry of the heap stands for it
            del self._ready[key]
            self._urgency[ready.priority] -= 1
            self._start(key, self._handle, ready)
        if not self._ready:
            self._heap.clear()

    def _start(self, key: K, handle: Handler[K], ready: _Ready) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(handle(key), context=self._context.copy())
        self._active[key] = task
        # A callback and not a try in the task: a task that is cancelled before its first step runs nothing.
        task.add_done_callback(partial(self._finish, key, ready, loop.time()))

    def _finish(self, key: K, ready: _Ready, started: float, task: asyncio.Task[RetryAfter | None]) -> None:
        del self._active[key]
        if task.cancelled() and self._handle is None:
            return  # the queue ends
        now = asyncio.get_running_loop().time()
        # Not cancelled by us: something inside was, which is a failure.
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        delay_seconds = self._fail(key, error) if error is not None else self._succeed(key, task.result())
        if delay_seconds is not None:
            # What was urgent was its first run: it comes back behind those that have not had theirs.
            self._schedule(key, now + delay_seconds, max(ready.priority, Priority.NORMAL))
        if key in self._again:
            self._schedule(key, *self._again.pop(key))
        if self._observe is not None:
            waited = max(0.0, started - ready.since)
            run = Run(key=key, success=error is None, waited_seconds=waited, worked_seconds=now - started)
            self._observe(run)
        self._dispatch()

    def _succeed(self, key: K, result: RetryAfter | None) -> float | None:
        """Return after how many seconds the key is run again; None: not automatically."""
        trouble = self._troubles.pop(key, None)
        if trouble is not None:
            fields = {"queue": self.name, "key": str(key), "failures": trouble.failures}
            logger.info("Reconciliation succeeded again", extra=fields)
        return None if result is None else result.seconds

    def _fail(self, key: K, error: BaseException) -> float:
        """Log a failure; return after how many seconds the key is run again."""
        trouble = self._troubles.setdefault(key, _Trouble())
        trouble.failures += 1
        delay_seconds = self._backoff.delay_seconds(trouble.failures, self._random)
        if isinstance(error, UnavailableError):
            delay_seconds = max(delay_seconds, error.retry_after)
        fields = {
            "queue": self.name,
            "key": str(key),
            "failures": trouble.failures,
            "retry_seconds": delay_seconds,
        }
        is_known = isinstance(error, FipopError)
        text = str(error) if is_known else repr(error)
        # One line, or one traceback, tells it all: the same one at every retry would bury the rest.
        level = logging.WARNING if is_known else logging.ERROR
        if text == trouble.logged:
            level = logging.DEBUG
        trouble.logged = text
        logger.log(
            level,
            "Reconciliation failed, retrying" if is_known else "Reconciliation crashed, retrying",
            extra={**fields, "error": text},
            exc_info=None if is_known else error,
        )
        return delay_seconds

    async def _cancel_active(self) -> None:
        while self._active:
            for task in self._active.values():
                task.cancel()
            await asyncio.wait(self._active.values())
