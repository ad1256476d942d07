"""Turns at something of which only so many may go on at once; how many may change meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Slots:
    """`async with` takes a turn; with fewer slots than turns nobody is driven out, and nobody new is let in."""

    number: int
    _taken: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def resize(self, number: int) -> None:
        """Have another number of slots from now on."""
        self.number = number
        self._admit()

    async def __aenter__(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._taken < self.number:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
