"""Carry the simulation on: python -m tests.unit.simulation [ALLOCATIONS] [FIRST SEED]."""

import sys
import time
from random import Random

from tests.unit.simulation.operators import Simulation

EACH = 2_000


def main(wanted: int, seed: int) -> int:
    began, done = time.monotonic(), 0
    while done < wanted:
        simulation = Simulation(Random(seed))
        simulation.run(min(EACH, wanted - done))
        problems = [*map(str, simulation.memory.judge.found), *simulation.settle()]
        if problems:
            sys.stdout.write("\n".join([f"seed {seed}:", *problems[:20], ""]))
            return 1
        done += simulation.memory.allocations
        seed += 1
        if seed % 10 == 0:
            rate = done / (time.monotonic() - began)
            sys.stdout.write(f"{done} allocations simulated, {rate:.0f}/s\n")
            sys.stdout.flush()
    sys.stdout.write(f"simulation (in memory, no API server): allocations={done} violations=0\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or ["10000"])[0]), int((sys.argv[2:] or ["1"])[0])))
