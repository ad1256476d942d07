"""The API server is away for seconds or minutes, or fails for minutes; the probes are asked all the time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from localfleet.faultproxy import Do, On, Rule, Schedule
from tests.faults.lane import Lane, Operator
from tests.faults.plans import Plan
from tests.faults.runner import RESYNC, Result, tail, unrest
from tests.harness.invariants.revisions import Setting, replay
from tests.harness.invariants.runs import allocations

OUTAGE = "outage"
UNREADY_SECONDS = (6.0, 45.0)
"""A leader ends 8 s after it renewed its Lease last, and the new process is not ready before it read the objects."""
RESTART_SECONDS = 15.0
"""How long no probe is answered until the new process serves its own."""
LOST_AFTER_SECONDS = (6.0, 10.0)
"""A Lease that cannot be renewed is lost 8 s after its last renewal, which may be 2 s older than the outage."""
BACK_SECONDS = 30.0
START_SECONDS = 60.0
_LOOK_SECONDS = 0.25


def outages() -> list[Plan]:
    """What is asked of an operator: up to ten minutes without an API server, two with one that fails."""
    return [
        Plan(
            scenario=OUTAGE,
            family=family,
            election=True,
            rules=(Rule(on=On.ALL, do=do, status=500, rate=1.0, seconds=seconds),),
        )
        for family, do, seconds in (
            ("API server away for 10 min", Do.CUT_BEFORE, 600.0),
            ("500 to everything for 2 min", Do.STATUS, 120.0),
            ("API server away for 30 s", Do.CUT_BEFORE, 30.0),
            ("API server away for 5 s", Do.CUT_BEFORE, 5.0),
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What both probes of an operator said, and how many seconds after the outage began."""

    at: float
    live: bool
    ready: bool


@dataclass(slots=True)
class Probes:
    """Asks the probes of an operator from `began` on."""

    operator: Operator
    began: float = field(default_factory=time.monotonic)
    looks: list[Look] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether readiness was green at last."""
        return bool(self.looks) and self.looks[-1].ready

    async def look(self) -> None:
        """Ask both once."""
        process = self.operator.process
        live, ready = await process.is_live(), await process.is_ready()
        self.looks.append(Look(at=time.monotonic() - self.began, live=live, ready=ready))

    async def look_for_ever(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def outage(lane: Lane, operator: Operator, rule: Rule) -> AsyncIterator[None]:
    """Have one: connections are refused by an API server that does not run, or its answers are replaced."""
    if rule.do is Do.CUT_BEFORE:
        await lane.plane.stop_api()
        try:
            yield
        finally:
            await lane.plane.start_api()
        return
    operator.proxy.schedule = Schedule((rule,))
    try:
        yield
    finally:
        operator.proxy.schedule = Schedule()


async def run_outage(lane: Lane, plan: Plan) -> Result:
    """Work, outage, work: what was begun before and asked for meanwhile is there at the end."""
    result = Result(plan=plan)
    began = time.monotonic()
    (rule,) = plan.rules
    operator = await lane.operator("elected-0", RESYNC)
    try:
        await lane.reset()
        guests = [await lane.guest(number) for number in range(3)]
        await lane.create_range("r1", "10.11.0.10-10.11.0.20")
        await operator.start(Schedule())
        for name in ("stays", "goes"):
            await lane.create_fip(guests[0], name, serviceNamespace=name)
        if not await lane.wait(lambda: _have(lane, guests[0], "stays", "goes"), seconds=START_SECONDS):
            result.violations.append("I4: nothing is served before the outage")
        probes = Probes(operator)
        looking = asyncio.create_task(probes.look_for_ever())
        try:
            async with outage(lane, operator, rule):
                if rule.do is Do.STATUS:
                    # Others can write: what the operator's watches never show.
                    await lane.create_fip(guests[1], "meanwhile")
                    await lane.delete_fip(guests[0], "goes")
                await asyncio.sleep(rule.seconds - (time.monotonic() - probes.began))
                over = time.monotonic() - probes.began
            back = time.monotonic()
            down = back - probes.began
            await lane.create_fip(guests[2], "after")
            wanted = {guests[2]: ("after",), guests[1]: ("meanwhile",) if rule.do is Do.STATUS else ()}
            await lane.wait(
                lambda: all(_have(lane, guest, *names) for guest, names in wanted.items()) and probes.ready,
                seconds=START_SECONDS,
            )
            away = time.monotonic() - back
        finally:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        await lane.wait(lambda: not unrest(lane), seconds=START_SECONDS)
        result.violations += [f"I4: {problem}" for problem in unrest(lane)]
        result.violations += judge(probes.looks, over=over, down=down, back_after=away)
        least, most = over > LOST_AFTER_SECONDS[1], down > LOST_AFTER_SECONDS[0]
        if operator.ended or not least <= operator.lost <= most:
            result.violations.append(f"I6: {operator.lost} leads were lost, other ends: {operator.ended}")
    finally:
        result.struck = max(1, operator.proxy.schedule.struck)
        await operator.stop()
    await lane.recorder.catch_up()
    result.violations += [
        str(each) for each in replay(lane.recorder.history, Setting(clusters=lane.clusters))
    ]
    result.allocations = allocations(lane.recorder.history)
    result.writes = len(operator.proxy.writes())
    if result.violations:
        result.log = tail(operator.process.process.log)
        result.history = "\n".join(repr(step)[:1500] for step in lane.recorder.history.steps())
    result.seconds = time.monotonic() - began
    return result


def judge(looks: Sequence[Look], *, over: float, back_after: float, down: float | None = None) -> list[str]:
    """What health said wrongly, and whether work went on too late.

    `over` is when the API server was to come back, `down` when it was there: its own start takes seconds.
    """
    found = []
    dead = [look.at for look in looks if not look.live]
    if dead and dead[-1] - dead[0] > RESTART_SECONDS:
        found.append(
            f"I6: liveness was red from {dead[0]:.1f} s to {dead[-1]:.1f} s: no restart would have helped"
        )
    unready_after = next((look.at for look in looks if not look.ready), None)
    first, last = UNREADY_SECONDS
    may_turn, must_turn = (down or over) > first, over > last
    if must_turn if unready_after is None else not (may_turn and first < unready_after < last):
        found.append(f"I6: readiness turned red after {unready_after} s")
    early = [
        look.at
        for look in looks
        if look.ready and unready_after is not None and unready_after < look.at < over
    ]
    if early:
        found.append(
            f"I6: readiness turned green after {early[0]:.1f} s, though the API server was away for {over:.1f} s"
        )
    ready = bool(looks) and looks[-1].ready
    if not ready or back_after > BACK_SECONDS:
        found.append(f"I4: back at work after {back_after:.1f} s, ready: {ready}")
    return found


def _have(lane: Lane, guest: str, *names: str) -> bool:
    return all(lane.addresses(guest, name) for name in names)
