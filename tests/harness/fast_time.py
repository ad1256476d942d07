"""A clock of the event loop that runs faster than that of the machine: waiting costs less, what is real stays real."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TICK_SECONDS = 0.05
"""How late a timer can be: the loop itself waits by the clock of the machine, and looks at its own so often."""


@asynccontextmanager
async def fast_time(factor: float) -> AsyncIterator[None]:
    """Have the clock of the running loop go `factor` times as fast as that of the machine; it never goes back."""
    loop = asyncio.get_running_loop()
    slow, began = loop.time, loop.time()
    loop.time = lambda: began + factor * (slow() - began)  # type: ignore[method-assign]
    ticking = asyncio.create_task(_tick())
    try:
        yield
    finally:
        ticking.cancel()
        ahead = loop.time() - slow()
        loop.time = lambda: slow() + ahead  # type: ignore[method-assign]


async def _tick() -> None:
    while True:  # noqa: ASYNC110 - the wait is all that it is for
        await asyncio.sleep(TICK_SECONDS)
