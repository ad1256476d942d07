"""Carry the simulation on: python -m tests.scenarios.simulation [ALLOCATIONS] [--seed N] [--processes N].

A simulation: two operators made of the product's own reconcilers, over an API server in memory.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from localfleet.arguments import positive
from tests.scenarios.simulation.chosen import Chosen, interleavings, operators
from tests.scenarios.simulation.life import Simulation

LIFE = 100
"""Allocations of one simulation; then its troubles end, and it must come to rest."""

PROGRESS_SECONDS = 60.0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def carry_on(wanted: int, seed: int) -> tuple[int, bool]:
    """Simulate lives until so many addresses were given out, or a violation, which is told at once.

    Gives the number of addresses, and whether all went well.
    """
    done = 0
    told = time.monotonic()

    @seeded(seed)
    @settings(
        max_examples=-(-wanted // LIFE),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(chance=interleavings(LIFE), size=operators())
    def live(chance: Chosen, size: int) -> None:
        nonlocal done, told
        simulation = Simulation(chance, size=size)
        simulation.run(LIFE)
        problems = [*map(str, simulation.memory.judge.found), *simulation.settle()]
        problems = problems or [*map(str, simulation.memory.judge.found)]
        assert not problems, "\n".join(problems[:20])
        done += simulation.memory.allocations
        if time.monotonic() - told > PROGRESS_SECONDS:
            told = time.monotonic()
            say(f"seed {seed}: {done} of {wanted} allocations simulated")

    try:
        live()
    except AssertionError as error:
        say("\n".join([f"seed {seed}: {error}", *getattr(error, "__notes__", ())]))
        return done, False
    if done < wanted:
        say(f"seed {seed}: hypothesis ended after {done} allocations")
    return done, done >= wanted


def main(options: argparse.Namespace) -> int:
    share = -(-options.allocations // options.processes)
    seeds = range(options.seed, options.seed + options.processes)
    with ProcessPoolExecutor(options.processes) as pool:
        ends = list(pool.map(carry_on, [share] * options.processes, seeds))
    done = sum(count for count, _ in ends)
    violations = sum(not went_well for _, went_well in ends)
    say(f"simulation (in memory, no API server): allocations={done} violations={violations}")
    return 1 if violations else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.scenarios.simulation",
        description="Two operators over an API server in memory; hypothesis chooses what goes on next.",
    )
    parser.add_argument("allocations", type=positive, nargs="?", default=10_000, help="default: 10000")
    parser.add_argument("--seed", type=int, default=1, help="of the first process; the next takes the next")
    parser.add_argument("--processes", type=positive, default=os.cpu_count() or 1, help="default: one a core")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
