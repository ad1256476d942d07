"""The work queue in virtual time."""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.backoff import Backoff
from fipop.errors import FipopError, UnavailableError
from fipop.runtime.workqueue import Priority, RetryAfter, Run, WorkQueue
from tests.harness.virtual_time import VirtualLoop, in_virtual_time


def new_queue(**options: Any) -> WorkQueue[str]:
    return WorkQueue(name="test", random=Random(1), **options)


@asynccontextmanager
async def running(queue: WorkQueue[str], handle: Any, *, concurrency: int = 4) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(handle, concurrency=concurrency))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Journal:
    """A handler that takes a second over each key and remembers when it began."""

    def __init__(self, *results: Any) -> None:
        self.runs: list[tuple[float, str]] = []
        self.results = list(results)
        self.most_at_once = 0
        self.working: list[str] = []

    async def __call__(self, key: str) -> RetryAfter | None:
        self.runs.append((round(asyncio.get_running_loop().time(), 3), key))
        assert key not in self.working, "one key is worked on twice at once"
        self.working.append(key)
        self.most_at_once = max(self.most_at_once, len(self.working))
        try:
            await asyncio.sleep(1)
        finally:
            self.working.remove(key)
        result = self.results.pop(0) if self.results else None
        if isinstance(result, BaseException):
            raise result
        return result

    @property
    def times(self) -> list[float]:
        return [time for time, _ in self.runs]


class TestAdding:
    @in_virtual_time
    async def test_a_key_that_is_added_while_it_is_worked_on_runs_again_after(self) -> None:
        queue, journal = new_queue(), Journal()
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(0.5)
            queue.add("a")
            queue.add("a", delay_seconds=20)
            await asyncio.sleep(100)
        assert journal.times == [0, 1]

    @in_virtual_time
    async def test_what_was_added_before_its_handler_looked_causes_no_further_run(self) -> None:
        runs: list[float] = []
        queue = new_queue()
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def look_late(key: str) -> None:
            runs.append(loop.time() - began)
            await asyncio.sleep(1)
            queue.drop_rerun(key)

        working = asyncio.create_task(queue.run(look_late, concurrency=1))
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.add("a")
        await asyncio.sleep(1.5)
        assert runs == [0], "what was added is known to the run that looked after it"
        queue.add("a")
        await asyncio.sleep(0.5)
        queue.add("a", delay_seconds=20)
        await asyncio.sleep(60)
        assert runs == [0, 2, 22.5], "what is to be looked at later is"
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    @pytest.mark.parametrize(("delays", "due"), [((30, 10, 20), 10), ((30, 0), 0)])
    @in_virtual_time
    async def test_the_earliest_of_several_delays_wins(self, delays: tuple[float, ...], due: float) -> None:
        queue, journal = new_queue(), Journal()
        async with running(queue, journal):
            for delay in delays:
                queue.add("a", delay_seconds=delay)
            await asyncio.sleep(60)
        assert journal.times == [due]

    @in_virtual_time
    async def test_urgent_keys_go_first_and_equals_in_their_order(self) -> None:
        queue, journal = new_queue(), Journal()
        for key in ("round-1", "round-2"):
            queue.add(key, priority=Priority.BACKGROUND)
        for key in ("a", "b"):
            queue.add(key)
        queue.add("new", priority=Priority.URGENT)
        queue.add("round-2", priority=Priority.URGENT)
        async with running(queue, journal, concurrency=1):
            await asyncio.sleep(100)
        assert [key for _, key in journal.runs] == ["new", "round-2", "a", "b", "round-1"]

    @pytest.mark.parametrize(
        ("first", "priority", "of_others"),
        [
            (RetryAfter(1), Priority.URGENT, Priority.URGENT),
            (FipopError("no"), Priority.URGENT, Priority.URGENT),
            (RetryAfter(1), Priority.BACKGROUND, Priority.NORMAL),
        ],
    )
    @in_virtual_time
    async def test_what_comes_back_is_urgent_no_more_and_background_work_stays_it(
        self, first: Any, priority: Priority, of_others: Priority
    ) -> None:
        queue = new_queue(backoff=Backoff(first_seconds=2.0, limit_seconds=300))
        journal = Journal(first)
        queue.add("old", priority=priority)
        async with running(queue, journal, concurrency=1):
            await asyncio.sleep(0.5)
            for number in range(4):
                queue.add(f"new-{number}", priority=of_others)
            await asyncio.sleep(60)
        assert [key for _, key in journal.runs] == ["old", "new-0", "new-1", "new-2", "new-3", "old"]

    @in_virtual_time
    async def test_a_key_whose_priority_was_raised_takes_a_new_place_afterwards(self) -> None:
        queue = new_queue()
        seen: list[str] = []

        async def handle(key: str) -> None:
            seen.append(key)
            if seen == ["x"]:
                queue.add("x", priority=Priority.BACKGROUND)

        queue.add("a")
        for key in ("x", "b"):
            queue.add(key, priority=Priority.BACKGROUND)
        queue.add("x", priority=Priority.URGENT)
        async with running(queue, handle, concurrency=1):
            await asyncio.sleep(100)
        assert seen == ["x", "a", "b", "x"]


class TestResults:
    @pytest.mark.parametrize(
        ("result", "again"),
        [
            (RetryAfter(480), 481),
            (UnavailableError("get Thing", status=429, retry_after=42.0, is_unsent=True), 43),
        ],
    )
    @in_virtual_time
    async def test_a_key_runs_again_after_the_time_that_its_handler_or_the_server_asks_for(
        self, result: Any, again: float
    ) -> None:
        queue, journal = new_queue(), Journal(result)
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(again + 200)
        assert journal.times == [0, again]

    @in_virtual_time
    async def test_failures_back_off_exponentially_up_to_the_limit(self) -> None:
        backoff = Backoff(first_seconds=1, limit_seconds=10)
        queue, journal = new_queue(backoff=backoff), Journal(*[FipopError("no") for _ in range(6)])
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(200)
        waits = [
            later - earlier - 1 for earlier, later in zip(journal.times, journal.times[1:], strict=False)
        ]
        for wait, step in zip(waits, (1, 2, 4, 8, 10, 10), strict=True):
            assert step / 2 <= wait <= step

    @in_virtual_time
    async def test_a_success_forgets_earlier_failures(self) -> None:
        fails = FipopError("no")
        queue = new_queue(backoff=Backoff(first_seconds=1, limit_seconds=100))
        journal = Journal(fails, fails, fails, RetryAfter(50), fails)
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(500)
        assert journal.times[-1] - journal.times[-2] <= 2

    @in_virtual_time
    async def test_an_event_does_not_wait_for_the_back_off(self) -> None:
        queue, journal = (
            new_queue(backoff=Backoff(first_seconds=100, limit_seconds=300)),
            Journal(FipopError("no")),
        )
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(5)
            queue.add("a")
            await asyncio.sleep(500)
        assert journal.times == [0, 5]

    @in_virtual_time
    async def test_a_failure_is_logged_once_until_its_text_changes_or_it_is_over(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)

        first, second = FipopError("the range is full"), FipopError("the guest is away")
        queue, journal = new_queue(), Journal(first, first, first, second)
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(1000)
        assert [(record.levelname, getattr(record, "error", "")) for record in caplog.records] == [
            ("WARNING", "the range is full"),
            ("WARNING", "the guest is away"),
            ("INFO", ""),
        ]
        assert all(record.key == "a" and record.queue == "test" for record in caplog.records)

    @in_virtual_time
    async def test_any_other_exception_is_logged_with_its_traceback_counted_and_tried_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        runs: list[Run[str]] = []

        queue, journal = new_queue(observe=runs.append), Journal(ZeroDivisionError("a bug"))
        async with running(queue, journal):
            queue.add("a")
            queue.add("b")
            await asyncio.sleep(100)
        assert [(run.key, run.success) for run in runs] == [("a", False), ("b", True), ("a", True)]
        [record] = [record for record in caplog.records if record.levelname == "ERROR"]
        assert record.exc_info is not None
        assert record.exc_info[0] is ZeroDivisionError

    @in_virtual_time
    async def test_a_cancellation_from_inside_the_handler_is_a_failure_and_loses_nothing(self) -> None:
        runs: list[Run[str]] = []

        queue, journal = new_queue(observe=runs.append), Journal(asyncio.CancelledError())
        async with running(queue, journal):
            queue.add("a")
            await asyncio.sleep(100)
        assert [run.success for run in runs] == [False, True]

    @in_virtual_time
    async def test_metrics_learn_of_each_run(self) -> None:
        runs: list[Run[str]] = []

        queue = new_queue(observe=runs.append)
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(3)
        async with running(queue, Journal(), concurrency=1):
            await asyncio.sleep(100)
        assert runs == [
            Run(key="a", success=True, waited_seconds=3, worked_seconds=1),
            Run(key="b", success=True, waited_seconds=4, worked_seconds=1),
        ]


class TestStopping:
    @in_virtual_time
    async def test_the_end_cancels_what_is_being_worked_on_and_starts_nothing_more(self) -> None:
        queue, journal = new_queue(), Journal()
        async with running(queue, journal, concurrency=1):
            for key in ("a", "b"):
                queue.add(key)
            queue.add("c", delay_seconds=2)
            await asyncio.sleep(0.5)
        assert journal.working == []
        queue.add("d")
        await asyncio.sleep(100)
        assert journal.runs == [(0, "a")]

    @in_virtual_time
    async def test_handlers_do_not_inherit_the_context_of_whoever_added_the_key(self) -> None:
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
        seen: list[str] = []

        queue = new_queue()

        async def handle(_: str) -> None:
            seen.append(variable.get())

        async with running(queue, handle):
            variable.set("of the event")
            queue.add("a")
            await asyncio.sleep(100)
        assert seen == ["none"]


DELAYS = st.sampled_from([0.0, 0.0, 0.3, 1.0, 2.5])
STEPS = st.lists(st.tuples(st.sampled_from("abc"), DELAYS, DELAYS, st.sampled_from(Priority)), max_size=30)


@settings(max_examples=150)
@given(steps=STEPS, concurrency=st.integers(1, 3), begins_after=st.floats(0, 4))
def test_every_add_is_followed_by_a_run_that_began_after_it(
    steps: list[tuple[str, float, float, Priority]], concurrency: int, begins_after: float
) -> None:
    """Whatever the interleaving: no key twice at once (Journal asserts), none lost, none run for nothing."""
    journal = Journal()
    last_due: dict[str, float] = {}

    async def scenario() -> None:
        queue, loop = new_queue(), asyncio.get_running_loop()

        async def add_all() -> None:
            for key, pause, delay, priority in steps:
                await asyncio.sleep(pause)
                last_due[key] = max(loop.time(), last_due.get(key, 0.0))
                queue.add(key, delay_seconds=delay, priority=priority)

        adding = asyncio.create_task(add_all())
        await asyncio.sleep(begins_after)
        async with running(queue, journal, concurrency=concurrency):
            await adding
            await asyncio.sleep(100)
            assert (queue.depth, journal.working) == (0, [])

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scenario())
    for key, due in last_due.items():
        assert max(time for time, ran in journal.runs if ran == key) >= round(due, 3)
    assert {key for _, key in journal.runs} == set(last_due)
    assert len(journal.runs) <= len(steps)
    assert journal.most_at_once <= concurrency
