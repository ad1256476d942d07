"""Compare two versions of fipop by turns on one stack: starts, new guests, refreshed clusters, processor and memory.

    python -m bench.versions PROGRAM [--rounds N] [--guests N] [--floating-ips N] [--new N]

PROGRAM is the `fipop` of another checkout, such as ../old/.venv/bin/fipop. Each round measures it, then the one here.
Processor time tells most: both share the machine with etcd and kube-apiserver.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.costs import processor_seconds
from bench.fleet import (
    CREDENTIALS,
    bring_up_guests,
    come_to_rest,
    resident_mib,
    time_restart,
)
from bench.load import hold_addresses, make_guests
from bench.strain import cost_of_refreshes, count_lost_terms, half_speed
from localfleet.arguments import positive
from localfleet.fleet import LocalFleet
from localfleet.stack import RANGES, Stack, build_range, open_stack

PACE = 20.0
LISTED_AGAIN_SECONDS = 40.0
"""So long after a start all objects are listed once more: that is a cost of the start, and not of new guests."""


async def main(other: Path, *, rounds: int, guests: int, floating_ips: int, new: int) -> None:
    """Measure and print."""
    async with (
        LocalFleet() as fleet,
        open_stack(
            fleet,
            "versions",
            settings={"operateGuestClusterInterval": "3600", "guestRequestsPerSecond": "10000"},
        ) as stack,
    ):
        await stack.client.create(RANGES, build_range("bench", "10.0.0.0/14", harvester="harvester-cluster1"))
        await make_guests(stack, guests, first=0, credentials=CREDENTIALS)
        await hold_addresses(stack, floating_ips - guests, range_name="bench")
        await stack.start_operator()
        await come_to_rest(stack)
        for number in range(rounds):
            for name, program in (("other", other), ("this", None)):
                stack.installation = replace(stack.installation, program=program)
                figures = await measure(stack, first=guests + 1000 * len(stack.operators), new=new)
                print(f"round {number + 1}, {name}: " + ", ".join(figures), flush=True)


async def measure(stack: Stack, *, first: int, new: int) -> Sequence[str]:
    """Measure one version, from its start on."""
    restart = await time_restart(stack, hangs=False)
    operator = stack.operators[-1]
    until_served = processor_seconds(operator)
    await come_to_rest(stack)
    at_rest = processor_seconds(operator)
    await asyncio.sleep(LISTED_AGAIN_SECONDS)
    listed_again = processor_seconds(operator) - at_rest
    found: dict[str, float] = {}
    await bring_up_guests(stack, operator, range(first, first + new), PACE, found)
    await come_to_rest(stack)
    refreshes = await cost_of_refreshes(stack)
    rss = resident_mib(operator)
    async with half_speed(stack):
        await time_restart(stack, hangs=False)
        lost = count_lost_terms(stack)
    await come_to_rest(stack)
    return (
        f"ready {restart.ready:.1f} s",
        f"new address {restart.address - restart.ready:.1f} s later",
        f"processor {until_served:.1f} s until then and {at_rest:.1f} s until at rest",
        f"{listed_again:.1f} s for the lists after that",
        f"{found['cpu_ms_per_guest']:.1f} ms for each new guest",
        f"p99 {found['p99_20_per_s']:.3f} s",
        f"refreshes {100 * refreshes:.1f} % of a core",
        f"{rss:.0f} MiB",
        f"lead lost {lost} times at half the speed",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", metavar="PROGRAM", type=Path, help="the fipop of another checkout")
    for option, default, said in (
        ("--rounds", 3, "rounds"),
        ("--guests", 2000, "guests at the starts"),
        ("--floating-ips", 10_000, "floating IPs at the starts"),
        ("--new", 200, "new guests of a round"),
    ):
        parser.add_argument(option, type=positive, default=default, help=f"{said} (default: %(default)s)")
    chosen = vars(parser.parse_args())
    asyncio.run(main(chosen.pop("other").resolve(), **chosen))
