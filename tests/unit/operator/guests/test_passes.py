"""When a guest is passed over again, and when deeply."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from fipop.api.conditions import Verdict
from fipop.errors import ApiUnreachableError, ChartError, FipopError, ReleaseTakenError
from fipop.guest.helm.charts import Role
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, GuestTask, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.guests.schedules import PassSchedule
from fipop.settings.options import DEFAULTS, GuestInstall
from fipop.state.observations import observe
from tests.harness.small_operator import SmallOperator
from tests.harness.terms import Pending

NOW = datetime(2026, 8, 20, tzinfo=UTC)
RELEASE = ReleaseReport(
    role=Role.KUBE_VIP, name="vip", namespace="kube-system", readiness=Readiness(ready=False, message="")
)
UNREACHABLE = ApiUnreachableError(verb="list", kind="ConfigMap", reason="Timeout")
CHART = ChartError(source="https://charts.example", version="", reason="the source did not answer")
TAKEN = ReleaseTakenError(namespace="kube-system", name="vip", role="kube-vip")


def report(error: FipopError | None = None, **changes: Any) -> PassReport:
    return PassReport(
        **{
            "guest_id": "c-m-a",
            "reachable": True,
            "error": error,
            "config_map": ConfigMapReport(),
            "releases": (RELEASE,),
            "harvester_parked": None,
            "events": (),
            "requests": 0,
            "writes": 0,
            "retry_after_seconds": None,
            **changes,
        }
    )


def note(schedule: PassSchedule, found: PassReport, *, deep: bool = False) -> float | None:
    return schedule.note(found, deep=deep, now=NOW, monotonic=5000.0, created=NOW - timedelta(days=1))


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
    assert schedule.deep_at == 5000.0


def test_a_deep_check_that_did_not_come_to_run_is_still_due() -> None:
    schedule = PassSchedule(deep_at=0.0)
    note(schedule, report(UNREACHABLE, releases=()), deep=True)
    assert schedule.deep_at == 0.0


class SlowSessions:
    """Passes that end when a test says so; `awaits_helm` is what they tell."""

    def __init__(self) -> None:
        self.began: list[bool] = []
        self.go_on = asyncio.Event()
        self.awaits_helm = False

    def forget(self, guest_id: str) -> None:
        """Nothing is kept."""

    async def run_pass(self, task: GuestTask, *, may_run_helm: bool, **_: object) -> PassReport:
        self.began.append(may_run_helm)
        await self.go_on.wait()
        return report(guest_id=task.guest_id, awaits_helm=self.awaits_helm and not may_run_helm)


async def serving() -> tuple[SmallOperator, SlowSessions, Pending, Pending]:
    """An operator that serves "c-m-a", with the queues of passes and installs emptied."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest("c-m-a")
    operator.configuration.settings = replace(DEFAULTS, kubevip_guest_install=GuestInstall.ENABLED)
    await operator.start()
    operator.ask("c-m-a")
    await operator.settle()
    slow = SlowSessions()
    controller = operator.term.pass_controller
    controller._parts = replace(controller._parts, sessions=cast("Any", slow))
    passes, installs = (
        cast("Any", each) for each in (operator.term.queues.passes, operator.term.queues.installs)
    )
    passes.keys.clear()
    return operator, slow, passes, installs


async def test_a_guest_that_needs_helm_is_put_in_line_and_all_is_decided_anew_when_its_turn_comes() -> None:
    operator, slow, passes, installs = await serving()
    slow.awaits_helm = True
    slow.go_on.set()
    await operator.term.pass_controller.visit("c-m-a")
    assert (slow.began, list(installs.keys)) == ([False], ["c-m-a"])
    await operator.term.pass_controller.install("c-m-a")
    assert slow.began == [False, True]
    assert list(passes.keys) == ["c-m-a"], "the next pass is due in a while"


async def test_passes_over_one_guest_come_one_after_the_other() -> None:
    operator, slow, passes, installs = await serving()
    controller = operator.term.pass_controller
    installing = asyncio.create_task(controller.install("c-m-a"))
    async with asyncio.timeout(5):
        while not slow.began:  # noqa: ASYNC110 - a list has no event for that
            await asyncio.sleep(0)
    assert await controller.visit("c-m-a") is None
    assert await controller.visit("c-m-a") is None
    await controller.install("c-m-a")
    assert (slow.began, passes.keys, installs.keys) == ([True], {}, {})
    slow.go_on.set()
    await installing
    assert (list(passes.keys), list(installs.keys)) == (["c-m-a"], ["c-m-a"])


async def test_a_guest_that_is_not_known_gets_no_pass() -> None:
    operator, slow, _, installs = await serving()
    assert await operator.term.pass_controller.visit("c-m-unknown") is None
    await operator.term.pass_controller.install("c-m-unknown")
    assert (slow.began, installs.keys) == ([], {})


def test_who_claims_what_a_guest_carries_by_right_is_told_in_its_condition() -> None:
    quiet = report(config_map=ConfigMapReport(outcome=ConfigMapOutcome.UNCHANGED))
    served = {("c-m-a", "web"): ("10.0.0.1", "fd00::1"), ("c-m-a", "other"): ("10.0.0.2",)}
    found = observe(quiet, served, installs=True, contested={"10.0.0.1": ("c-m-b", "c-m-c")})
    told = found.configured["c-m-a", "web"]
    assert (told.verdict, told.reason) == (Verdict.TRUE, "Configured"), "it blocks nobody"
    assert told.message == "guest c-m-b, c-m-c says that it carries 10.0.0.1, too"
    assert found.configured["c-m-a", "other"].message == ""


def test_a_deep_look_that_waits_for_helm_is_wanted_again_at_the_next_pass() -> None:
    schedule = PassSchedule(deep_at=0.0)
    note(schedule, report(checked=False), deep=True)
    assert schedule.deep_at == 0.0
    note(schedule, report(checked=True), deep=True)
    assert schedule.deep_at == 5000.0
