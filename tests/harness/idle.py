"""Waits until a work queue has nothing to do."""

import asyncio
from typing import Any

from fipop.runtime.workqueue import WorkQueue

POLL_SECONDS = 1 / 64
"""A binary fraction: virtual times stay exact."""


async def wait_idle(queue: WorkQueue[Any]) -> None:
    """Wait until nothing is due and nothing is being worked on; what is delayed does not count."""
    while queue.depth or queue.active:  # noqa: ASYNC110 - numbers have no event
        await asyncio.sleep(POLL_SECONDS)
