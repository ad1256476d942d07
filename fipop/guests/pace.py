"""The pace of requests through a Rancher, which serves some 140 a second and has other clients.

A token for each request, in two classes: what a guest cluster waits for comes first, and the rest always gets a third.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fipop.interfaces import loop_time

BURST = 10
"""How many requests can follow each other at once after a pause."""
_SHARE = 3
"""One token of so many is for requests that are not urgent, if any wait."""


@dataclass(slots=True, kw_only=True)
class Pace:
    """Hands out tokens at `rate()` a second, in the order in which they were asked for within a class."""

    rate: Callable[[], float]
    _tokens: float = BURST
    _filled_at: float = field(default_factory=loop_time)
    _urgent: deque[asyncio.Future[None]] = field(default_factory=deque)
    _routine: deque[asyncio.Future[None]] = field(default_factory=deque)
    _given: int = 0
    _timer: asyncio.TimerHandle | None = None

    async def take(self, *, is_urgent: bool) -> None:
        """Wait for a token."""
        self._fill()
        if self._tokens >= 1 and self._timer is None:
            self._tokens -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._urgent if is_urgent else self._routine).append(turn)
        self._schedule()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._tokens += 1
            raise

    def _fill(self) -> None:
        now = loop_time()
        self._tokens = min(BURST, self._tokens + (now - self._filled_at) * self.rate())
        self._filled_at = now

    def _schedule(self) -> None:
        if self._timer is None:
            seconds = max(1 - self._tokens, 0.0) / self.rate()
            self._timer = asyncio.get_running_loop().call_later(seconds, self._give)

    def _give(self) -> None:
        self._timer = None
        self._fill()
        # A timer can be early by less than what a clock shows.
        while self._tokens > 0.999 and (turn := self._next()) is not None:
            self._tokens -= 1
            turn.set_result(None)
        if self._urgent or self._routine:
            self._schedule()

    def _next(self) -> asyncio.Future[None] | None:
        for waiting in (self._urgent, self._routine):
            while waiting and waiting[0].done():  # its task was cancelled
                waiting.popleft()
        self._given += 1
        first, second = self._urgent, self._routine
        if self._given % _SHARE == 0:
            first, second = second, first
        chosen = first or second
        return chosen.popleft() if chosen else None
