"""Run plans side by side, print what came of them, write down those that failed.

python -m tests.faults [--lanes N] [--scenario NAME…] [--every N [--start K]]
python -m tests.faults --replay FILE…
"""

import argparse
import asyncio
import json
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from localfleet.assets import ensure_all
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults import plans as made
from tests.faults.crowd import CROWD, run_crowd
from tests.faults.lane import Lane
from tests.faults.options import parse
from tests.faults.outages import OUTAGE, run_outage
from tests.faults.plans import Plan
from tests.faults.runner import Reference, Result, run_plan
from tests.faults.selection import select, stories
from tests.faults.shown import Event, shown_to
from tests.faults.tally import final, summary, table, uncounted

PLAN_SECONDS = 420.0
LONG_SECONDS = {OUTAGE: 900.0, CROWD: 2400.0}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Run:
    """All plans of one call, spread over the lanes."""

    def __init__(self, lanes: Sequence[Lane], out: Path) -> None:
        self.lanes = lanes
        self.out = out
        self.results: list[Result] = []
        self.references: dict[str, Reference] = {}
        self.shown: dict[str, frozenset[Event]] = {}
        self._began = time.monotonic()

    async def refer(self, names: Sequence[str]) -> None:
        """Run each scenario undisturbed; what that comes to is what all its plans must come to."""
        results = {
            result.plan.scenario: result
            for result in await self._spread([made.undisturbed(name) for name in names])
        }
        self.references = {name: Reference.of(results[name]) for name in names}

    async def run(self, plans: Sequence[Plan]) -> None:
        await self._spread(plans)

    async def _spread(self, plans: Sequence[Plan]) -> list[Result]:
        waiting = list(reversed(plans))
        done: list[Result] = []

        async def work(lane: Lane) -> None:
            while waiting:
                plan = waiting.pop()
                result = await self._try(lane, plan)
                done.append(result)
                self._note(result, len(waiting))

        await asyncio.gather(*(work(lane) for lane in self.lanes))
        return done

    async def _try(self, lane: Lane, plan: Plan) -> Result:
        try:
            async with asyncio.timeout(LONG_SECONDS.get(plan.scenario, PLAN_SECONDS)):
                if plan.scenario == CROWD:
                    return await run_crowd(lane, plan)
                if plan.scenario == OUTAGE:
                    return await run_outage(lane, plan)
                result = await run_plan(lane, plan, self.references.get(plan.scenario))
                if not plan.is_disturbed:
                    passed = [each for one in lane.operators.values() for each in one.proxy.passed]
                    self.shown[plan.scenario] = shown_to(passed, lane.recorder.history)
                return result
        except Exception as error:  # noqa: BLE001 - one plan that breaks must not end the others
            problem = f"the plan could not be run: {error!r}"
            return Result(plan=plan, violations=[problem], log=traceback.format_exc())

    def _note(self, result: Result, left: int) -> None:
        self.results.append(result)
        number = len(self.results)
        mark = "VIOLATION" if result.violations else "ok"
        minutes = (time.monotonic() - self._began) / 60
        say(
            f"{minutes:5.1f} min {number:4d} done {left:4d} left {mark:9s} {result.seconds:5.1f} s "
            f"{result.plan.scenario}: {result.plan.family}",
        )
        if not result.violations:
            return
        for violation in result.violations[:6]:
            say(f"      {violation[:400]}")
        self.out.mkdir(parents=True, exist_ok=True)
        file = self.out / f"plan-{number:04d}.json"
        file.write_text(result.plan.to_line() + "\n")
        file.with_suffix(".violations").write_text("\n".join(result.violations) + "\n")
        file.with_suffix(".log").write_text(result.log)
        file.with_suffix(".history").write_text(result.history)
        say(f"      again: .venv/bin/python -m tests.faults --replay {file}")


def prepare(options: argparse.Namespace) -> Path:
    """The folder for results, without the failed plans of an earlier run; a replay has its own and removes nothing."""
    out: Path = options.out / "replay" if options.replay else options.out
    out.mkdir(parents=True, exist_ok=True)
    if not options.replay:
        for file in out.glob("plan-*"):
            file.unlink()
    return out


async def main(options: argparse.Namespace) -> int:
    out = prepare(options)
    programs = ensure_all(*PROGRAMS, "helm")
    async with LocalFleet(programs) as fleet, AsyncExitStack() as exits:
        lanes = [await exits.enter_async_context(Lane(fleet, number)) for number in range(options.lanes)]
        run = Run(lanes, out)
        await run.refer(stories(options))
        chosen = select(options, run.references, run.shown)
        await run.run(chosen)
    if not chosen:
        sys.stderr.write("no plan is left by --scenario and --every together: nothing was tried\n")
        return 2
    say(table(run.results))
    (out / "plans.jsonl").write_text("".join(f"{each.plan.to_line()}\n" for each in run.results))
    (out / "summary.json").write_text(json.dumps([summary(each) for each in run.results]))
    say(uncounted(run.results))
    say(final(run.results))
    return 1 if any(each.violations for each in run.results) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
