"""make faults: run plans side by side, print what came of them, write down those that failed.

python -m tests.faults [--lanes N] [--scenario NAME…] [--family TEXT] [--limit N]
python -m tests.faults --replay FILE
"""

import argparse
import asyncio
import json
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from localfleet.assets import ensure_all
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults import plans as made
from tests.faults.crowd import crowd, run_crowd
from tests.faults.generator import generated, run_generated
from tests.faults.lane import Lane
from tests.faults.outages import OUTAGE, outages, run_outage
from tests.faults.plans import Plan
from tests.faults.runner import Reference, Result, run_plan
from tests.faults.scenarios import ALL, SLOW

OUT = Path("out/faults")
WITH_A_LEADER = frozenset({"appear", "moves", "burst"})
"""Leases take their time to run out: a few stories do."""


GENERATED, CROWD = "generated", "crowd"
PLAN_SECONDS, CROWD_SECONDS = 420.0, 2400.0
SEQUENCES = 30
OPERATIONS = 40


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Run:
    """All plans of one call, spread over the lanes."""

    def __init__(self, lanes: Sequence[Lane], out: Path, *, crowd: int) -> None:
        self.lanes = lanes
        self.crowd = crowd
        self.out = out
        self.results: list[Result] = []
        self.references: dict[str, Reference] = {}
        self._began = time.monotonic()

    async def refer(self, names: Sequence[str]) -> None:
        """Run each scenario undisturbed; what that comes to is what all its plans must come to."""
        for result in await self._spread([made.undisturbed(name) for name in names]):
            self.references[result.plan.scenario] = Reference.of(result)

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
            async with asyncio.timeout(CROWD_SECONDS if plan.scenario == CROWD else PLAN_SECONDS):
                if plan.scenario == CROWD:
                    return await run_crowd(lane, plan, self.crowd)
                if plan.scenario == OUTAGE:
                    return await run_outage(lane, plan)
                if plan.scenario == GENERATED:
                    return await run_generated(lane, plan, OPERATIONS)
                return await run_plan(lane, plan, self.references.get(plan.scenario))
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


def choose(references: dict[str, Reference]) -> list[Plan]:
    """All plans of the full run: every write of every story, and of each other kind of harm a share for each story."""
    chosen: list[Plan] = []
    for number, (name, reference) in enumerate(references.items()):
        if name in SLOW:
            chosen += made.at_every_write(name, reference.writes)[:: reference.writes // 4]
            continue
        chosen += made.at_every_write(name, reference.writes)
        for plans, share in (
            (made.at_rates(name, seed=10 + number), 3),
            (made.about_events(name), 4),
            (made.at_the_start(name), 2),
            (made.with_two(name, seed=20 + number), 2),
            (made.by_the_clock(name), 2),
        ):
            chosen += plans[number % share :: share]
    for name in references:
        if name in WITH_A_LEADER:
            chosen += made.with_a_leader(name)
    return chosen


def table(results: Sequence[Result]) -> str:
    """What came of each family."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        row = rows[result.plan.family]
        row.update(
            plans=1,
            struck=result.struck > 0 or bool(result.killed),
            killed=result.killed,
            writes=result.writes,
            allocations=result.allocations,
            violations=bool(result.violations),
        )
    columns = ("plans", "struck", "killed", "writes", "allocations", "violations")
    lines = [f"{'fault':34s}" + "".join(f"{column:>12s}" for column in columns)]
    for family, row in rows.items():
        lines.append(f"{family:34s}" + "".join(f"{row[column]:12d}" for column in columns))
    return "\n".join(lines)


def _summary(result: Result) -> dict[str, object]:
    return {
        "plan": result.plan.to_line(),
        "seconds": round(result.seconds, 1),
        "struck": result.struck,
        "violations": result.violations,
    }


async def main(options: argparse.Namespace) -> int:
    programs = ensure_all(*PROGRAMS, "helm")
    async with LocalFleet(programs) as fleet, AsyncExitStack() as exits:
        lanes = [
            await exits.enter_async_context(Lane(fleet, number, log_level=options.log_level))
            for number in range(options.lanes)
        ]
        run = Run(lanes, options.out, crowd=options.crowd)
        replayed = [Plan.from_line(line) for file in options.replay for line in file.read_text().splitlines()]
        names = list(dict.fromkeys(plan.scenario for plan in replayed)) or options.scenario or list(ALL)
        await run.refer([name for name in names if name in ALL])
        chosen = replayed or choose(run.references)
        if not replayed and (not options.scenario or GENERATED in options.scenario):
            chosen += generated(SEQUENCES)
        if not replayed and (not options.scenario or OUTAGE in options.scenario):
            chosen[:0] = outages()
        if not replayed and (not options.scenario or CROWD in options.scenario):
            chosen.insert(0, crowd())
        chosen = [plan for plan in chosen if options.family in plan.family]
        if options.every > 1:
            chosen = chosen[options.every // 2 :: options.every]
        await run.run(chosen[: options.limit])
    say(table(run.results))
    (options.out / "summary.json").parent.mkdir(parents=True, exist_ok=True)
    (options.out / "plans.jsonl").write_text("".join(f"{each.plan.to_line()}\n" for each in run.results))
    (options.out / "summary.json").write_text(
        json.dumps(
            [
                {
                    "plan": each.plan.to_line(),
                    "seconds": round(each.seconds, 1),
                    "violations": each.violations,
                }
                for each in run.results
            ]
        )
    )
    violations = sum(len(each.violations) for each in run.results)
    counted = sum(each.allocations for each in run.results)
    operations = sum(each.operations for each in run.results)
    say(
        f"faults: plans={len(run.results)} operations={operations} "
        f"allocations={counted} violations={violations}"
    )
    return 1 if violations else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--lanes", type=int, default=7, help="how many plans run side by side")
    parser.add_argument("--scenario", nargs="*", default=[])
    parser.add_argument("--family", default="")
    parser.add_argument("--every", type=int, default=1, help="only every n-th plan")
    parser.add_argument("--limit", type=int, default=100_000)
    parser.add_argument("--replay", type=Path, nargs="*", default=[])
    parser.add_argument("--crowd", type=int, default=10_000, help="how many floating IPs make a crowd")
    parser.add_argument("--package", type=Path, help="folder with another fipop to run, such as a copy")
    parser.add_argument("--log-level", default="Info", help="of the operators")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
