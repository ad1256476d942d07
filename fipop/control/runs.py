"""What a work queue and its handlers tell each other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Priority(IntEnum):
    """What goes first when more is due than may run."""

    URGENT = 0
    NORMAL = 1
    BACKGROUND = 2


class Outcome(StrEnum):
    """How one run over a key ended."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    CRASHED = "crashed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """A handler's answer when nothing failed, but there is something to look at later: not urgently, then."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[K]):
    """One finished run over a key, for metrics."""

    key: K
    outcome: Outcome
    waited_seconds: float
    worked_seconds: float
