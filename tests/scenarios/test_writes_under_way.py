"""What a pass may write: asked right before, and not free before its end, however short its quarantine was."""

import asyncio
from typing import Any

import pytest

from fipop.guest.reports import ConfigMapReport, PassReport
from tests.harness.small_operator import SmallOperator

A = "c-m-a"
X = "10.0.0.10"
NAME = f"default.{X}"


@pytest.fixture(autouse=True)
def guests_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new guest is given a moment before its first pass."""
    monkeypatch.setattr("fipop.operator.guests.passes.NEW_GUEST_SECONDS", 0.0)


class SlowPass:
    """A pass that has asked whether it may write, and writes when it is let."""

    def __init__(self, operator: SmallOperator) -> None:
        self.operator = operator
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, task: Any, **_: Any) -> PassReport:
        self.begun.set()
        await self.goes_on.wait()
        self.operator.carried.services[task.guest.id] = X
        return PassReport(
            reachable=True,
            error=None,
            config_map=ConfigMapReport(),
            releases=(),
            events=(),
            retry_after_seconds=None,
        )


async def test_what_a_pass_under_way_may_write_is_not_freed_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}", quarantineSeconds=1)
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {NAME: A}
    passes, slow = operator.manager.passes, SlowPass(operator)
    monkeypatch.setattr(operator.carried, "run_pass", slow, raising=False)
    visit = asyncio.create_task(passes.visit(A))
    await asyncio.wait_for(slow.begun.wait(), 5)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(60)
    assert operator.quarantined() == {NAME}, "the guest does not carry it yet"
    slow.goes_on.set()
    await visit
    await operator.pass_time(60)
    assert operator.quarantined() == {NAME}, "now it does"
    operator.carried.services.clear()
    await operator.pass_time(60)
    assert operator.quarantined() == set()


async def test_trouble_of_our_own_api_server_withholds_a_write_and_is_no_failure_of_the_guest() -> None:
    """It was taken for one: the guest was passed over for half a minute after each 500."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.ask(A)
    await operator.start()
    held = list(operator.cache.reservations.all())
    permits = operator.manager.passes.permits
    operator.client.failures["get"] = 1
    assert await permits.may_write(held) is True, "we wrote it ourselves just now: nobody is asked"
    await operator.pass_time(60)
    assert await permits.may_write(held) is False
    assert await permits.may_write(held) is True
