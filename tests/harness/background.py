"""Work that goes on without end beside a test, and waiting for what comes of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from localfleet.waiting import eventually


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Have work go on until the block ends; then it is cancelled, and has ended."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(is_reached: Callable[[], object], what: str) -> None:
    """Wait until something is so that has no event; DeadlineError tells `what`."""

    async def look() -> bool:
        return bool(is_reached())

    await eventually(look, seconds=60, what=what)
