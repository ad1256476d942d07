"""Who leads when, in virtual time: candidates share one lease, calls fail and hang, machines sleep."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from fipop.boundary import boottime
from fipop.errors import UnavailableError
from fipop.runtime.leader_election import LeaderElector, LeaderWorkStuckError, LeaseTimes

Virtually = Callable[[Coroutine[Any, Any, Any]], Any]


class SharedLease:
    """The one lease in the cluster; `outage` makes calls fail, `hang` makes them last for ever."""

    def __init__(self) -> None:
        self.holder = ""
        self.expires = 0.0
        self.outage = False
        self.hang = False
        self.answer_seconds = 0.01

    async def reach(self) -> None:
        if self.hang:
            await asyncio.Event().wait()
        await asyncio.sleep(self.answer_seconds)
        if self.outage:
            raise UnavailableError("get Lease")


class Candidate:
    """One candidate's hold on the shared lease, by a clock that may run ahead of the loop's (`slept`)."""

    place = "Lease kube-fip/fipop-operator"

    def __init__(self, shared: SharedLease, name: str) -> None:
        self.shared = shared
        self.name = name
        self.slept = 0.0
        self.valid_until: float | None = None

    @property
    def holder(self) -> str:
        return self.shared.holder

    @property
    def is_foreign(self) -> bool:
        return self.shared.holder not in ("", self.name)

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.slept

    async def try_acquire(self) -> bool:
        await self.shared.reach()
        if self.shared.holder not in {"", self.name} and self.clock() < self.shared.expires:
            self.valid_until = None
            return False
        await self.shared.reach()
        self._hold()
        return True

    async def renew(self) -> bool:
        await self.shared.reach()
        if self.shared.holder != self.name:
            self.valid_until = None
            return False
        self._hold()
        return True

    async def release(self) -> None:
        self.valid_until = None
        await self.shared.reach()
        if self.shared.holder == self.name:
            self.shared.holder = ""

    def _hold(self) -> None:
        self.shared.holder = self.name
        self.valid_until = self.shared.expires = self.clock() + 15


class Replica:
    """A process that takes part; `work` is what its leader does."""

    def __init__(self, shared: SharedLease, name: str, *, stop_seconds: float = 0.0) -> None:
        self.lease = Candidate(shared, name)
        self.leadership = LeaderElector(self.lease, random=Random(1), clock=self.lease.clock)
        self.stop_seconds = stop_seconds
        self.working = False
        self.starts: list[float] = []
        self.stops: list[float] = []

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        self.working = True
        self.starts.append(round(loop.time(), 1))
        try:
            await asyncio.Event().wait()
        finally:
            if self.stop_seconds:
                await asyncio.sleep(self.stop_seconds)
            self.working = False
            self.stops.append(round(loop.time(), 1))

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run(self.work))

    async def wait_working(self) -> None:
        while not self.working:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def die(self) -> None:
        """Vanish without a word, as after a SIGKILL."""
        self.lease.shared = SharedLease()


def now() -> float:
    return asyncio.get_running_loop().time()


async def start_two(shared: SharedLease) -> tuple[Replica, Replica]:
    """The first one leads, the second stands by."""
    first, second = Replica(shared, "first"), Replica(shared, "second")
    first.start()
    await first.wait_working()
    second.start()
    await asyncio.sleep(50)
    return first, second


def test_one_leads_and_the_other_stands_by(virtually: Virtually) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        await asyncio.sleep(3600)

        assert first.leadership.is_leader
        assert first.working
        assert first.starts == [0]
        assert not second.leadership.is_leader
        assert second.starts == []
        await first.stop()
        await second.stop()

    virtually(scenario())


def test_after_a_clean_exit_the_other_leads_within_two_seconds(virtually: Virtually) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        left_at = now()
        await first.stop()
        async with asyncio.timeout(2):
            await second.wait_working()

        assert first.stops[0] <= second.starts[0] <= left_at + 2
        await second.stop()
        assert second.lease.shared.holder == ""

    virtually(scenario())


def test_after_a_kill_the_other_leads_within_twenty_seconds(virtually: Virtually) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        first.die()
        async with asyncio.timeout(20):
            await second.wait_working()
        await first.stop()
        await second.stop()

    virtually(scenario())


@pytest.mark.parametrize("fault", ["outage", "hang"])
def test_a_leader_that_cannot_renew_has_stopped_its_work_before_anybody_else_can_lead(
    virtually: Virtually, fault: str
) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        shared = first.lease.shared
        cut_off = SharedLease()
        setattr(cut_off, fault, True)
        first.lease.shared = cut_off
        cut_at = now()
        await second.wait_working()

        assert not first.working
        assert first.stops[0] <= cut_at + 10
        assert second.starts[0] >= first.stops[0] + 4
        first.lease.shared = shared
        await asyncio.sleep(100)
        assert first.starts == [0]
        await first.stop()
        await second.stop()

    virtually(scenario())


def test_after_an_outage_of_the_api_server_somebody_works_again_within_seconds(virtually: Virtually) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        first.lease.shared.outage = True
        await asyncio.sleep(300)
        assert not first.working
        assert not second.working
        first.lease.shared.outage = False
        await asyncio.sleep(5)

        assert [first.working, second.working].count(True) == 1
        await first.stop()
        await second.stop()

    virtually(scenario())


def test_short_failures_of_renewal_do_not_stop_the_work_and_are_logged_once(
    virtually: Virtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        first = Replica(SharedLease(), "first")
        first.start()
        await first.wait_working()
        first.lease.shared.outage = True
        await asyncio.sleep(7)
        first.lease.shared.outage = False
        await asyncio.sleep(100)

        assert first.leadership.is_leader
        assert first.starts == [0]
        await first.stop()

    virtually(scenario())
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1, "an outage is told once"


def test_an_api_server_that_takes_four_seconds_for_an_answer_has_a_leader_that_stays(
    virtually: Virtually,
) -> None:
    """To acquire takes a read and a write, which had five seconds together."""

    async def story() -> None:
        shared = SharedLease()
        shared.answer_seconds = 4.0
        replica = Replica(shared, "a")
        replica.start()
        async with asyncio.timeout(60):
            await replica.wait_working()
        await asyncio.sleep(300)
        assert replica.working
        assert replica.stops == []
        await replica.stop()

    virtually(story())


def test_a_machine_that_slept_past_the_lease_is_no_leader_from_its_first_instruction_on(
    virtually: Virtually,
) -> None:
    async def scenario() -> None:
        first, second = await start_two(SharedLease())
        assert first.leadership.still_leading_for(5)
        first.lease.slept += 60

        assert not first.leadership.is_leader
        assert not first.leadership.still_leading_for(0)
        await asyncio.sleep(3)
        assert len(first.stops) == 1
        await first.stop()
        await second.stop()

    virtually(scenario())


def test_a_look_ahead_ends_with_the_lease_and_not_with_the_last_renewal(virtually: Virtually) -> None:
    async def scenario() -> None:
        first = Replica(SharedLease(), "first")
        assert not first.leadership.still_leading_for(0)
        first.start()
        await first.wait_working()

        assert first.leadership.still_leading_for(14)
        assert not first.leadership.still_leading_for(15.1)
        first.lease.shared.outage = True
        await asyncio.sleep(8)
        assert first.leadership.still_leading_for(4)
        assert not first.leadership.still_leading_for(9)
        await first.stop()
        assert not first.leadership.still_leading_for(0)

    virtually(scenario())


def test_a_lease_taken_by_another_stops_the_work_at_the_next_renewal(virtually: Virtually) -> None:
    async def scenario() -> None:
        first = Replica(SharedLease(), "first")
        first.start()
        await first.wait_working()
        first.lease.shared.holder, first.lease.shared.expires = "somebody", 1000.0
        await asyncio.sleep(3)

        assert not first.working
        assert first.lease.shared.holder == "somebody"
        await first.stop()
        assert first.lease.shared.holder == "somebody"

    virtually(scenario())


def test_the_lease_is_given_up_only_after_the_work_has_stopped(virtually: Virtually) -> None:
    async def scenario() -> None:
        shared = SharedLease()
        first, second = Replica(shared, "first", stop_seconds=8), Replica(shared, "second")
        first.start()
        await first.wait_working()
        second.start()
        await asyncio.sleep(10)
        await first.stop()
        await second.wait_working()

        assert second.starts[0] >= first.stops[0]
        await second.stop()

    virtually(scenario())


def test_work_that_does_not_stop_ends_the_process_before_another_leads(virtually: Virtually) -> None:
    async def scenario() -> None:
        shared = SharedLease()
        first = Replica(shared, "first", stop_seconds=1000)
        first.start()
        await first.wait_working()
        shared.outage = True
        with pytest.raises(LeaderWorkStuckError):
            await first.task

        assert now() < shared.expires
        assert shared.holder == "first"

    virtually(scenario())


def test_work_that_ends_by_itself_ends_the_run_and_gives_up_the_lease(virtually: Virtually) -> None:
    async def scenario() -> None:
        lease = Candidate(SharedLease(), "first")
        leadership = LeaderElector(lease, random=Random(1), clock=lease.clock)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await leadership.run(fail)
        assert lease.shared.holder == ""
        assert not leadership.is_leader

    virtually(scenario())


def test_without_election_the_work_runs_at_once_and_always_leads(virtually: Virtually) -> None:
    async def scenario() -> None:
        leadership = LeaderElector(None, random=Random(1))
        ran = []

        async def work() -> None:
            ran.append((leadership.is_leader, leadership.still_leading_for(1e9)))

        await leadership.run(work)
        assert ran == [(True, True)]
        assert not leadership.is_leader

    virtually(scenario())


def test_times_that_leave_no_room_to_stop_are_refused() -> None:
    with pytest.raises(ValueError, match="renew deadline < duration"):
        LeaseTimes(duration_seconds=10, renew_deadline_seconds=10)


def test_the_clock_runs_on_while_the_machine_sleeps() -> None:
    assert boottime() > 0
