"""What a Service is told of its address: one condition of ours beside those of others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fipop.api.conditions import Verdict
from fipop.cloudprovider.conditions import ADDRESS_ASSIGNED, Word, read_word, with_word

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
THEIRS = {"type": "Theirs", "status": "True"}
WAITS = Word(Verdict.FALSE, "PoolFull", "cidr-shop is full")


def service(*conditions: Any) -> dict[str, Any]:
    return {"status": {"loadBalancer": {"ingress": []}, "conditions": list(conditions)}}


def test_what_is_told_is_read_again_and_stands_beside_those_of_others() -> None:
    told = with_word(service(THEIRS), WAITS, NOW)
    assert read_word(told) == WAITS
    assert told["status"]["conditions"][0] == THEIRS
    assert told["status"]["loadBalancer"] == {"ingress": []}


def test_its_time_changes_with_the_verdict_alone() -> None:
    told = with_word(service(), WAITS, NOW)
    later = NOW + timedelta(minutes=1)
    again = with_word(told, WAITS._replace(message="still full"), later)
    assert again["status"]["conditions"][0]["lastTransitionTime"] == "2026-03-01T12:00:00Z"
    well = with_word(told, Word(Verdict.TRUE, "Assigned", ""), later)
    assert well["status"]["conditions"][0]["lastTransitionTime"] == "2026-03-01T12:01:00Z"


def test_it_is_taken_away_and_others_stay() -> None:
    told = with_word(service(THEIRS), WAITS, NOW)
    assert with_word(told, None, NOW)["status"]["conditions"] == [THEIRS]
    assert read_word(with_word(told, None, NOW)) is None


@pytest.mark.parametrize(
    "found",
    [{}, {"status": "no"}, service("text", 7), service({"type": ADDRESS_ASSIGNED, "status": "Perhaps"})],
)
def test_what_nobody_of_us_wrote_says_nothing(found: dict[str, Any]) -> None:
    assert read_word(found) is None
