"""The API server's clock, told by the Date headers of its answers."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0
_LATEST_SECONDS = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


class ServerClock:
    """What the API server's clock shows, as far as its answers tell; never ahead of it.

    A Date header has whole seconds, so one answer places the server's clock within a second and a round trip.
    Every further answer narrows that interval; one that contradicts it (the server's clock was set, another
    server answers, clocks drift) starts it anew. The lower end is what `now` shows: a quarantine that is
    measured by it never ends early.
    """

    def __init__(self) -> None:
        self._low = float("-inf")
        self._high = float("inf")

    def observe(self, date: str | None, *, sent_at: float, received_at: float) -> None:
        """Take in the Date header of an answer; `sent_at` and `received_at` are monotonic seconds."""
        if date is None:
            return
        seconds = _read_seconds(date)
        if seconds is None:
            return
        low = seconds - received_at
        high = seconds + _RESOLUTION_SECONDS - sent_at
        if low > self._high or high < self._low:
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)

    def now(self, monotonic_seconds: float) -> datetime | None:
        """Return the server's time (aware, UTC) at a moment of our monotonic clock; None before any answer."""
        if self._low == float("-inf"):
            return None
        return datetime.fromtimestamp(self._low + monotonic_seconds, tz=UTC)


@functools.lru_cache(maxsize=64)
def _read_seconds(date: str) -> float | None:
    """Give the Unix time of a Date header, None for what is none: all answers of a second have the same."""
    try:
        seconds = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    # A time to which nothing can be added: as if it had said none.
    return seconds if 0 <= seconds < _LATEST_SECONDS else None
