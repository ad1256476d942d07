"""make hostile: hostile guests of every kind beside well-behaved ones, watched from outside.

python -m tests.hostile [--neighbours N] [--only TEXT] [--no-baseline]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from localfleet.fleet import LocalFleet
from tests.hostile.cases import CASES, Case
from tests.hostile.run import Stage, open_stage, run_cases

STALL_MS, RSS_MIB, RATIO = 250.0, 400.0, 2.0
FLOOR_SECONDS = 0.25
"""Waits below that are as good as none: a ratio of two of them would measure the machine."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument(
        "--neighbours", type=int, default=200, help="well-behaved guests beside the hostile ones"
    )
    parser.add_argument("--only", default="", help="run the cases whose name holds this text")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not measure well-behaved guests in their place"
    )
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in case.name]
    return asyncio.run(run(cases, options.neighbours, with_baseline=not options.no_baseline))


async def run(cases: list[Case], neighbours: int, *, with_baseline: bool) -> int:
    """Run the cases, then well-behaved guests in their place, and sum up."""
    began = time.monotonic()
    async with LocalFleet() as fleet:
        async with open_stage(fleet, "hostile", neighbours=neighbours) as stage:
            say(f"hostile: {len(cases)} kinds beside {neighbours} well-behaved guests")
            await run_cases(stage, cases)
        failed = tell(stage)
        ratio = 0.0
        if with_baseline:
            async with open_stage(fleet, "calm", neighbours=neighbours) as calm:
                calm.behave = True
                await run_cases(calm, cases)
            ratio = compare(stage, calm)
            failed += sum(bool(outcome.problem) for outcome in calm.outcomes)
            for outcome in calm.outcomes:
                if outcome.problem:
                    say(f"calm {outcome.case}: {outcome.problem} {outcome.told[:500]}")
    watch = stage.watch
    failed += stage.waits.missed + len(watch.findings)
    failed += (watch.stall_ms > STALL_MS) + (watch.rss_mib >= RSS_MIB) + (ratio > RATIO)
    say(f"took {time.monotonic() - began:.0f} s; at most {watch.folder_mib:.1f} MiB of files")
    say(
        f"hostile: cases={len(cases)} stall_ms={watch.stall_ms:.0f} rss_mib={watch.rss_mib:.0f} "
        f"others_ratio={ratio:.2f} log_mib={watch.log_mib:.2f} failed={failed}"
    )
    return 1 if failed else 0


def tell(stage: Stage) -> int:
    """Print what went wrong; how many cases failed."""
    bad = [outcome for outcome in stage.outcomes if outcome.problem]
    for outcome in bad:
        say(f"FAILED {outcome.case}: {outcome.problem}\n    told: {outcome.told[:600]}")
    for finding in stage.watch.findings:
        say(f"FOUND {finding}")
    for took, what in stage.watch.long_callbacks[:8]:
        say(f"callback of {took:.0f} ms: {what[:300]}")
    return len(bad)


def compare(stage: Stage, calm: Stage) -> float:
    """Give how much longer the others waited beside hostile guests than beside well-behaved ones, at the p99."""
    (address, passes), (calm_address, calm_passes) = stage.waits.p99(), calm.waits.p99()
    say(
        f"others, p99 of {len(stage.waits.address)} and {len(calm.waits.address)}: address {address:.3f} s "
        f"(calm {calm_address:.3f} s), pass {passes:.3f} s (calm {calm_passes:.3f} s)"
    )
    return max(
        max(hostile, FLOOR_SECONDS) / max(quiet, FLOOR_SECONDS)
        for hostile, quiet in ((address, calm_address), (passes, calm_passes))
    )


if __name__ == "__main__":
    sys.exit(main())
