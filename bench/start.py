"""How soon a restarted operator is ready, and serves a new guest, where very many addresses are held.

Real: etcd, kube-apiserver, the operator as a process under the chart's access. Fake: the guests, which answer after
50 ms from memory (localfleet.simulated). What is held is written by this program; an operator that runs before the
measured one brings statuses and guests to rest.

    python -m bench.start [--floating-ips N] [--guests N]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address
from typing import Any

from bench.fleet import UP_TO_LINK, build_reservation, in_parallel, note_served
from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.fleet import LocalFleet
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
    open_stack,
)
from localfleet.waiting import eventually

FIRST = IPv4Address("10.0.0.1")
DEADLINE_SECONDS = 300.0
REST_SECONDS = 900.0


async def main(count: int, guests: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Start",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "etcd, kube-apiserver and the operator's process are real, the guests are simulated, 50 ms a request.",
        "An operator worked there before; the start is that of the next one's process.",
        "",
    ]
    async with (
        LocalFleet() as fleet,
        open_stack(fleet, "start", settings={"operateGuestClusterInterval": "3600"}) as stack,
    ):
        await stack.client.create(
            RANGES, build_range("bench", "10.0.0.0/14", skipEndIPs=False, avoidBuggyIPs=False)
        )
        await stack.client.create(RANGES, build_range("new", "10.64.0.0/16", harvester="harvester-cluster1"))
        await make_guests(stack, guests)
        await hold(stack, count)
        await come_to_rest(stack, count)
        lines.append(f"- {count} floating IPs, {guests} guests: {await time_start(stack)}")
    print("\n".join(lines), flush=True)
    write_section("start", lines)


async def make_guests(stack: Stack, count: int) -> None:
    """Have so many connected guests, each with an address of its own, as after years."""

    def one(number: int) -> Callable[[], Awaitable[Any]]:
        plan = stack.player.plan_guest(f"guest-{number}")
        return lambda: stack.player.create_guest(plan, SimulatedGuest())

    await in_parallel([one(number) for number in range(count)])


async def hold(stack: Stack, count: int) -> None:
    """Write floating IPs with their reservations and statuses, the same number in each guest."""
    namespaces = [(guest.cluster_id, guest.name) for guest in stack.player.guests.values()]

    def one(number: int) -> Callable[[], Awaitable[None]]:
        namespace, cluster = namespaces[number % len(namespaces)]
        first = number < len(namespaces)
        name = f"{cluster}-vip" if first else f"held-{number}"
        address = str(FIRST + number)

        async def write() -> None:
            path = floating_ips(namespace)
            spec = {} if first else {"serviceNamespace": f"n{number}"}
            body = build_floating_ip(
                namespace, name, range_name="bench", cluster=cluster, ipaddress=address, **spec
            )
            made = await stack.client.create(path, body)
            owner = {"namespace": namespace, "name": name, "uid": made["metadata"]["uid"], "cluster": cluster}
            body = build_reservation(address, owner, space="default", range_name="bench")
            await stack.client.create(RESERVATIONS, body)
            status = {
                "addresses": [address],
                "range": "bench",
                "addressSpace": "default",
                "observedGeneration": 1,
            }
            await stack.client.patch(f"{path}/{name}/status", {"status": status})

        return write

    await in_parallel([one(number) for number in range(count)])


async def come_to_rest(stack: Stack, count: int) -> None:
    """Have an operator work until every floating IP is ready."""
    operator = await stack.start_operator()

    async def are_ready() -> bool:
        found = await stack.client.items(ALL_FLOATING_IPS)
        ready = [each for each in found if condition(each, "Ready").get("status") == "True"]
        return len(ready) >= count

    await eventually(are_ready, seconds=REST_SECONDS, what="all floating IPs to be ready")
    await operator.stop()


async def time_start(stack: Stack) -> str:
    """Start the operator, and a new guest with it; when it is ready, and when the guest has its address."""
    served: dict[str, float] = {}
    watching = asyncio.create_task(note_served(stack.client, served))
    plan = stack.player.plan_guest("new-guest")
    guest = await stack.player.create_guest(plan, SimulatedGuest(), order=UP_TO_LINK)
    began = time.monotonic()
    await stack.start_operator()
    ready = time.monotonic() - began

    async def is_served() -> bool:
        return guest.cluster_id in served

    await eventually(is_served, seconds=DEADLINE_SECONDS, what="the address of the new guest")
    watching.cancel()
    return f"ready after {ready:.1f} s, a new guest's address {served[guest.cluster_id] - began:.1f} s after the start"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--floating-ips", type=positive, default=10_000, help="held (default: %(default)s)")
    parser.add_argument("--guests", type=positive, default=2000, help="simulated (default: %(default)s)")
    options = parser.parse_args()
    asyncio.run(main(options.floating_ips, options.guests))
