"""Hostile guests of every kind beside well-behaved ones, then hostile Services in one guest.

python -m tests.hostile [--neighbours N] [--only TEXT] [--no-baseline] [--guests | --services]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from localfleet.fleet import LocalFleet
from tests.hostile.cases import CASES, Case
from tests.hostile.run import Stage, open_stage, run_cases
from tests.hostile.service_kinds import KINDS, Kind
from tests.hostile.services import Measured, open_service_stage, run_kinds

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
        "--neighbours",
        type=int,
        default=200,
        help="well-behaved guests, or Services, beside the hostile ones",
    )
    parser.add_argument("--only", default="", help="run the kinds whose name holds this text")
    parser.add_argument(
        "--no-baseline", action="store_true", help="do not measure well-behaved guests in their place"
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--guests", action="store_true", help="the operator alone")
    parts.add_argument("--services", action="store_true", help="the cloud provider alone")
    return asyncio.run(run(parser.parse_args()))


async def run(options: argparse.Namespace) -> int:
    """Run what was chosen, and sum up in one line; the exit code."""
    words, failed, began = [], 0, time.monotonic()
    async with LocalFleet() as fleet:
        if not options.services:
            cases = [case for case in CASES if options.only in case.name]
            words, failed = await try_guests(
                fleet, cases, options.neighbours, with_baseline=not options.no_baseline
            )
        if not options.guests:
            kinds = [kind for kind in KINDS if options.only in kind.name]
            more, bad = await try_services(fleet, kinds, options.neighbours)
            words, failed = words + more, failed + bad
    say(f"took {time.monotonic() - began:.0f} s")
    say(f"hostile: {' '.join(words)} failed={failed}")
    return 1 if failed else 0


async def try_guests(
    fleet: LocalFleet, cases: list[Case], neighbours: int, *, with_baseline: bool
) -> tuple[list[str], int]:
    """Run the cases, then well-behaved guests in their place; what was measured, and how much failed."""
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
    say(f"at most {watch.folder_mib:.1f} MiB of files")
    words = [
        f"cases={len(cases)} stall_ms={watch.stall_ms:.0f} rss_mib={watch.rss_mib:.0f}",
        f"others_ratio={ratio:.2f} log_mib={watch.log_mib:.2f}",
    ]
    return words, failed


async def try_services(fleet: LocalFleet, kinds: list[Kind], neighbours: int) -> tuple[list[str], int]:
    """Run the kinds of hostile Services; what was measured, and how much failed."""
    async with open_service_stage(fleet, "services", neighbours=neighbours) as stage:
        say(f"hostile: {len(kinds)} kinds of Services beside {neighbours} well-behaved ones")
        await run_kinds(stage, kinds, told=tell_measured)
    worst = max(stage.measured, key=lambda each: each.wait_s)
    say(f"well-behaved Services waited at most {worst.wait_s:.2f} s, beside {worst.kind}")
    say(f"{stage.watch.log_mib:.2f} MiB of the provider's log")
    words = [
        f"services_kinds={len(kinds)} services_rss_mib={stage.watch.rss_mib:.0f}",
        f"services_stall_ms={stage.watch.stall_ms:.0f} services_wait_ms={1000 * worst.wait_s:.0f}",
    ]
    return words, sum(bool(each.problems) for each in stage.measured)


def tell_measured(found: Measured) -> None:
    """Print what one kind cost, and in a sentence each what it broke."""
    say(
        f"{found.kind}: {found.rss_mib:.0f} MiB, {found.stall_ms:.0f} ms, {found.wait_s:.2f} s "
        f"(the API server {found.api_s:.2f} s)"
    )
    for problem in found.problems:
        say(f"FAILED {found.kind}: {problem}")


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
