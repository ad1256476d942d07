"""Conditions of fipop's objects, as values: types, reasons, and the rule when a transition happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from fipop.texts import clean

MAX_MESSAGE_LENGTH = 1024


class ConditionType(StrEnum):
    """What a condition speaks of. `Ready` sums up the others."""

    READY = "Ready"
    CONFLICT = "Conflict"
    ALLOCATED = "Allocated"
    GUEST_CONFIGURED = "GuestConfigured"
    KUBE_VIP_READY = "KubeVipReady"
    CLOUD_PROVIDER_READY = "CloudProviderReady"


class Verdict(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; `since` is the time of the last change of its verdict (None: not written yet)."""

    type: ConditionType
    verdict: Verdict
    reason: str
    message: str = ""
    since: datetime | None = None
    observed_generation: int = 0

    @property
    def is_true(self) -> bool:
        """Whether the verdict is True."""
        return self.verdict is Verdict.TRUE


def parse_conditions(items: object) -> tuple[Condition, ...]:
    """Read `status.conditions`; unknown and malformed entries are left out."""
    if not isinstance(items, list):
        return ()
    found = (_parse_condition(item) for item in items if isinstance(item, dict))
    return tuple(condition for condition in found if condition is not None)


def _parse_condition(item: Mapping[str, Any]) -> Condition | None:
    try:
        return Condition(
            type=ConditionType(item.get("type", "")),
            verdict=Verdict(item.get("status", "")),
            reason=str(item.get("reason", "")),
            message=str(item.get("message", "")),
            since=parse_time(item.get("lastTransitionTime")),
            observed_generation=int(item.get("observedGeneration") or 0),
        )
    except ValueError:
        return None


def merge_conditions(
    current: Sequence[Condition], wanted: Sequence[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Return `wanted`, with the transition times of `current` for conditions of the same verdict.

    A condition that `wanted` does not have is dropped: a reconciliation always reports all of them.
    """
    before = {condition.type: condition for condition in current}
    merged = []
    for condition in wanted:
        old = before.get(condition.type)
        since = old.since if old is not None and old.verdict is condition.verdict and old.since else now
        message = clean(condition.message, MAX_MESSAGE_LENGTH)
        merged.append(replace(condition, message=message, since=since))
    return tuple(merged)


def render_condition(condition: Condition) -> dict[str, Any]:
    """Return the JSON of a condition as Kubernetes knows it."""
    return {
        "type": condition.type.value,
        "status": condition.verdict.value,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": format_time(condition.since) if condition.since else None,
        "observedGeneration": condition.observed_generation,
    }


def parse_time(text: object) -> datetime | None:
    """Read an RFC 3339 time with a zone; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def format_time(moment: datetime) -> str:
    """Write a time as Kubernetes does: UTC, whole seconds, `Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
