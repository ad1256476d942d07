"""How fipop treats one Rancher of 140 requests a second: its pace, other clients, the gate, guest clusters that hang.

Real: etcd, kube-apiserver, the operator as a process under the chart's access. Fake: the guest clusters, whose requests
all go through one stand-in of Rancher, one after the other (localfleet.simulated.Capacity, after a real Rancher).

    python -m bench.rancher [--guests N] [--few N] [--new N]
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.fleet import (
    CREDENTIALS,
    DEADLINE_SECONDS,
    Figures,
    bring_up_guests,
    come_to_rest,
    hanging,
    p99_of,
    time_pass,
)
from bench.load import make_guests
from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.fleet import LocalFleet
from localfleet.simulated import Capacity, SimulatedGuest
from localfleet.stack import RANGES, Stack, build_floating_ip, build_range, floating_ips, open_stack
from localfleet.waiting import eventually

FEW_GUESTS_HANGING = 200
PER_SECOND_OF_OTHERS = 5.0
QUIET_SECONDS = 60.0
NEW_PER_SECOND = 2.0
WINDOW_SECONDS = 10


async def main(*, guests: int, few: int, new: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Rancher",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "All requests to guest clusters go through one stand-in of Rancher that serves 140 a second.",
        "",
    ]
    figures = Figures()
    async with LocalFleet() as fleet:
        settings = {"operateGuestClusterInterval": "3600"}
        async with open_stack(fleet, "rancher", settings=settings) as stack:
            await stack.client.create(
                RANGES, build_range("bench", "10.0.0.0/14", harvester="harvester-cluster1")
            )
            async for line in measure(stack, figures, guests=guests, few=few, new=new):
                lines.append(f"- {line}")
                print(lines[-1], flush=True)
    lines += ["", f"`{figures.line().replace('fleet:', 'rancher:')}`"]
    write_section("rancher", lines)


async def measure(stack: Stack, figures: Figures, *, guests: int, few: int, new: int) -> AsyncIterator[str]:
    """Give a line for each result, as soon as it is there."""
    found, capacity = figures.found, Capacity()
    await make_guests(stack, FEW_GUESTS_HANGING, first=0, credentials=CREDENTIALS, capacity=capacity)
    await stack.start_operator()
    await come_to_rest(stack)
    await time_pass(stack, "3599")
    calm = await time_pass(stack, "3600")
    with hanging(stack):
        hurt = await time_pass(stack, "3598")
    found["hang_ratio"] = hurt.p99 / calm.p99
    yield (
        f"{FEW_GUESTS_HANGING} guest clusters, of which a tenth hangs: the others are visited p99 {hurt.p99:.1f} s "
        f"after the begin of a pass, {found['hang_ratio']:.2f} times that without ({calm.p99:.1f} s)"
    )
    for count in (few, guests):
        await stack.operators[-1].stop()
        known = len(stack.player.guests)
        await make_guests(stack, count - known, first=known, credentials=CREDENTIALS, capacity=capacity)
        async with another_client(stack) as waits:
            await asyncio.sleep(QUIET_SECONDS)
        quiet = p99_of(sorted(waits))
        async with another_client(stack) as waits:
            gate = await time_gate(stack)
            await come_to_rest(stack)
        beside, most = p99_of(sorted(waits)), busiest(stack)
        found[f"gate_{count}_s"], found[f"most_per_s_{count}"] = gate, most
        found[f"others_ratio_{count}"] = beside / quiet
        yield (
            f"start with {count} guest clusters: the gate opens after {gate:.0f} s; at most {most:.0f} requests a "
            f"second over {WINDOW_SECONDS} s; another client's p99 {1000 * beside:.0f} ms, on a quiet Rancher "
            f"{1000 * quiet:.0f} ms: {beside / quiet:.2f} times"
        )
    passing = asyncio.create_task(time_pass(stack, "3597"))
    begin = len(stack.player.guests)
    yield "during a pass over all: " + await bring_up_guests(
        stack, stack.operators[-1], range(begin, begin + new), NEW_PER_SECOND, found
    )
    whole = await passing
    yield f"that pass: {whole.whole:.0f} s"


@asynccontextmanager
async def another_client(stack: Stack) -> AsyncIterator[list[float]]:
    """Ask Rancher meanwhile as another client does, for one small object; gives how long each answer took."""
    waits: list[float] = []
    guest = next(iter(stack.player.guests.values()))
    target = stack.proxy.guests[guest.cluster_id].target
    assert isinstance(target, SimulatedGuest)

    async def ask() -> None:
        began = time.monotonic()
        await target.answer("GET", "/version", {}, "application/json", "", b"")
        waits.append(time.monotonic() - began)

    async def go_on() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(ask())
                await asyncio.sleep(1 / PER_SECOND_OF_OTHERS)

    going = asyncio.create_task(go_on())
    try:
        yield waits
    finally:
        going.cancel()
        await asyncio.wait([going])


async def time_gate(stack: Stack) -> float:
    """Start the operator and return the seconds until a dynamic floating IP has an address that nobody held before."""
    namespace = next(iter(stack.player.guests))
    name = f"probe-{len(stack.operators)}"
    for route in stack.proxy.guests.values():
        route.requests.clear()
    began = time.monotonic()
    await stack.start_operator()
    body = build_floating_ip(namespace, name, range_name="bench", cluster=stack.player.guests[namespace].name)
    await stack.client.create(floating_ips(namespace), body)

    async def is_served() -> bool:
        return bool(((await stack.floating_ip(namespace, name)).get("status") or {}).get("addresses"))

    await eventually(is_served, seconds=DEADLINE_SECONDS, what="an address for the floating IP")
    took = time.monotonic() - began
    await stack.client.delete(f"{floating_ips(namespace)}/{name}")
    return took


def busiest(stack: Stack) -> float:
    """Return the most requests a second through Rancher, over ten seconds."""
    times = sorted(each.at for route in stack.proxy.guests.values() for each in route.requests)
    in_second = Counter(int(at) for at in times)
    return max(
        sum(in_second[second + more] for more in range(WINDOW_SECONDS)) / WINDOW_SECONDS
        for second in in_second
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default, said in (
        ("--guests", 2000, "guest clusters at the second start"),
        ("--few", 600, "guest clusters at the first start"),
        ("--new", 60, "new guest clusters during a pass"),
    ):
        parser.add_argument(option, type=positive, default=default, help=f"{said} (default: %(default)s)")
    asyncio.run(main(**vars(parser.parse_args())))
