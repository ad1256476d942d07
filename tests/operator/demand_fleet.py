"""1,000 guest clusters whose Services are listed, 100 of them active, at the pace of one Rancher: a SIMULATION.

    python -m tests.operator.demand_fleet [--guests 1000] [--active 100] [--minutes 10]

Prints how long new Services wait that have no spare floating IP, and how many requests a second go through Rancher.
It returns 1 if one of a hundred waits for more than 45 s, or if there are more requests than the pace allows.
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from random import Random

from tests.harness.api_in_memory import Json
from tests.harness.fleet import Fleet, Guest
from tests.harness.provider_stand_in import ProviderStandIn
from tests.harness.virtual_time import run_virtually

LONGEST_SECONDS = 45.0
PACE = 70
REQUEST_SECONDS = 0.007
"""A Rancher of 140 requests a second."""
PER_GUEST = {"minAllocate": 1, "preAllocate": 0, "maxAllocate": 4, "releaseAfterSeconds": 60}
BEGIN_SECONDS = 180.0


def address_of(number: int) -> str:
    return f"10.1.{number // 200}.{number % 200 + 10}"


def has_address(service: Json) -> bool:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return bool(balancer.get("ingress"))


async def use_services(guest: Guest, chance: Random, waits: list[float]) -> None:
    """Create a Service, wait until it has an address, use it for a while, and delete it; up to three at once."""
    loop, number = asyncio.get_running_loop(), 0
    while True:
        await asyncio.sleep(chance.uniform(10.0, 120.0))
        number += 1
        name, began = f"web-{number}", loop.time()
        guest.add_service(name=name)
        while not has_address(guest.objects["services", "default", name]):  # noqa: ASYNC110 - as a user looks
            await asyncio.sleep(0.1)
        waits.append(loop.time() - began)
        loop.call_later(chance.uniform(20.0, 200.0), guest.remove_service, name)


async def live(guests: int, active: int, minutes: float) -> tuple[list[float], float]:
    """Return the waits of Services, sorted, and the most requests in a second, of ten seconds."""
    fleet, waits = Fleet(), list[float]()
    fleet.add_range("pool", "10.1.0.0/16", perGuest=PER_GUEST, quarantineSeconds=1)
    for number in range(guests):
        guest_id = f"c-m-{number}"
        guest = fleet.add_guest(guest_id, is_served=True)
        guest.seconds = REQUEST_SECONDS
        guest.add_service(address_of(number), name="ingress")
        guest.write_config_map(cidr_global=f"{address_of(number)}/32")
        fleet.ask(guest_id, has=address_of(number))
        fleet.reserve(address_of(number), guest_id)
    await fleet.start(seconds=BEGIN_SECONDS)
    before = sum(each.asked for each in fleet.guests.values())
    tasks = []
    for number in range(active):
        guest = fleet.guests[f"c-m-{number}"]
        tasks.append(asyncio.create_task(ProviderStandIn(guest).run(0.1)))
        tasks.append(asyncio.create_task(use_services(guest, Random(number), waits)))
    most = 0.0
    for _ in range(int(minutes * 6)):
        await fleet.pass_time(10.0)
        now = sum(each.asked for each in fleet.guests.values())
        most, before = max(most, (now - before) / 10.0), now
    return sorted(waits), most


def main(arguments: Sequence[str]) -> int:
    """Run one life; return 1 if it was not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.demand_fleet")
    parser.add_argument("--guests", type=int, default=1000)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    waits, most = run_virtually(live(options.guests, options.active, options.minutes))
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    sys.stdout.write(
        f"demand (in memory, no API server): guests={options.guests} Services={len(waits)} p50={p50:.1f} s "
        f"p99={p99:.1f} s, at most {most:.0f} requests a second through Rancher\n"
    )
    return int(p99 > LONGEST_SECONDS or most > PACE + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
