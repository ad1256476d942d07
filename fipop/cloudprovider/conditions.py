"""What a Service is told of its address: one condition of ours beside those of others. Values in, values out."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from fipop.api.conditions import Verdict, format_time, parse_time
from fipop.jsons import JsonView, as_list, as_mapping, as_text
from fipop.texts import clean

ADDRESS_ASSIGNED = "kubefip.k8s.binbash.org/AddressAssigned"


class Word(NamedTuple):
    """What the condition says, its time apart."""

    verdict: Verdict
    reason: str
    message: str


def read_word(obj: JsonView) -> Word | None:
    """Read the condition of a Service; None where there is none that could be ours."""
    ours = _find_ours(obj)
    try:
        verdict = Verdict(as_text(ours.get("status")))
    except ValueError:
        return None
    return Word(verdict, as_text(ours.get("reason")), as_text(ours.get("message")))


def read_since(obj: JsonView) -> datetime | None:
    """Read since when the condition has its verdict."""
    return parse_time(_find_ours(obj).get("lastTransitionTime"))


def with_word(obj: JsonView, word: Word | None, now: datetime) -> dict[str, Any]:
    """Give the Service with this condition, without one for None; its time changes with the verdict."""
    status = dict(as_mapping(obj.get("status")))
    before = as_list(status.get("conditions"))
    others = [each for each in before if as_mapping(each).get("type") != ADDRESS_ASSIGNED]
    ours = _find_ours(obj)
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


def _find_ours(obj: JsonView) -> JsonView:
    conditions = map(as_mapping, as_list(as_mapping(obj.get("status")).get("conditions")))
    return next((each for each in conditions if each.get("type") == ADDRESS_ASSIGNED), {})
