"""Carry the simulation of the cloud provider on: python -m tests.scenarios.simulation.services [N] [--seed N].

A simulation: two providers made of the product's own parts, over an API server in memory.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from localfleet.arguments import positive
from tests.harness.service_life import Life

STEPS = 120
PROGRESS_SECONDS = 60.0


def carry_on(wanted: int, seed: int) -> tuple[int, int]:
    """Simulate lives until so many addresses were given out; that number, and how many violations there were."""
    done = violations = number = 0
    told = time.monotonic()
    while done < wanted:
        life = Life(seed * 1_000_003 + number)
        problems = asyncio.run(life.run(STEPS))
        number += 1
        done += life.judge.allocations
        violations += len(problems)
        for problem in problems[:5]:
            say(f"seed {seed * 1_000_003 + number - 1}: {problem}")
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            say(f"seed {seed}: {done} of {wanted} assignments simulated")
    return done, violations


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Simulate; 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.scenarios.simulation.services")
    parser.add_argument("assignments", nargs="?", type=positive, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    share = -(-options.assignments // options.processes)
    seeds = range(options.seed, options.seed + options.processes)
    with ProcessPoolExecutor(options.processes) as pool:
        ends = list(pool.map(carry_on, [share] * options.processes, seeds))
    done, violations = (sum(each) for each in zip(*ends, strict=True))
    say(f"simulation of services (in memory, no API server): assignments={done} violations={violations}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
