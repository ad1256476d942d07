"""Thousands of floating IPs at once, two operators without election, kills and lost answers by chance."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from localfleet.client import Json
from localfleet.faultproxy import Do, On, Passed, Rule
from tests.faults.lane import Lane, Operator
from tests.faults.plans import Plan
from tests.faults.runner import NO_ELECTION, SILENCE_SECONDS, Result, quiet_for, start_all, tail
from tests.harness.history import FLOATING_IPS, RESERVATIONS
from tests.harness.invariants.rest import unmatched
from tests.harness.invariants.revisions import replay
from tests.harness.invariants.runs import allocations
from tests.harness.stored import is_held, slots_named_by

CROWD = "crowd"
FULL_SIZE = 1000
"""From so many floating IPs on, the harm must have been done: a smaller crowd may end before its turn."""
SEED = 6
"""With this seed and the next, both operators are killed within their first 1,500 writes."""
NAMESPACES = 20
LEAVING = 4
"""So many of the namespaces are emptied in the end."""
AT_ONCE = 40
_CREATED = 201
PAUSE_SECONDS = 2.0
"""Between two looks at the whole crowd, which take long."""
RESYNC = "--resync-seconds=60"
"""Lists of thousands take their time."""
HARM = (
    Rule(on=On.WRITE, do=Do.KILL_AFTER, rate=0.0002),
    Rule(on=On.WRITE, do=Do.KILL_BEFORE, rate=0.0002),
    Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=0.01),
)


STALLED_SECONDS = 180.0
"""Patience ends where nothing has come nearer to its end for so long: a slow machine takes its time."""
SILENCE_PATIENCE_SECONDS = 60.0


async def arrives(left: Callable[[], int]) -> bool:
    """Wait until nothing is left; False where what is left has not become less for STALLED_SECONDS."""
    least, since = left(), time.monotonic()
    while least > 0:
        if time.monotonic() - since > STALLED_SECONDS:
            return False
        await asyncio.sleep(PAUSE_SECONDS)
        now = left()
        if now < least:
            least, since = now, time.monotonic()
    return True


def crowd(size: int) -> Plan:
    return Plan(
        scenario=CROWD,
        family="a crowd, two writers",
        rules=HARM,
        others=HARM,
        operators=2,
        seed=SEED,
        size=size,
    )


async def run_crowd(lane: Lane, plan: Plan) -> Result:
    """Give `plan.size` floating IPs an address each, then delete a fifth; judge every revision and the end."""
    size = plan.size
    result = Result(plan=plan)
    began = time.monotonic()
    operators = [await lane.operator(f"crowd-{number}", RESYNC, NO_ELECTION) for number in range(2)]
    try:
        await lane.reset()
        await lane.create_range("crowd", "10.64.0.0/16", quarantineSeconds=1)
        for number in range(NAMESPACES):
            await lane.ensure_namespace(f"crowd-{number}")
        await start_all(operators, plan)
        await _create(lane, size)
        if not await arrives(lambda: size - _named(lane)):
            result.violations.append(
                f"I4: {_named(lane)} of {size} have an address, and no more for {STALLED_SECONDS:g} s"
            )
        await _compare(lane, size, result)
        await _delete(lane, size)
        left = size - _count_leaving(size)
        await arrives(lambda: len(_of(lane, RESERVATIONS)) - left)
        await _compare(lane, left, result)
        leaked = len(_of(lane, RESERVATIONS)) - left
        if leaked:
            result.violations.append(f"I2: {leaked} reservations have leaked")
        if not await lane.wait(lambda: quiet_for(lane) >= SILENCE_SECONDS, seconds=SILENCE_PATIENCE_SECONDS):
            result.violations.append("I4: there is no silence")
    finally:
        for operator in operators:
            await operator.stop()
    await lane.recorder.catch_up()
    _judge(lane, operators, result)
    result.seconds = time.monotonic() - began
    return result


def _judge(lane: Lane, operators: Sequence[Operator], result: Result) -> None:
    result.violations += [str(each) for each in replay(lane.recorder.history)][:50]
    result.violations += [
        f"{each.name} ended by itself with {each.ended}" for each in operators if each.ended
    ]
    if result.plan.size >= FULL_SIZE:
        passed = {operator.name: operator.proxy.passed for operator in operators}
        result.violations += untried(passed, killed=sum(operator.killed for operator in operators))
    result.allocations = allocations(lane.recorder.history)
    result.killed = sum(operator.killed for operator in operators)
    result.struck = sum(operator.proxy.schedule.struck for operator in operators)
    result.writes = sum(len(operator.proxy.writes()) for operator in operators)
    if result.violations:
        result.log = "\n".join(tail(operator.process.process.log) for operator in operators)
        result.history = "\n".join(repr(step)[:1500] for step in lane.recorder.history.steps())


def untried(passed: Mapping[str, Sequence[Passed]], *, killed: int) -> list[str]:
    """What a full crowd was to try and did not; `passed` is what came by from each operator."""
    found = [] if killed else ["trial: no operator was killed"]
    if not any(each.struck is Do.CUT_AFTER for requests in passed.values() for each in requests):
        found.append("trial: no answer was lost")
    return found + [
        f"trial: {name} created no reservation"
        for name, requests in passed.items()
        if not any(each.seen.plural == RESERVATIONS and each.status == _CREATED for each in requests)
    ]


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


async def _compare(lane: Lane, size: int, result: Result) -> None:
    """Held reservations are what statuses name."""
    await lane.wait(lambda: len(_held(lane)) == size, seconds=60, pause=PAUSE_SECONDS)
    result.violations += [f"I2: {each}" for each in unmatched(lane.recorder.now)][:8]


def _of(lane: Lane, plural: str) -> list[Json]:
    return [obj for key, obj in lane.recorder.now.items() if key[0] == plural]


def _held(lane: Lane) -> list[Json]:
    return [obj for obj in _of(lane, RESERVATIONS) if is_held(obj)]


def _named(lane: Lane) -> int:
    return sum(bool(slots_named_by(obj)) for obj in _of(lane, FLOATING_IPS))
