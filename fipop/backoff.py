"""How long to wait between attempts: the one formula of fipop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double with each failure in a row, up to a limit, in seconds."""

    first_seconds: float
    limit_seconds: float

    def step_seconds(self, failures: int) -> float:
        """Give the wait after `failures` failures in a row; the first wait for less than one."""
        # The exponent is bounded before it is used: a float overflows after a thousand failures.
        return min(self.limit_seconds, self.first_seconds * 2.0 ** min(max(failures - 1, 0), 64))

    def delay_seconds(self, failures: int, random: Random) -> float:
        """Give between half and all of that wait, so that a fleet spreads."""
        return self.step_seconds(failures) * random.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of attempts without end; each iteration starts anew."""

    backoff: Backoff
    random: Random

    def __iter__(self) -> Iterator[float]:
        failures = 0
        while True:
            failures += 1
            yield self.backoff.delay_seconds(failures, self.random)
