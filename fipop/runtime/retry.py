"""Attempts at what our own API server does not let us do just now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fipop.backoff import Backoff
from fipop.errors import UnavailableError

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def retry_passing(
    step: Callable[[], Awaitable[T]], backoff: Backoff, *, attempts: int | None = None
) -> T:
    """Do a step until our API server lets us; the last of `attempts` raises what stood in its way.

    Other errors are not of the kind that passes, and are raised at once.
    """
    failures = 0
    while True:
        try:
            return await step()
        except UnavailableError as error:
            failures += 1
            if failures == attempts:
                raise
            logger.debug("Waiting for the API server", extra={"error": str(error)})
            await asyncio.sleep(backoff.step_seconds(failures))
