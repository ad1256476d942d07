"""A keyed work queue: what to look at again, when, and never the same thing twice at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Generic, NamedTuple, TypeVar

from fipop.backoff import Backoff
from fipop.errors import FipopError, UnavailableError

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Priority(IntEnum):
    """What goes first when more is due than may run: guest clusters share the requests of one Rancher."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """A handler's answer when nothing failed, but there is something to look at later: not urgently, then."""

    seconds: float

    def spread(self, random: Random) -> RetryAfter:
        """Return it a little earlier: keys that started together do not stay together."""
        return RetryAfter(self.seconds * random.uniform(0.9, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[K]):
    """One finished run over a key, for metrics."""

    key: K
    success: bool
    waited_seconds: float
    worked_seconds: float


class _Timer(NamedTuple):
    priority: Priority
    handle: asyncio.TimerHandle


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
        observe: Callable[[Run[K]], None] = lambda _run: None,
    ) -> None:
        self.name = name
        self._random = random
        self._backoff = backoff or Backoff(first_seconds=0.5, limit_seconds=300.0)
        self._observe = observe
        self._due: dict[Priority, dict[K, float]] = {each: {} for each in Priority}
        """Since when keys are due, the first one first; one that is being worked on is due again."""
        self._timers: dict[K, _Timer] = {}
        self._active: set[K] = set()
        self._troubles: dict[K, _Trouble] = {}
        self._wake = asyncio.Event()
        self._concurrency = 0

    @property
    def depth(self) -> int:
        """How many keys are due and wait for their turn."""
        return sum(map(len, self._due.values()))

    def add(self, key: K, *, delay_seconds: float = 0.0, priority: Priority = Priority.NORMAL) -> None:
        """Have `key` looked at in `delay_seconds`; of several adds the earliest and the most urgent wins.

        A key that is being worked on is looked at again afterwards.
        """
        loop = asyncio.get_running_loop()
        level = next((each for each in Priority if key in self._due[each]), None)
        if level is not None:
            if priority < level:
                self._due[priority][key] = self._due[level].pop(key)
            return
        due = loop.time() + max(0.0, delay_seconds)
        if timer := self._timers.pop(key, None):
            timer.handle.cancel()
            due, priority = min(due, timer.handle.when()), min(priority, timer.priority)
        if due <= loop.time():
            self._push(key, priority, due)
        else:
            self._timers[key] = _Timer(priority, loop.call_at(due, self._end_delay, key))

    def drop_rerun(self, key: K) -> None:
        """Have the run under way answer for what was added until now; its handler looks at all that is known, now."""
        for level in self._due.values():
            level.pop(key, None)

    async def run(self, handle: Handler[K], *, concurrency: int) -> None:
        """Work until cancelled.

        `handle` returns None (done) or RetryAfter. A FipopError or any other exception backs the key off.
        """
        self._concurrency = concurrency
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                while (found := self._find_next()) is not None:
                    key, priority = found
                    self._active.add(key)
                    group.create_task(self._work(handle, key, priority, self._due[priority].pop(key)))
                await self._wake.wait()

    def resize(self, concurrency: int) -> None:
        """Work on another number of keys at once from now on."""
        self._concurrency = concurrency
        self._wake.set()

    def _find_next(self) -> tuple[K, Priority] | None:
        if len(self._active) >= self._concurrency:
            return None
        keys = ((key, level) for level, due in self._due.items() for key in due if key not in self._active)
        return next(keys, None)

    def _push(self, key: K, priority: Priority, since: float) -> None:
        self._due[priority][key] = since
        self._wake.set()

    def _end_delay(self, key: K) -> None:
        timer = self._timers.pop(key)
        self._push(key, timer.priority, timer.handle.when())

    async def _work(self, handle: Handler[K], key: K, priority: Priority, since: float) -> None:
        failure: BaseException | None = None
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answer = await handle(key)
            delay = self._succeed(key, answer)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the queue ends
            delay = self._fail(key, failure := error)  # something inside was cancelled
        except Exception as error:  # noqa: BLE001 - the outermost loop
            delay = self._fail(key, failure := error)
        finally:
            self._active.discard(key)
            self._wake.set()
        if delay is not None:
            # What was urgent was its first run: it comes back behind those that have not had theirs.
            self.add(key, delay_seconds=delay, priority=max(priority, Priority.NORMAL))
        waited, worked = max(0.0, began - since), loop.time() - began
        self._observe(Run(key=key, success=failure is None, waited_seconds=waited, worked_seconds=worked))

    def _succeed(self, key: K, answer: RetryAfter | None) -> float | None:
        """Return after how many seconds the key is run again; None: not automatically."""
        trouble = self._troubles.pop(key, None)
        if trouble is not None:
            fields = {"queue": self.name, "key": str(key), "failures": trouble.failures}
            logger.info("Reconciliation succeeded again", extra=fields)
        return None if answer is None else answer.seconds

    def _fail(self, key: K, error: BaseException) -> float:
        """Log a failure; return after how many seconds the key is run again."""
        trouble = self._troubles.setdefault(key, _Trouble())
        trouble.failures += 1
        delay_seconds = self._backoff.delay_seconds(trouble.failures, self._random)
        if isinstance(error, UnavailableError):
            delay_seconds = max(delay_seconds, error.retry_after)
        is_known = isinstance(error, FipopError)
        text = str(error) if is_known else repr(error)
        fields = {"queue": self.name, "key": str(key), "failures": trouble.failures, "error": text}
        # One line, or one traceback, tells it all: the same one at every retry would bury the rest.
        is_new, trouble.logged = text != trouble.logged, text
        logger.log(
            (logging.WARNING if is_known else logging.ERROR) if is_new else logging.DEBUG,
            "Reconciliation failed, retrying" if is_known else "Reconciliation crashed, retrying",
            extra={**fields, "retry_seconds": delay_seconds},
            exc_info=None if is_known else error,
        )
        return delay_seconds
