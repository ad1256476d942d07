"""Conditions as values: what is read, and when a transition happened."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fipop.api.codec import format_time, parse_time
from fipop.api.conditions import Condition, ConditionType, Verdict, merge_conditions
from fipop.texts import LONGEST_MESSAGE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
READY = Condition(type=ConditionType.READY, status=Verdict.TRUE, reason="Ready", last_transition_time=NOW)


def test_a_transition_is_a_change_of_the_status_alone() -> None:
    later = NOW + timedelta(minutes=5)
    (same,) = merge_conditions([READY], [replace(READY, reason="Better", last_transition_time=None)], later)
    assert (same.reason, same.last_transition_time) == ("Better", NOW)
    (other,) = merge_conditions(
        [READY], [replace(READY, status=Verdict.FALSE, last_transition_time=None)], later
    )
    assert other.last_transition_time == later


def test_what_is_not_told_any_more_is_dropped() -> None:
    conflict = replace(READY, type=ConditionType.CONFLICT)
    assert [each.type for each in merge_conditions([READY, conflict], [READY], NOW)] == [ConditionType.READY]


def test_a_message_is_cleaned_and_cut() -> None:
    (found,) = merge_conditions([], [replace(READY, message="a\n\x1b[2J" + "x" * 5000)], NOW)
    assert len(found.message) <= LONGEST_MESSAGE
    assert found.message.isprintable()


@given(st.text(max_size=30) | st.integers() | st.none())
def test_what_is_no_time_is_none_and_no_time_lacks_its_zone(text: object) -> None:
    found = parse_time(text)
    assert found is None or found.tzinfo is not None


def test_times_are_written_as_kubernetes_does() -> None:
    assert format_time(NOW.replace(microsecond=999_999)) == "2026-03-01T12:00:00Z"
    assert parse_time(format_time(NOW)) == NOW
    assert parse_time("2026-03-01T12:00:00") is None
