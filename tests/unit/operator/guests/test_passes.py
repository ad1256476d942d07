"""How passes over a guest follow each other, and who is put in line for helm."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from fipop.api.conditions import Verdict
from fipop.api.models import ReleaseStatus
from fipop.errors import FipopError
from fipop.guest.reports import ConfigMapOutcome, ConfigMapReport, GuestTask, PassReport, ReleaseReport
from fipop.guest.workloads import Readiness
from fipop.operator.guests.passes import BUSY
from fipop.operator.queues import Key, Kind
from fipop.settings.options import DEFAULTS
from fipop.settings.values import GuestInstall
from fipop.state.guests import PassSchedule
from fipop.state.observations import observe
from tests.harness.small_operator import SmallOperator
from tests.harness.tasks import asking, build_task
from tests.harness.terms import Pending

NOW = datetime(2026, 8, 20, tzinfo=UTC)
RELEASE = ReleaseReport(
    release=ReleaseStatus(role="kube-vip", name="vip", namespace="kube-system"),
    readiness=Readiness(ready=False, message=""),
)


@pytest.fixture(autouse=True)
def guests_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new guest is given a moment before its first pass."""
    monkeypatch.setattr("fipop.operator.guests.passes.NEW_GUEST_SECONDS", 0.0)


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


class SlowSessions:
    """Passes that end when a test says so; `awaits_helm` is what they tell."""

    def __init__(self) -> None:
        self.began: list[bool] = []
        self.go_on = asyncio.Event()
        self.awaits_helm = False

    async def run_pass(self, task: GuestTask, **_: object) -> PassReport:
        self.began.append(task.may_run_helm)
        await self.go_on.wait()
        return report(awaits_helm=self.awaits_helm and not task.may_run_helm)


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
    controller = operator.manager.passes
    controller.sessions = cast("Any", slow)
    passes, installs = (
        cast("Any", each) for each in (operator.manager.queues.passes, operator.manager.queues.installs)
    )
    passes.keys.clear()
    return operator, slow, passes, installs


async def test_a_guest_that_needs_helm_is_put_in_line_and_all_is_decided_anew_when_its_turn_comes() -> None:
    operator, slow, passes, installs = await serving()
    slow.awaits_helm = True
    slow.go_on.set()
    await operator.manager.passes.visit("c-m-a")
    assert (slow.began, list(installs.keys)) == ([False], [Key(Kind.INSTALL, "", "c-m-a")])
    await operator.manager.passes.install("c-m-a")
    assert slow.began == [False, True]
    assert list(passes.keys) == [Key(Kind.VISIT, "", "c-m-a")], "the next pass is due in a while"


async def test_passes_over_one_guest_come_one_after_the_other() -> None:
    operator, slow, _, _ = await serving()
    controller = operator.manager.passes
    installing = asyncio.create_task(controller.install("c-m-a"))
    async with asyncio.timeout(30):
        while not slow.began:  # noqa: ASYNC110 - a list has no event for that
            await asyncio.sleep(0)
    assert await controller.visit("c-m-a") == BUSY
    assert await controller.install("c-m-a") == BUSY
    assert slow.began == [True]
    slow.go_on.set()
    await installing
    await controller.visit("c-m-a")
    assert slow.began == [True, False]


async def test_a_pass_over_a_guest_that_went_meanwhile_does_not_count_for_the_one_that_is_back() -> None:
    operator, slow, _, _ = await serving()
    controller, guests = operator.manager.passes, operator.manager.guests
    visiting = asyncio.create_task(controller.visit("c-m-a"))
    async with asyncio.timeout(30):
        while not slow.began:  # noqa: ASYNC110 - a list has no event for that
            await asyncio.sleep(0)
    former = guests.state("c-m-a")
    operator.remove_guest("c-m-a")
    operator.add_guest("c-m-a")
    await operator.settle()
    assert await controller.visit("c-m-a") == BUSY, "that pass may still write"
    slow.go_on.set()
    await visiting
    state = guests.state("c-m-a")
    assert former.observation is not None
    assert (state.observation, state.schedule, state.health) == (None, PassSchedule(), None)
    await controller.visit("c-m-a")
    assert state.observation is not None


async def test_a_guest_that_is_not_known_gets_no_pass() -> None:
    operator, slow, _, installs = await serving()
    assert await operator.manager.passes.visit("c-m-unknown") is None
    await operator.manager.passes.install("c-m-unknown")
    assert (slow.began, installs.keys) == ([], {})


def test_who_claims_what_a_guest_carries_by_right_is_told_in_its_condition() -> None:
    quiet = report(config_map=ConfigMapReport(outcome=ConfigMapOutcome.UNCHANGED))
    served = asking("web", addresses=("10.0.0.1", "fd00::1")), asking("other", addresses=("10.0.0.2",))
    task = build_task(*served, opted_in=True)
    found = observe(quiet, task, {"10.0.0.1": ("c-m-b", "c-m-c")})
    told = found.configured["c-m-a", "web"]
    assert (told.verdict, told.reason) == (Verdict.TRUE, "Configured"), "it blocks nobody"
    assert all(named in told.message for named in ("c-m-b", "c-m-c", "10.0.0.1"))
    assert found.configured["c-m-a", "other"].message == ""
