"""What a guest cluster costs does not depend on how many others there are, and a burst not on the ranges."""

import asyncio
import sys
from collections import Counter
from random import Random
from types import FrameType
from typing import Self

from fipop.kube.resources import FLOATING_IP_RANGES
from fipop.operator.queues import Key, Kind, WorkQueues
from fipop.runtime.workqueue import RetryAfter, WorkQueue
from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

FEW, MANY = 50, 1_000
NEW = "c-m-new"


class Calls:
    """Counts the calls of Python functions, and the turns of generators, from its `with` on."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, _frame: FrameType, event: str, _argument: object) -> None:
        self.count += event == "call"

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


async def calls_of_a_new_guest(others: int) -> int:
    """Count what a guest cluster costs that comes, gets its address, and is visited."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.99.0")
    for number in range(others):
        guest_id, address = f"c-m-{number}", f"10.0.{10 + number // 250}.{1 + number % 250}"
        operator.add_guest(guest_id)
        operator.ask(guest_id, has=address)
        operator.reserve(address, guest_id)
        operator.carried.services[guest_id] = address
    async with leading(operator):
        await operator.look_until(lambda: operator.manager.gate.looked)
        await operator.settle()
        with Calls() as calls:
            operator.add_guest(NEW)
            operator.ask(NEW)
            await operator.settle()
            await operator.manager.reconcile(Key(Kind.GUEST, "", NEW))
            for _ in range(2):
                await operator.manager.passes.visit(NEW)
            await operator.settle()
    assert operator.carried.config_maps[NEW]
    return calls.count


@in_virtual_time
async def test_a_new_guest_costs_no_more_among_many_than_among_few() -> None:
    few, many = await calls_of_a_new_guest(FEW), await calls_of_a_new_guest(MANY)
    assert many < 1.05 * few, f"{few} calls among {FEW} others, {many} among {MANY}"


@in_virtual_time
async def test_in_a_burst_all_ranges_are_counted_once_a_second_and_written_as_often_at_most() -> None:
    operator = SmallOperator()
    for number in range(50):
        operator.add_range(f"range-{number}", f"10.{number}.0.0/24")
    await operator.start()
    operator.manager.end()
    objects = WorkQueue[Key](name="objects", random=Random(1))
    guests = WorkQueue[str](name="guests", random=Random(1))
    queues = WorkQueues(objects=objects, checks=objects, passes=guests, installs=guests)
    term, rounds = operator.build_manager(queues), Counter[str]()

    async def reconcile(key: Key) -> RetryAfter | None:
        if key.kind is not Kind.RANGE:
            return None
        rounds[key.name] += 1
        return await term.reconcile(key)

    term.begin()
    working = asyncio.create_task(objects.run(reconcile, concurrency=4))
    for number in range(200):  # in two seconds
        address = f"10.{number % 50}.0.{1 + number // 50}"
        operator.reserve(address, NEW, range_name=f"range-{number % 50}")
        await asyncio.sleep(0.01)
    await asyncio.sleep(1.5)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert rounds.pop("") <= 3
    assert max(rounds.values()) <= 3
    for number in range(50):
        found = operator.memory.objects[FLOATING_IP_RANGES.plural, "", f"range-{number}"]
        assert found["status"]["capacity"]["used"] == 4
