"""What a Service is told of its address: one condition of ours beside those of others. Values in, values out."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from fipop.api.conditions import Verdict, format_time, parse_time
from fipop.jsons import JsonView, as_list, as_mapping, as_text
from fipop.texts import clean

ADDRESS_ASSIGNED = "kubefip.k8s.binbash.org/AddressAssigned"
ANOTHER_CONTROLLER = "AnotherController"
"""The reason where a Service is left alone: see `quarrels`."""


class Word(NamedTuple):
    """What the condition says, its time apart."""

    verdict: Verdict
    reason: str
    message: str


def read_word(obj: JsonView) -> Word | None:
    """Read the condition of a Service; None where there is none that could be ours."""
    for item in map(as_mapping, as_list(as_mapping(obj.get("status")).get("conditions"))):
        if item.get("type") == ADDRESS_ASSIGNED:
            try:
                verdict = Verdict(as_text(item.get("status")))
            except ValueError:
                return None
            return Word(verdict, as_text(item.get("reason")), as_text(item.get("message")))
    return None


def read_since(obj: JsonView) -> datetime | None:
    """Read since when our condition has its status."""
    found = map(as_mapping, as_list(as_mapping(obj.get("status")).get("conditions")))
    ours = next((each for each in found if each.get("type") == ADDRESS_ASSIGNED), {})
    return parse_time(ours.get("lastTransitionTime"))


def with_word(obj: JsonView, word: Word | None, now: datetime) -> dict[str, Any]:
    """Give the Service with this condition, without one for None; its time changes with the verdict."""
    status = dict(as_mapping(obj.get("status")))
    before = as_list(status.get("conditions"))
    others = [each for each in before if as_mapping(each).get("type") != ADDRESS_ASSIGNED]
    ours = next((as_mapping(each) for each in before if each not in others), {})
    if word is not None:
        is_same = ours.get("status") == word.verdict.value and ours.get("lastTransitionTime")
        others.append(
            {
                "type": ADDRESS_ASSIGNED,
                "status": word.verdict.value,
                "reason": word.reason,
                "message": clean(word.message),
                "lastTransitionTime": ours["lastTransitionTime"] if is_same else format_time(now),
            }
        )
    return {**obj, "status": {**status, "conditions": others}}
