from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.kube.clock import ServerClock

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def date_at(moment: datetime) -> str:
    return format_datetime(moment.replace(microsecond=0), usegmt=True)


def test_the_time_is_unknown_before_the_first_answer():
    clock = ServerClock()
    assert clock.now(5.0) is None
    clock.observe(None, sent_at=1.0, received_at=2.0)
    clock.observe("no date", sent_at=1.0, received_at=2.0)
    clock.observe("Mon, 99 Jan 9999 99:99:99 GMT", sent_at=1.0, received_at=2.0)
    assert clock.now(5.0) is None


def test_it_runs_on_between_answers():
    clock = ServerClock()
    clock.observe(date_at(NOON), sent_at=100.0, received_at=100.0)
    assert clock.now(160.0) == NOON + timedelta(seconds=60)


def test_a_clock_that_was_set_is_followed_both_ways():
    clock = ServerClock()
    clock.observe(date_at(NOON), sent_at=100.0, received_at=100.0)
    clock.observe(date_at(NOON + timedelta(hours=1)), sent_at=101.0, received_at=101.0)
    assert clock.now(101.0) == NOON + timedelta(hours=1)
    clock.observe(date_at(NOON - timedelta(hours=1)), sent_at=102.0, received_at=102.0)
    assert clock.now(102.0) == NOON - timedelta(hours=1)


@given(
    start=st.floats(0, 0.999),
    answers=st.lists(
        st.tuples(st.floats(0, 30), st.floats(0, 0.5), st.floats(0, 0.5)), min_size=1, max_size=30
    ),
)
def test_it_is_never_ahead_of_the_server_and_at_most_a_second_and_the_way_back_behind(start, answers):
    clock = ServerClock()
    monotonic = 1000.0
    for pause, way_there, way_back in answers:
        sent_at = monotonic + pause
        answered_at = sent_at + way_there
        monotonic = answered_at + way_back
        server_time = NOON + timedelta(seconds=start + answered_at - 1000.0)
        clock.observe(date_at(server_time), sent_at=sent_at, received_at=monotonic)
        truth = NOON + timedelta(seconds=start + monotonic - 1000.0)
        shown = clock.now(monotonic)
        assert shown is not None
        assert timedelta(milliseconds=-1) <= truth - shown <= timedelta(seconds=1.501)


def test_more_answers_make_it_more_exact():
    clock = ServerClock()
    for tenth in range(20):
        elapsed = tenth / 10
        server_time = NOON + timedelta(seconds=0.35 + elapsed)
        clock.observe(date_at(server_time), sent_at=elapsed, received_at=elapsed)
    shown = clock.now(2.0)
    assert shown is not None
    assert abs((NOON + timedelta(seconds=2.35) - shown).total_seconds()) < 0.1


@given(
    st.text(max_size=40)
    | st.from_regex(r"[A-Z][a-z]{2}, -?\d{1,9} [A-Z][a-z]{2} -?\d{1,9} \d*:\d*:\d* [A-Z+-]?\d*")
)
def test_a_header_of_any_shape_is_survived(date):
    clock = ServerClock()
    clock.observe(date, sent_at=1.0, received_at=2.0)
    clock.now(3.0)


@pytest.mark.parametrize(
    "date",
    [
        *("Fri, 31 Dec 9999 23:59:59 GMT", "", " ", ",", "Mon", "0 Jan 0 0:0:0 +99999999", "9" * 8000),
        "Thu, 01 Jan 1970 00:00:00 " + "9" * 500,
    ],
)
def test_a_date_that_no_server_means_is_none(date: str) -> None:
    clock = ServerClock()
    clock.observe(date, sent_at=1.0, received_at=2.0)
    assert clock.now(1e9) is None
