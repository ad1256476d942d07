"""2,000 guest clusters whose addresses Services use, at the pace of one Rancher: a SIMULATION.

    python -m tests.operator.announced_fleet [--guests 2000] [--record]

The operator is the real program; API servers, helm, networks and time are simulated. Each guest cluster runs fipop's
kube-vip, which announces its address. Prints how long a pass over all of them takes, with how many requests each, and
how long it takes at the default interval until the condition shows that kube-vip was killed; --record writes that into
bench/RESULTS.md. It returns 1 if a quiet pass takes longer than 220 s or sends more than 7 requests to one, or if a
fault is shown later than docs/concepts/announced-addresses.md says.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bench.results import describe_machine, write_section
from fipop.interfaces import ApiRequest
from tests.harness.fleet import Fleet
from tests.harness.virtual_time import run_virtually

LONGEST_PASS_SECONDS, MOST_REQUESTS = 220.0, 7
INTERVAL, PACE = 480, 70
LONGEST_FAULT_SECONDS = INTERVAL + 30.0 + 40.0 + 10.0
"""The interval, the time for which a killed kube-vip counts as alive, until the second reading, and their turns."""
RANCHER_SECONDS = 0.007
"""A request to a guest cluster through a Rancher of 140 requests a second."""
REQUEST_SECONDS = 0.01
"""A request to the API server of the own cluster."""
START_SECONDS, SETTLE_SECONDS, HOUR_SECONDS = 900.0, 60.0, 3700.0
KILLED = 100
KILLED_WITHIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """How long a pass took, and the most requests that one guest cluster got."""

    seconds: float
    requests: int


async def take_time(_request: ApiRequest) -> None:
    await asyncio.sleep(REQUEST_SECONDS)


async def install(guests: int, *, racks: int = 1, **options: str) -> Fleet:
    """Return a fleet in which kube-vip is installed, in guest clusters of so many racks."""
    fleet = Fleet()
    fleet.add_range("pool", "10.1.0.0/16")
    for number in range(guests):
        guest_id = f"c-m-{number}"
        fleet.add_guest(guest_id)
        fleet.opt_in(guest_id, rack=f"rack-{number % racks}")
        fleet.ask(guest_id)
    fleet.helm.seconds = 0.1
    fleet.set_options(
        kubevipRolloutType="All", helmConcurrency="16", guestRequestsPerSecond="1000", **options
    )
    await fleet.start(seconds=START_SECONDS, leader_election=False, resync_seconds=1e6)
    assert all(set(each.releases.values()) == {"deployed"} for each in fleet.guests.values())
    return fleet


async def come_up(guests: int) -> Fleet:
    """Return a fleet whose addresses are announced, an hour later."""
    fleet = await install(guests, operateGuestClusterInterval="36000")
    for guest_id, guest in fleet.guests.items():
        guest.seconds = RANCHER_SECONDS
        guest.announce(*fleet.addresses(guest_id))
    fleet.link.before = take_time
    fleet.set_options(guestRequestsPerSecond=str(PACE))
    await fleet.pass_time(HOUR_SECONDS)
    return fleet


async def time_pass(fleet: Fleet, interval: int) -> Pass:
    """Have all guest clusters visited, as an option that changes does."""
    before = {each.id: each.asked for each in fleet.guests.values()}
    sessions, began = fleet.sessions.copy(), fleet.now
    fleet.set_options(operateGuestClusterInterval=str(interval))
    asked = dict.fromkeys(before, 0)
    # A guest cluster was visited when it was asked and is asked no more.
    while True:
        await fleet.pass_time(1.0)
        former, asked = asked, {each.id: each.asked - before[each.id] for each in fleet.guests.values()}
        if former == asked and all(asked.values()):
            break
    assert all(fleet.sessions[each] == sessions[each] + 1 for each in fleet.guests)
    return Pass(seconds=(fleet.now - began).total_seconds() - 1.0, requests=max(asked.values()))


async def time_faults(fleet: Fleet, chance: Random) -> list[float]:
    """Kill kube-vip in some guest clusters, and return after how long the condition shows each."""
    loop = asyncio.get_running_loop()

    async def kill(guest_id: str) -> float:
        await asyncio.sleep(chance.uniform(0.0, KILLED_WITHIN_SECONDS))
        fleet.guests[guest_id].renew_lease()
        fleet.guests[guest_id].leader, began = "", loop.time()
        while fleet.condition(guest_id, "Announced")[0] != "False":  # noqa: ASYNC110 - as a user looks
            await asyncio.sleep(1.0)
        return loop.time() - began

    killed = chance.sample(sorted(fleet.guests), min(KILLED, len(fleet.guests)))
    return sorted(await asyncio.gather(*map(kill, killed)))


async def live(guests: int) -> tuple[Pass, Pass, list[float]]:
    """Return a pass that reads nodes too, a quiet one, and after how long each fault was shown."""
    fleet = await come_up(guests)
    machines = await time_pass(fleet, 36_001)
    await fleet.pass_time(SETTLE_SECONDS)
    quiet = await time_pass(fleet, 36_000)
    shown = {fleet.condition(each, "Announced") for each in fleet.guests}
    assert shown == {("True", "Announced")}, shown
    fleet.set_options(operateGuestClusterInterval=str(INTERVAL))
    await fleet.pass_time(2 * INTERVAL)
    faults = await time_faults(fleet, Random(1))
    assert fleet.problems == [], fleet.problems[:3]
    return machines, quiet, faults


def main(arguments: Sequence[str]) -> int:
    """Measure; return 1 if it was not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.announced_fleet")
    parser.add_argument("--guests", type=int, default=2000)
    parser.add_argument("--record", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args(arguments)
    machine, began = describe_machine(), time.monotonic()
    logging.disable(logging.CRITICAL)
    machines, quiet, faults = run_virtually(live(options.guests))
    median, longest = faults[len(faults) // 2], faults[-1]
    last = (
        f"announced: guests={options.guests} pass_s={quiet.seconds:.0f} requests={quiet.requests} "
        f"pass_with_nodes_s={machines.seconds:.0f} fault_s={longest:.0f}"
    )
    killed = f"kube-vip is killed in {len(faults)} of them, with an interval of {INTERVAL} s"
    lines = [
        "## Announced addresses",
        "",
        f"Machine: {machine} at the start; {time.monotonic() - began:.0f} s.",
        "",
        f"A simulation in virtual time of {options.guests} guest clusters with fipop's kube-vip, whose addresses",
        f"Services use. The operator is the real program, at {PACE} requests a second. A request to a guest cluster",
        f"takes {RANCHER_SECONDS:g} s.",
        "",
        f"- a quiet pass over all: {quiet.seconds:.0f} s, at most {quiet.requests} requests each",
        f"- one that reads nodes, too, as once an hour: {machines.seconds:.0f} s, at most {machines.requests} each",
        f"- {killed}: shown after p50 {median:.0f} s, at most {longest:.0f} s",
        "",
        f"`{last}`",
    ]
    sys.stdout.write("\n".join([*lines[:-2], "", last, ""]))
    if options.record:
        write_section("announced", lines)
    is_slow = quiet.seconds > LONGEST_PASS_SECONDS or quiet.requests > MOST_REQUESTS
    return int(is_slow or longest > LONGEST_FAULT_SECONDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
