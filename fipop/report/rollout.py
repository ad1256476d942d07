"""The rollout that goes on, or ended last, as people see it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from fipop.operator.rollout.progress import RolloutState


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutReport:
    """The rollout that goes on, or ended last; `guests` counts those of the wave by their step."""

    target: str
    stable: str
    phase: str
    wave: int
    size: int
    started: datetime
    guests: dict[str, int]
    reason: str


def report_rollout(state: RolloutState | None) -> RolloutReport | None:
    """Report a rollout, if there is one."""
    if state is None:
        return None
    return RolloutReport(
        target=state.target,
        stable=state.stable,
        phase=state.phase.value,
        wave=state.wave,
        size=state.size,
        started=datetime.fromtimestamp(state.started_at, UTC),
        guests=dict(sorted(Counter(each.step.value for each in state.guests.values()).items())),
        reason=state.reason,
    )
