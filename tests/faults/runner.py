"""Runs one plan on one lane and judges it."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localfleet.faultproxy import Do, Schedule
from tests.faults.lane import Lane, Operator
from tests.faults.plans import Plan
from tests.faults.scenarios import ALL, Scenario
from tests.harness.crashes import find_crashes
from tests.harness.history import Json, Key
from tests.harness.invariants.rest import unsettled
from tests.harness.invariants.revisions import Setting, replay
from tests.harness.invariants.runs import (
    allocations,
    creations,
    difference,
    given_out,
    led_by_two,
    normalize,
    takes_any,
)
from tests.harness.stored import Owner

PATIENCE_SECONDS = 180.0
"""Of a chapter, and of the end."""
SILENCE_SECONDS = 5.0
"""Longer than from one resync to the next: what writes at each of them is heard."""
RETURNS = {"careful": 2, "returns": 2, "quarantine": 2, "demand": 2}
"""In these stories floating IPs are created again: they find their addresses still held, or get them back."""

RACES = {"quarantine": 1}
"""In this story one comes back as its quarantine ends: to an address that still waits, or that was freed just then."""

CALMING_SECONDS = 40.0
"""So long operators may take to fall silent: who is frozen at every tenth write is slow."""

COUNTED = ("+floatingips", "-floatingips", "+floatingipranges", "-floatingipranges")
"""Made and deleted as often as without harm, however often the operators began anew."""

NO_ELECTION = "--no-leader-election"
RESYNC = "--resync-seconds=4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What the undisturbed run came to."""

    end: Json
    end_of_two: Json
    """For two operators: one that is blind may take a chosen address for one that was asked for by name."""
    chosen: frozenset[Owner]
    writes: int
    created: Counter[str]
    given_out: int
    allocations: int

    @classmethod
    def of(cls, result: "Result") -> "Reference":
        """What an undisturbed run has shown."""
        return cls(
            end=result.end,
            end_of_two=result.end_of_two,
            chosen=result.chosen,
            writes=result.writes,
            created=result.created,
            given_out=result.given_out,
            allocations=result.allocations,
        )


@dataclass(slots=True, kw_only=True)
class Result:
    """What a plan came to; `struck` counts how often its rules did harm, `log` is the end of the operators' log."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    struck: int = 0
    killed: int = 0
    writes: int = 0
    allocations: int = 0
    given_out: int = 0
    seconds: float = 0.0
    end: Json = field(default_factory=dict)
    end_of_two: Json = field(default_factory=dict)
    chosen: frozenset[Owner] = frozenset()
    created: Counter[str] = field(default_factory=Counter)
    log: str = ""
    history: str = ""


async def run_plan(lane: Lane, plan: Plan, reference: Reference | None) -> Result:
    """Run a plan from a clean lane; without a reference its end is not compared with another's."""
    result = Result(plan=plan)
    began = time.monotonic()
    scenario = ALL[plan.scenario]
    operators = await _prepare(lane, plan)
    try:
        await lane.reset()
        await scenario.before(lane)
        await start_all(operators, plan)
        restarts = asyncio.create_task(_restart(operators, plan.restart_every_seconds))
        try:
            await _play(lane, scenario, result)
        finally:
            restarts.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await restarts
        await _come_to_rest(lane, scenario, reference, result)
    finally:
        for operator in operators:
            await operator.stop()
            await operator.proxy.settle()
    await _judge(lane, scenario, reference, operators, result)
    result.seconds = time.monotonic() - began
    return result


async def _prepare(lane: Lane, plan: Plan) -> list[Operator]:
    arguments = (RESYNC,) if plan.election else (RESYNC, NO_ELECTION)
    kind = "elected" if plan.election else "free"
    return [await lane.operator(f"{kind}-{number}", *arguments) for number in range(plan.operators)]


async def start_all(operators: list[Operator], plan: Plan) -> None:
    """Start each with its rules; by the same seed two would be struck at their same writes."""
    for number, (operator, rules) in enumerate(zip(operators, (plan.rules, plan.others), strict=False)):
        await operator.start(Schedule(rules, seed=plan.seed + number))


async def _restart(operators: list[Operator], every_seconds: float) -> None:
    """Kill one operator after the other for a while."""
    if not every_seconds:
        return
    for number in range(8):
        await asyncio.sleep(every_seconds)
        operators[number % len(operators)].kill()


async def _play(lane: Lane, scenario: Scenario, result: Result) -> None:
    for number, chapter in enumerate(scenario.chapters, 1):
        await chapter.act(lane)
        if not await lane.wait(lambda chapter=chapter: chapter.until(lane), seconds=PATIENCE_SECONDS):
            result.violations.append(f"I4: chapter {number} does not end")
            return


async def _come_to_rest(lane: Lane, scenario: Scenario, reference: Reference | None, result: Result) -> None:
    """Wait for the end state, then for silence."""
    if result.violations:
        return

    def problems() -> list[str]:
        found = unrest(lane, unwritten=scenario.unwritten)
        if reference is not None:
            found += compare(lane.recorder.now, lane.carried(), reference, result.plan)
        return found

    if reference is None:
        # What the end is, is not known yet.
        await lane.wait(
            lambda: not problems() and quiet_for(lane) > SILENCE_SECONDS, seconds=PATIENCE_SECONDS
        )
    if not await lane.wait(lambda: not problems(), seconds=PATIENCE_SECONDS):
        result.violations += [f"I4: {problem}" for problem in problems()[:8]]
        return
    # Who still sleeps is waited for: its silence begins when it may go on.
    await asyncio.sleep(max(0.0, SILENCE_SECONDS - quiet_for(lane)))
    if not await lane.wait(lambda: quiet_for(lane) >= SILENCE_SECONDS, seconds=CALMING_SECONDS):
        result.violations.append("I4: there is no silence")
    result.violations += [f"I4: after the silence {problem}" for problem in problems()[:8]]


def unrest(lane: Lane, *, unwritten: Iterable[str] = ()) -> list[str]:
    """What keeps a lane from rest, and what people of its guests lack; `unwritten` as in `unsettled`."""
    return unsettled(lane.recorder.now, lane.carried(), unwritten=unwritten) + lane.bereft()


def compare(
    now: Mapping[Key, Json], carried: Mapping[str, frozenset[str]], reference: Reference, plan: Plan
) -> list[str]:
    """Where an end state differs from that of the undisturbed run."""
    is_alone = plan.operators == 1
    wanted = reference.end if is_alone else reference.end_of_two
    found = normalize(now, carried, chosen=None if is_alone else reference.chosen)
    if may_give_back(plan) and not Counter(wanted["quarantine"]) - Counter(found["quarantine"]):
        found["quarantine"] = wanted["quarantine"]
    return difference(wanted, found)


def may_give_back(plan: Plan) -> bool:
    """Whether more may be in quarantine in the end than without harm.

    Two operators may each claim an address for one floating IP, and one is given back. So is what a claim took that
    came late.
    """
    return plan.operators > 1 or any(rule.do is Do.CUT_LATE for rule in plan.rules)


def quiet_for(lane: Lane) -> float:
    """For how long there was no write of ours and no attempt at one."""
    attempts = [
        operator.proxy.last_write_at
        for operator in lane.operators.values()
        if operator.process.process.is_running
    ]
    return time.monotonic() - max([lane.recorder.last_change_at, *attempts])


async def _judge(
    lane: Lane, scenario: Scenario, reference: Reference | None, operators: list[Operator], result: Result
) -> None:
    await lane.recorder.catch_up()
    history = lane.recorder.history
    setting = Setting(clusters=lane.clusters, admin_freed=scenario.admin_freed)
    result.violations += [str(each) for each in replay(history, setting)]
    result.violations += scenario.judge(lane, result.plan)
    if result.plan.election:
        result.violations += led_by_two({operator.name: operator.proxy.passed for operator in operators})[:8]
    result.struck = sum(operator.proxy.schedule.struck for operator in operators)
    result.killed = sum(operator.killed for operator in operators)
    result.writes = sum(len(operator.proxy.writes()) for operator in operators)
    result.allocations, result.given_out = allocations(history), given_out(history)
    result.created = creations(history)
    result.end = normalize(lane.recorder.now, lane.carried())
    result.chosen = takes_any(lane.recorder.now)
    result.end_of_two = normalize(lane.recorder.now, lane.carried(), chosen=result.chosen)
    for operator in operators:
        if operator.ended:
            result.violations.append(f"{operator.name} ended by itself with {operator.ended}")
        result.violations += find_crashes(operator.process.process.log)[:3]
    if reference is not None:
        for kind in sorted({*COUNTED} & {*result.created, *reference.created}):
            extra = result.created[kind] - reference.created[kind]
            if extra:
                result.violations.append(f"{extra} more of {kind} than without harm")
        # Two writers may each choose an address, and one gives it back; one alone has no reason to. A create that
        # comes late, when its address was released and freed already, is one more, which nobody asked for again.
        late = any(rule.do is Do.CUT_LATE for rule in result.plan.rules)
        more = result.given_out - reference.given_out - (result.struck if late else 0)
        more -= RACES.get(result.plan.scenario, 0)
        again = result.allocations - reference.allocations - RETURNS.get(result.plan.scenario, 0)
        more = max(more, again - (result.struck if late else 0))
        if len(operators) == 1 and more > 0:
            result.violations.append(f"{more} addresses more were given out than without harm")
    if result.violations:
        result.log = "\n".join(tail(operator.process.process.log) for operator in operators)
        result.history = "\n".join(repr(step)[:1500] for step in history.steps())


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-60_000:] if log.exists() else ""
