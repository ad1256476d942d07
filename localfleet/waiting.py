"""Waiting for the world to become as expected, with a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from localfleet.errors import ApiError, DeadlineError

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.25


async def eventually(look: Callable[[], Awaitable[T | None]], *, seconds: float = 30.0, what: str = "") -> T:
    """Look again and again until what is seen is true (not None, False or empty); that.

    A failed assertion and an error of the API count as "not yet", so that `look` may be written straight.
    Raises DeadlineError, which tells `what` was waited for and what was seen or raised last.
    """
    pause = _FIRST_PAUSE_SECONDS
    last: object = "nothing"
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    seen = await look()
                except (ApiError, AssertionError, aiohttp.ClientError, LookupError) as error:
                    last = error
                else:
                    if seen:
                        return seen
                    last = seen
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
    except TimeoutError:
        cause = last if isinstance(last, BaseException) else None
        raise DeadlineError(what=what or look.__name__, seconds=seconds, last=last) from cause
