"""Several cloud providers at once, disturbed in some 160 ways; every revision is judged.

python -m tests.faults.services [--lanes N] [--every N [--start K]] [PLAN…]
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from localfleet.arguments import positive
from localfleet.assets import ensure_all
from localfleet.errors import ApiError, DeadlineError
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults.services.lane import Lane
from tests.faults.services.plans import Plan, build_plans
from tests.faults.services.runner import Result, run_plan

PLAN_SECONDS = 600.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def run(plans: Sequence[Plan], lanes: int) -> list[Result]:
    """Run plans side by side."""
    waiting, done, began = list(reversed(plans)), list[Result](), time.monotonic()
    async with LocalFleet(ensure_all(*PROGRAMS)) as fleet, AsyncExitStack() as stack:

        async def work(lane: Lane) -> None:
            while waiting:
                plan = waiting.pop()
                try:
                    async with asyncio.timeout(PLAN_SECONDS):
                        result = await run_plan(lane, plan)
                except (TimeoutError, ApiError, DeadlineError) as error:
                    result = Result(plan=plan, violations=[f"the plan does not end: {error!r}"])
                done.append(result)
                say(
                    f"{len(done):4d} {time.monotonic() - began:6.0f} s  {plan.name:42s} {result.seconds:5.1f} s  "
                    f"struck={result.struck} killed={result.killed} allocations={result.allocations}"
                )
                for each in result.violations:
                    say(f"     VIOLATION {each}")

        made = [await stack.enter_async_context(Lane(fleet, number)) for number in range(1, lanes + 1)]
        await asyncio.gather(*(work(lane) for lane in made))
    return done


def final(results: Sequence[Result]) -> str:
    """The last line of a run."""
    disturbed = [each for each in results if each.plan.rules and (each.struck or each.killed)]
    return (
        f"faults: plans={len(disturbed)} operations={sum(each.operations for each in results)} "
        f"allocations={sum(each.allocations for each in results)} "
        f"violations={sum(len(each.violations) for each in results)}"
    )


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for; 1 where a plan shows a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.services")
    parser.add_argument("plans", nargs="*", metavar="PLAN", help="only plans whose name begins so")
    parser.add_argument("--lanes", type=positive, default=2, help="so many side by side")
    parser.add_argument("--every", type=positive, default=1, help="only every n-th plan")
    parser.add_argument("--start", type=int, default=0, help="with --every: which of the N shares")
    options = parser.parse_args(arguments)
    plans = [
        each
        for each in build_plans()
        if not options.plans or any(each.name.startswith(name) for name in options.plans)
    ][options.start % options.every :: options.every]
    if not plans:
        parser.error("no plan has such a name")
    results = asyncio.run(run(plans, options.lanes))
    unstruck = [each.plan.name for each in results if each.plan.rules and not each.struck and not each.killed]
    say(f"not counted as plans, since nothing was struck: {' '.join(unstruck) or 'none'}")
    say(final(results))
    return 1 if any(each.violations for each in results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
