"""When the next pass over a guest is due, and when a deep one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fipop.api.objects import ReleaseStatus
from fipop.errors import FipopError, UnavailableError
from fipop.guest.errors import ChartError, ReleaseTakenError
from fipop.guest.reports import ConfigMapReport, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.guests.passes import schedule_next
from fipop.state.guests import PassSchedule

NOW = datetime(2026, 8, 20, tzinfo=UTC)


RELEASE = ReleaseReport(
    release=ReleaseStatus(role="kube-vip", name="vip", namespace="kube-system"),
    readiness=Readiness(ready=False, message=""),
)


UNREACHABLE = UnavailableError("list ConfigMap", reason="Timeout")


CHART = ChartError(source="https://charts.example", version="", reason="the source did not answer")


TAKEN = ReleaseTakenError(namespace="kube-system", name="vip", role="kube-vip")


def report(error: FipopError | None = None, **changes: Any) -> PassReport:
    return PassReport(
        **{
            "reachable": True,
            "error": error,
            "config_map": ConfigMapReport(),
            "releases": (RELEASE,),
            "events": (),
            "retry_after_seconds": None,
            **changes,
        }
    )


def note(schedule: PassSchedule, found: PassReport, *, deep: bool = False) -> float | None:
    return schedule_next(schedule, found, deep=deep, now=NOW, created=NOW - timedelta(days=1))


@pytest.mark.parametrize("error", [CHART, TAKEN])
def test_what_lasts_does_not_bring_a_guest_back_before_the_interval(error: FipopError) -> None:
    schedule = PassSchedule(deep_at=0.0)
    assert note(schedule, report(error)) is None
    assert schedule.failures == 1
    assert schedule.finished_at == NOW.timestamp(), "the pass was whole, as far as the guest lets it be"


def test_a_guest_that_does_not_answer_is_tried_again_soon_and_then_less_often() -> None:
    schedule = PassSchedule(deep_at=0.0)
    delays = [note(schedule, report(UNREACHABLE, reachable=False, releases=())) for _ in range(5)]
    assert all(delay is not None and delay <= 30 for delay in delays)
    assert delays == sorted(delays, key=lambda delay: delay or 0)
    assert schedule.finished_at is None


def test_a_pass_that_says_when_to_come_again_is_listened_to() -> None:
    assert note(PassSchedule(deep_at=0.0), report(CHART, retry_after_seconds=60.0)) == 60.0
    assert note(PassSchedule(deep_at=0.0), report(UNREACHABLE, retry_after_seconds=2.0)) == 2.0
    assert note(PassSchedule(deep_at=0.0), report()) is None


@pytest.mark.parametrize("error", [None, CHART, UNREACHABLE])
def test_a_deep_check_that_ran_is_not_repeated_because_something_else_failed(
    error: FipopError | None,
) -> None:
    schedule = PassSchedule(deep_at=0.0)
    note(schedule, report(error), deep=True)
    assert schedule.deep_at == NOW.timestamp()


def test_a_deep_check_that_did_not_come_to_run_is_still_due() -> None:
    schedule = PassSchedule(deep_at=0.0)
    note(schedule, report(UNREACHABLE, releases=()), deep=True)
    assert schedule.deep_at == 0.0


def test_a_deep_look_that_waits_for_helm_is_wanted_again_at_the_next_pass() -> None:
    schedule = PassSchedule(deep_at=0.0)
    note(schedule, report(checked=False), deep=True)
    assert schedule.deep_at == 0.0
    note(schedule, report(checked=True), deep=True)
    assert schedule.deep_at == NOW.timestamp()
