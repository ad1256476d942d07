"""Conditions of fipop's objects: types, reasons, and the rule when a transition happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fipop.api.codec import Time, YamlFields
from fipop.texts import clean


class ConditionType(StrEnum):
    """What a condition speaks of. `Ready` sums up the others."""

    READY = "Ready"
    CONFLICT = "Conflict"
    ALLOCATED = "Allocated"
    GUEST_CONFIGURED = "GuestConfigured"
    KUBE_VIP_READY = "KubeVipReady"
    CLOUD_PROVIDER_READY = "CloudProviderReady"
    DEMAND_MET = "DemandMet"
    ANNOUNCED = "Announced"
    """Whether kube-vip announces the addresses on the network. `Ready` does not sum this up."""


class Verdict(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


_BAD_IF_TRUE = frozenset({ConditionType.CONFLICT})
_BAD_IF_FALSE_ALONE = frozenset({ConditionType.ANNOUNCED})
"""Unknown is no fault: most addresses that no Service uses are not announced."""
_KNOWN: frozenset[str] = frozenset(ConditionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionContent:
    """A verdict with its reason and a sentence: what a condition will say, before it has a type."""

    verdict: Verdict
    reason: str
    message: str = ""

    def to_condition(self, kind: ConditionType) -> Condition:
        """Return the condition of a type that says this."""
        return Condition(type=kind, status=self.verdict, reason=self.reason, message=self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(YamlFields):
    """One condition; its type is a ConditionType, unless another program or a newer fipop wrote it."""

    type: str
    status: Verdict
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None
    """When the status changed last; None: not written yet."""
    observed_generation: int = 0

    @property
    def is_true(self) -> bool:
        """Whether the status is True."""
        return self.status is Verdict.TRUE

    @property
    def is_good(self) -> bool | None:
        """Whether the status is as it should be; None for a type that this version does not know."""
        if self.type not in _KNOWN:
            return None
        if self.type in _BAD_IF_FALSE_ALONE:
            return self.status is not Verdict.FALSE
        return self.status is (Verdict.FALSE if self.type in _BAD_IF_TRUE else Verdict.TRUE)


def find_condition(conditions: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type; None if there is none."""
    return next((each for each in conditions if each.type == kind), None)


def merge_conditions(
    current: Sequence[Condition], wanted: Sequence[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Return `wanted`, with the transition times of `current` for conditions of the same status.

    A condition that `wanted` does not have is dropped: a reconciliation always reports all of them.
    """
    before = {condition.type: condition for condition in current}
    merged = []
    for condition in wanted:
        old = before.get(condition.type)
        is_same = old is not None and old.status is condition.status
        since = (old.last_transition_time if is_same and old is not None else None) or now
        message = clean(condition.message)
        merged.append(replace(condition, message=message, last_transition_time=since))
    return tuple(merged)
