"""The rollout that goes on, or ended last, as people see it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from fipop.api.conditions import ConditionType
from fipop.operator.rollout.progress import RolloutState
from fipop.report.picture import Picture

_ABOUT_CHARTS = (ConditionType.KUBE_VIP_READY, ConditionType.CLOUD_PROVIDER_READY)


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


def find_blocked(picture: Picture) -> str:
    """Say which wanted chart cannot be had, of guests in which the releases run all the same; "" for none."""
    about = (each for one in picture.floating_ips.values() for each in one.status.conditions if each.is_true)
    told = (each for each in about if each.reason.startswith(("Chart", "ReleaseFailed")))
    return next((each.message for each in told if each.type in _ABOUT_CHARTS), "")
