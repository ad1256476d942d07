"""Changes of leader among many guest clusters behind one Rancher of 140 requests a second: a SIMULATION.

    python -m tests.operator.handover_fleet [--guests 2000 --guests 10000]

The operators are the real program; API servers, networks and time are simulated. Each guest cluster has a floating IP,
and every twentieth uses another address by hand. A guest cluster comes at the moment at which the leader ends, by
SIGTERM or SIGKILL. Prints how long it waits for its address: with all that answer, with a few that hang, and with a
tenth that hangs. It returns 1 if one waits for more than 5 s after a SIGTERM or 20 s after a SIGKILL, or if an address
that is used by hand is assigned.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fipop.api import names
from fipop.interfaces import ApiRequest
from tests.harness.fleet import EVERY_GUEST, Fleet, Guest
from tests.harness.virtual_time import run_virtually

RANCHER_REQUESTS_PER_SECOND = 140.0
BY_HAND_EVERY = 20
NEW = "c-m-new"
FEW = 5
LIMITS: dict[str, tuple[Callable[..., Any], float]] = {
    "SIGTERM": (Fleet.stop, 5.0),
    "SIGKILL": (Fleet.kill, 20.0),
}
LONGEST_SECONDS = 1000.0
CLOCKS_SECONDS = 30.0
"""T is compared with when Rancher connected a guest cluster, by another clock."""


@dataclass(slots=True)
class Rancher:
    """Passes requests on, one after the other."""

    free_at: float = 0.0

    async def pass_on(self) -> None:
        """Let a request take its turn."""
        now = asyncio.get_running_loop().time()
        self.free_at = max(now, self.free_at) + 1 / RANCHER_REQUESTS_PER_SECOND
        await asyncio.sleep(self.free_at - now)


@dataclass(slots=True, kw_only=True)
class GuestBehind(Guest):
    """A guest cluster that only Rancher reaches."""

    rancher: Rancher

    async def before(self, request: ApiRequest) -> None:
        """Answer after Rancher passed the request on."""
        await self.rancher.pass_on()
        await Guest.before(self, request)


def address_of(number: int) -> str:
    return f"10.1.{number // 200}.{number % 200 + 10}"


def build(guests: int) -> Fleet:
    """Return a fleet that is served already."""
    fleet, rancher = Fleet(), Rancher()
    fleet.set_options(operateGuestClusterInterval="3600")
    fleet.add_range(iprange="10.1.0.0/16", clusterSelector=EVERY_GUEST)
    for number in range(guests):
        guest_id, text = f"c-m-{number}", address_of(number)
        fleet.guests[guest_id] = GuestBehind(id=guest_id, rancher=rancher)
        guest = fleet.add_guest(guest_id)
        guest.write_config_map(cidr_global=f"{text}/32")
        if number % BY_HAND_EVERY == 0:
            guest.add_service(address_of(guests + number))
        fleet.ask(guest_id, has=text)
        fleet.reserve(text, guest_id)
    fleet.guests[NEW] = GuestBehind(id=NEW, rancher=rancher)
    return fleet


async def live(guests: int, end: str, *, hanging: int = 0, from_start: bool = False) -> float:
    """Return how long a guest cluster waits for its address that comes when the leader ends."""
    fleet = build(guests)
    before = len(fleet.problems)
    hang = (
        [fleet.guests[f"c-m-{number}"] for number in range(0, guests, guests // hanging)] if hanging else []
    )
    for each in hang:
        each.hanging = from_start
    await fleet.pass_time(2 * CLOCKS_SECONDS)
    for _ in range(2):
        await fleet.start(resync_seconds=1e6)
    while not is_noted(fleet):
        await fleet.pass_time(1)
    for each in hang:
        each.hanging = True
    await LIMITS[end][0](fleet, fleet.leader)
    began = fleet.now
    fleet.add_guest(NEW, is_served=True)
    name = f"cluster-{NEW}{names.FLOATING_IP_SUFFIX}"
    while not is_served(fleet, name) and (fleet.now - began).total_seconds() < LONGEST_SECONDS:
        await fleet.pass_time(0.1)
    seconds = (fleet.now - began).total_seconds()
    by_hand = {text for guest in fleet.guests.values() for text in addresses_of(guest)}
    assert not by_hand & set(fleet.addresses(NEW, name)), "an address that is used by hand is assigned"
    assert fleet.problems[before:] == []
    return seconds


def is_noted(fleet: Fleet) -> bool:
    (lease,) = fleet.memory.of_kind("leases").values()
    return names.ANNOTATION_HANDOVER in (lease["metadata"].get("annotations") or {})


def is_served(fleet: Fleet, name: str) -> bool:
    return ("floatingips", NEW, name) in fleet.memory.objects and bool(fleet.addresses(NEW, name))


def addresses_of(guest: Guest) -> set[str]:
    ingress = [each["status"]["loadBalancer"]["ingress"] for each in guest.of_kind("services").values()]
    return {one["ip"] for each in ingress for one in each}


def main(arguments: Sequence[str]) -> int:
    """Change the leader; return 1 if a guest cluster waited for too long."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.operator.handover_fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--guests", type=int, action="append", help="default: 2000 and 10000")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    slow, longest = 0, dict.fromkeys(LIMITS, 0.0)
    for guests in options.guests or (2000, 10_000):
        tenth = guests // 10
        for end, hanging, from_start in (
            ("SIGTERM", 0, False),
            ("SIGKILL", 0, False),
            ("SIGKILL", FEW, False),
            ("SIGTERM", tenth, False),
            ("SIGTERM", tenth, True),
        ):
            began = time.monotonic()
            seconds = run_virtually(live(guests, end, hanging=hanging, from_start=from_start))
            slow += seconds > LIMITS[end][1]
            longest[end] = max(longest[end], seconds)
            harm = f", {hanging} hanging{' from the start' if from_start else ''}" if hanging else ""
            sys.stdout.write(f"{guests} guest clusters{harm}: {end}: an address after {seconds:.1f} s")
            sys.stdout.write(f" ({time.monotonic() - began:.0f} s of this machine)\n")
            sys.stdout.flush()
    figures = " ".join(f"{end.lower()}_s={seconds:.1f}" for end, seconds in longest.items())
    sys.stdout.write(f"changes of leader (in memory, no API server): {figures} slow={slow}\n")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
