"""Thousands of floating IPs at once, two operators without election, kills and lost answers by chance."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from localfleet.client import Json
from localfleet.faultproxy import Do, On, Rule, Schedule
from tests.faults.history import FLOATING_IPS, RESERVATIONS
from tests.faults.lane import Lane, Operator
from tests.faults.oracles import allocations, is_held, replay, slot_of, slots_named_by
from tests.faults.plans import Plan
from tests.faults.runner import NO_ELECTION, RESYNC, Result, tail

NAMESPACES = 20
LEAVING = 4
"""So many of the namespaces are emptied in the end."""
AT_ONCE = 40
PAUSE_SECONDS = 2.0
"""Between two looks at the whole crowd, which take long."""
HARM = (
    Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.0002),
    Rule(on=On.WRITE, do=Do.KILL_BEFORE, rate=0.0002),
    Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.01),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds until everybody has an address, and until all are free again."""

    settle: float = 1200.0
    release: float = 900.0


def crowd(seed: int = 1) -> Plan:
    return Plan(
        scenario="crowd", family="a crowd, two writers", rules=HARM, others=HARM, operators=2, seed=seed
    )


async def run_crowd(lane: Lane, plan: Plan, size: int, times: Times | None = None) -> Result:
    """Give `size` floating IPs an address each, then delete a fifth; judge every revision and the end."""
    times = times or Times()
    result = Result(plan=plan)
    operators = [
        await lane.operator(f"crowd-{number}", RESYNC.replace("=8", "=60"), NO_ELECTION)
        for number in range(2)
    ]
    try:
        await lane.reset()
        await lane.create_range("crowd", "10.64.0.0/16", quarantineSeconds=1)
        for number in range(NAMESPACES):
            await lane.ensure_namespace(f"crowd-{number}")
        for operator, rules in zip(operators, (plan.rules, plan.others), strict=True):
            await operator.start(Schedule(rules, seed=plan.seed))
        await _create(lane, size)
        if not await lane.wait(lambda: _all_named(lane, size), seconds=times.settle, pause=PAUSE_SECONDS):
            result.violations.append(f"I4: {_named(lane)} of {size} have an address after {times.settle:g} s")
        await _compare(lane, size, operators, result)
        await _delete(lane, size)
        left = size - _count_leaving(size)
        await lane.wait(
            lambda: len(_of(lane, RESERVATIONS)) == left, seconds=times.release, pause=PAUSE_SECONDS
        )
        await _compare(lane, left, operators, result)
        leaked = len(_of(lane, RESERVATIONS)) - left
        if leaked:
            result.violations.append(f"I2: {leaked} reservations have leaked")
    finally:
        for operator in operators:
            await operator.stop()
    await lane.recorder.catch_up()
    result.violations += [str(each) for each in replay(lane.recorder.history)][:50]
    result.allocations = allocations(lane.recorder.history)
    result.killed = sum(operator.killed for operator in operators)
    result.struck = sum(operator.proxy.schedule.struck for operator in operators)
    result.writes = sum(len(operator.proxy.writes()) for operator in operators)
    if result.violations:
        result.log = "\n".join(tail(operator.process.process.log) for operator in operators)
    return result


async def _create(lane: Lane, size: int) -> None:
    await _for_each(
        range(size),
        lambda number: lane.create_plain_fip(f"crowd-{number % NAMESPACES}", f"f{number}", "crowd"),
    )


async def _delete(lane: Lane, size: int) -> None:
    """One by one: one request for all of a namespace takes longer than a client waits for an answer."""
    await _for_each(
        (number for number in range(size) if number % NAMESPACES < LEAVING),
        lambda number: lane.delete_fip(f"crowd-{number % NAMESPACES}", f"f{number}"),
    )


async def _for_each(numbers: Iterable[int], act: Callable[[int], Awaitable[object]]) -> None:
    waiting = iter(numbers)

    async def work() -> None:
        for number in waiting:
            await act(number)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def _count_leaving(size: int) -> int:
    return sum(number % NAMESPACES < LEAVING for number in range(size))


async def _compare(lane: Lane, size: int, operators: list[Operator], result: Result) -> None:
    """Held reservations are what statuses name, no address twice."""
    await lane.wait(lambda: len(_held(lane)) == size, seconds=60, pause=PAUSE_SECONDS)
    named = [slot for obj in _of(lane, FLOATING_IPS) for slot in slots_named_by(obj)]
    held = [slot_of(obj) for obj in _held(lane)]
    if len(set(named)) != len(named):
        result.violations.append(f"I1: {len(named) - len(set(named))} addresses are named twice")
    if sorted(named) != sorted(held):
        result.violations.append(f"I2: {len(held)} addresses are held, {len(named)} are named")
    result.violations += [
        f"{each.name} ended by itself with {each.ended}" for each in operators if each.ended
    ]


def _of(lane: Lane, plural: str) -> list[Json]:
    return [obj for key, obj in lane.recorder.now.items() if key[0] == plural]


def _held(lane: Lane) -> list[Json]:
    return [obj for obj in _of(lane, RESERVATIONS) if is_held(obj)]


def _named(lane: Lane) -> int:
    return sum(bool(slots_named_by(obj)) for obj in _of(lane, FLOATING_IPS))


def _all_named(lane: Lane, size: int) -> bool:
    return _named(lane) == size
