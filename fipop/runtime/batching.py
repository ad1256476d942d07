"""Work that costs as much for many as for one: what comes while it is done is done together the next time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Hands items to `serve` in batches, one batch at a time; it gives an answer for each item, in their order.

    What it raises, every item of the batch raises.
    """

    def __init__(self, serve: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._serve = serve
        self._pending: list[tuple[T, asyncio.Future[R]]] = []
        self._working: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """Return the answer for an item, with the next batch."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append((item, answer))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await answer

    async def close(self) -> None:
        """End what is under way; who waits for an answer gets none."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                await self._answer(batch)
        finally:
            self._working = None
            for _, answer in self._pending:
                answer.cancel()

    async def _answer(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            answers = await self._serve([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, answer in batch:
                answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - it belongs to who asked
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), value in zip(batch, answers, strict=True):
            if not answer.done():
                answer.set_result(value)
