"""What the probes are told: a pure decision over facts, which `http` serves.

Live means that a restart would not help: the watches work, or the API server is away or cannot read objects, and there
is nothing to watch. Ready means that this replica knows the whole ledger and reads objects of the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fipop.deadlines import SILENCE_LIMIT_SECONDS

ANSWER_LIMIT_SECONDS = 30.0
"""The API server is away when no read of an object has succeeded for so long, be it that it answers other requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts:
    """All that health is decided by; durations in seconds up to the moment of the question.

    `silences` has each stream's time without a sign of life. `reading_for` is how long reads of an object
    have been succeeding without a gap. `not_ready` names what else keeps this replica from being ready, and why.
    """

    silences: Mapping[str, float]
    since_read: float | None
    reading_for: float
    ledger_loaded: bool
    not_ready: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One named question and its answer."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answers to all questions of one probe."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return all(check.ok for check in self.checks)


def judge_liveness(facts: HealthFacts) -> Verdict:
    """Decide whether a restart could help."""
    streams = sorted(facts.silences.items())
    return Verdict(checks=tuple(_judge_stream(stream, silence, facts) for stream, silence in streams))


def judge_readiness(facts: HealthFacts) -> Verdict:
    """Decide whether this replica can do its work."""
    since = facts.since_read
    answered = since is not None and since <= ANSWER_LIMIT_SECONDS
    return Verdict(
        checks=(
            Check(
                name="api-server",
                ok=answered,
                detail="no object was read yet" if since is None else f"an object was read {since:.0f} s ago",
            ),
            Check(
                name="ledger",
                ok=facts.ledger_loaded,
                detail="loaded" if facts.ledger_loaded else "not loaded yet",
            ),
            *(Check(name=name, ok=False, detail=why) for name, why in sorted(facts.not_ready.items())),
        )
    )


def _judge_stream(stream: str, silence: float, facts: HealthFacts) -> Check:
    heard = f"sign of life {silence:.0f} s ago"
    # A stream has as long after the API server's return as it has at any other time.
    if silence <= SILENCE_LIMIT_SECONDS:
        return Check(name=f"watch-{stream}", ok=True, detail=heard)
    if facts.reading_for <= SILENCE_LIMIT_SECONDS:
        return Check(
            name=f"watch-{stream}",
            ok=True,
            detail=f"{heard}; the API server is or was away, or cannot read objects",
        )
    return Check(name=f"watch-{stream}", ok=False, detail=f"{heard}, though the API server reads objects")


class ReadRecord:
    """Since when the API server has been reading objects, from the times when it did."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: float | None = None
        self._since = 0.0

    def record(self) -> None:
        """Note that an object was read; to be called more often than every 30 s while that succeeds."""
        now = self._clock()
        if self._last is None or now - self._last > ANSWER_LIMIT_SECONDS:
            self._since = now
        self._last = now

    @property
    def since_read(self) -> float | None:
        """Seconds since the last read; None before the first."""
        return None if self._last is None else self._clock() - self._last

    @property
    def reading_for(self) -> float:
        """Seconds for which reads have been succeeding without a gap; 0 while the API server is away."""
        since_read = self.since_read
        if since_read is None or since_read > ANSWER_LIMIT_SECONDS:
            return 0.0
        return self._clock() - self._since
