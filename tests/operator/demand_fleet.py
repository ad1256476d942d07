"""1,000 guest clusters whose Services are listed, 100 of them active, at the pace of one Rancher: a SIMULATION.

    python -m tests.operator.demand_fleet [--guests 1000] [--active 100] [--minutes 10] [--record]

The operator and a cloud provider in each active guest cluster are the real programs; API servers, networks and time are
simulated. Half of the active guest clusters have a spare floating IP (`preAllocate: 1`).
Prints how long new Services wait, with a spare address and without one, and how many requests a second go through
Rancher; --record writes that into bench/RESULTS.md. It returns 1 if one of a hundred waits for more than 0.5 s with a
spare address or 45 s without one, or if there are more requests than the pace allows.
"""

import argparse
import asyncio
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from bench.results import describe_machine, write_section
from fipop.cloudprovider.app import build_provider
from fipop.cloudprovider.options import ProviderOptions
from fipop.interfaces import ApiRequest
from localfleet.simulated import GUEST_KINDS
from tests.harness.api_in_memory import Json, Link
from tests.harness.fleet import Fleet, Guest
from tests.harness.virtual_time import VirtualClock, run_virtually

LONGEST_SECONDS, LONGEST_SPARE_SECONDS = 45.0, 0.5
PACE = 70
RANCHER_SECONDS = 0.007
"""A request to a guest cluster through a Rancher of 140 requests a second."""
REQUEST_SECONDS = 0.01
"""A request to the API server of the own cluster, of the operator and of cloud providers."""
LOOK_SECONDS = 0.01
PER_GUEST = {"minAllocate": 1, "maxAllocate": 4, "releaseAfterSeconds": 300}
RANGES = ("pool", "spare")
"""Of every second guest cluster; with the second one fipop keeps a spare floating IP."""
BEGIN_SECONDS = 180.0
ANNOTATION = "kube-vip.io/loadbalancerIPs"


@dataclass(slots=True)
class Waits:
    """How long new Services waited for an address, in seconds."""

    with_spare: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)


def address_of(number: int) -> str:
    return f"10.{1 + number % 2}.{number // 200}.{number % 200 + 10}"


def addresses_of(service: Json) -> set[str]:
    """Return what the provider assigned to a Service."""
    text = (service["metadata"].get("annotations") or {}).get(ANNOTATION) or ""
    return set(filter(None, text.split(",")))


def has_spare(guest: Guest) -> bool:
    """Whether the key of a guest cluster has an address for one Service more."""
    found = [addresses_of(each) for each in guest.of_kind("services").values()]
    return len(guest.addresses - set[str]().union(*found)) > sum(not each for each in found)


async def take_time(_request: ApiRequest) -> None:
    await asyncio.sleep(REQUEST_SECONDS)


def build_life(guest: Guest) -> asyncio.Task[None]:
    """Have fipop's cloud provider at work in a guest cluster."""
    link = Link(guest, before=take_time)
    provider = build_provider(
        ProviderOptions(identity=f"provider-{guest.id}", version="0", lease=None, port=None),
        api=lambda: link,
        clock=VirtualClock(),
        random=Random(guest.id),
    )
    return asyncio.create_task(provider.run())


async def use_services(guest: Guest, chance: Random, waits: Waits) -> None:
    """Create a Service, wait until it has an address, use it for a while, and delete it: as many at once as may be."""
    loop, number = asyncio.get_running_loop(), 0
    while True:
        await asyncio.sleep(chance.uniform(10.0, 120.0))
        if len(guest.of_kind("services")) >= PER_GUEST["maxAllocate"]:
            continue  # another one would wait for the limit
        number += 1
        key, began = ("services", "default", f"web-{number}"), loop.time()
        found = waits.with_spare if has_spare(guest) else waits.without
        guest.add_service(name=key[2])
        while not addresses_of(guest.objects[key]):  # noqa: ASYNC110 - as a user looks
            await asyncio.sleep(LOOK_SECONDS)
        found.append(loop.time() - began)
        loop.call_later(chance.uniform(20.0, 200.0), guest.delete, key)


async def live(guests: int, active: int, minutes: float) -> tuple[Waits, float]:
    """Return the waits of Services, and the most requests in a second, of ten seconds."""
    fleet, waits = Fleet(), Waits()
    for number, name in enumerate(RANGES):
        per_guest = {**PER_GUEST, "preAllocate": number}
        fleet.add_range(name, f"10.{1 + number}.0.0/16", perGuest=per_guest, quarantineSeconds=1)
    for number in range(guests):
        guest_id = f"c-m-{number}"
        fleet.guests[guest_id] = Guest(id=guest_id, kinds=GUEST_KINDS | {"leases"})
        guest = fleet.add_guest(guest_id, is_served=True)
        guest.seconds = RANCHER_SECONDS
        guest.add_service(name="ingress")
        guest.write_config_map(cidr_global=f"{address_of(number)}/32")
        key, text = ("services", "default", "ingress"), address_of(number)
        guest.put(key, {**guest.objects[key], "metadata": {"annotations": {ANNOTATION: text}}})
        range_name = RANGES[number % 2]
        fleet.ask(guest_id, has=text, range_name=range_name)
        fleet.reserve(text, guest_id, range_name=range_name)
    await fleet.start(seconds=BEGIN_SECONDS)
    fleet.link.before = take_time
    tasks = []
    for number in range(active):
        guest = fleet.guests[f"c-m-{number}"]
        tasks += [
            build_life(guest),
            asyncio.create_task(use_services(guest, Random(number), waits)),
        ]
    before, most = sum(each.asked for each in fleet.guests.values()), 0.0
    for _ in range(int(minutes * 6)):
        await fleet.pass_time(10.0)
        now = sum(each.asked for each in fleet.guests.values())
        most, before = max(most, (now - before) / 10.0), now
    assert not any(each.done() for each in tasks), "a cloud provider ended"
    return waits, most


def percentile(values: Iterable[float], part: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * part))]


def main(arguments: Sequence[str]) -> int:
    """Run one life; return 1 if it was not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.demand_fleet")
    parser.add_argument("--guests", type=int, default=1000)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--record", action="store_true", help="write bench/RESULTS.md")
    options = parser.parse_args(arguments)
    machine, began = describe_machine(), time.monotonic()
    logging.disable(logging.CRITICAL)
    waits, most = run_virtually(live(options.guests, options.active, options.minutes))
    spare, other = waits.with_spare, waits.without
    spare_p99, p99 = percentile(spare, 0.99), percentile(other, 0.99)
    last = (
        f"demand: guests={options.guests} active={options.active} spare_p99_s={spare_p99:.2f} p99_s={p99:.1f} "
        f"requests_per_s={most:.0f}"
    )
    listed = (
        f"- {options.guests} guest clusters, {options.active} of them active for {options.minutes:g} minutes"
    )
    lines = [
        "## Demand",
        "",
        f"Machine: {machine} at the start; {time.monotonic() - began:.0f} s.",
        "",
        "A simulation in virtual time: the operator and the cloud providers are the real programs. A request to a",
        f"guest cluster takes {RANCHER_SECONDS:g} s, one to the API server of the own cluster {REQUEST_SECONDS:g} s.",
        "",
        f"{listed}: at most {most:.0f} requests a second through Rancher",
        f"- {len(spare)} new Services with a spare address: p50 {percentile(spare, 0.5):.2f} s, p99 {spare_p99:.2f} s",
        f"- {len(other)} new Services without one: p50 {percentile(other, 0.5):.1f} s, p99 {p99:.1f} s",
        "",
        f"`{last}`",
    ]
    sys.stdout.write("\n".join([*lines[:-2], "", last, ""]))
    if options.record:
        write_section("demand", lines)
    return int(p99 > LONGEST_SECONDS or spare_p99 > LONGEST_SPARE_SECONDS or most > PACE + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
