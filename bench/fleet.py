"""How fast the operator is: new guests, bursts, passes over a large fleet.

Real: etcd, kube-apiserver, the operator as a process under the chart's access. Fake, since thousands of them do not
fit on one machine: the guests, which answer after 50 ms from memory (localfleet.simulated).

    python -m bench.fleet [--guests N] [--burst N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.client import ApiClient
from localfleet.fleet import LocalFleet
from localfleet.rancher_plan import REAL_ORDER, Guest, Step
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    floating_ips,
    open_stack,
)
from localfleet.waiting import eventually

BURST_NAMESPACES = 10
WRITERS = 32
DEADLINE_SECONDS = 300.0


async def main(guests: int, burst: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Fleet",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "etcd, kube-apiserver and the operator's process are real; the guests are simulated, 50 ms a request.",
        "All of it, the making of the guests too, shares the processors: waits are those of a machine that is full.",
        "",
    ]
    print("\n".join(lines), flush=True)
    async with LocalFleet() as fleet:
        settings = {"operateGuestClusterInterval": "3600"}
        async with open_stack(fleet, "bench", settings=settings) as stack:
            await stack.client.create(
                RANGES, build_range("bench", "10.0.0.0/14", harvester="harvester-cluster1")
            )
            await stack.client.create(RANGES, build_range("burst", "10.64.0.0/16"))
            async for line in measure(stack, guests, burst):
                lines.append(f"- {line}")
                print(lines[-1], flush=True)
    write_section("fleet", lines)


async def measure(stack: Stack, guests: int, burst: int) -> AsyncIterator[str]:
    """Give a line for each result, as soon as it is there."""
    bare = await time_bare_writes(stack, burst)
    yield f"bare writes of a burst of {burst}, no operator running: {bare:.2f} s"
    await stack.start_operator()
    took = await time_burst(stack, burst)
    yield f"burst of {burst} floating IPs: {took:.2f} s, {took / bare:.2f} times the bare writes"
    yield await bring_up_guests(stack, guests)
    for name, interval in (("first", "3599"), ("quiet", "3600")):
        yield await time_pass(stack, name, interval, guests)


async def in_parallel(work: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Do the work with a fixed number of writers."""
    pending = iter(work)

    async def write() -> None:
        for each in pending:
            await each()

    await asyncio.gather(*(write() for _ in range(WRITERS)))


async def time_bare_writes(stack: Stack, count: int) -> float:
    """Do what an allocation writes (create, reservation, spec, status) with no operator behind it, then undo it."""
    await stack.plane.create_namespace("bare")
    client = stack.client

    def one(number: int) -> Callable[[], Awaitable[None]]:
        address = f"192.168.{number // 250}.{number % 250 + 1}"

        async def write() -> None:
            path = floating_ips("bare")
            made = await client.create(path, build_floating_ip("bare", f"bare-{number}", range_name="none"))
            uid = made["metadata"]["uid"]
            await client.create(RESERVATIONS, build_reservation(address, f"bare-{number}", uid))
            await client.patch(f"{path}/bare-{number}", {"metadata": {"labels": {"step": "1"}}})
            await client.patch(f"{path}/bare-{number}", {"metadata": {"labels": {"step": "2"}}})

        return write

    began = time.monotonic()
    await in_parallel([one(number) for number in range(count)])
    took = time.monotonic() - began
    for path in (floating_ips("bare"), RESERVATIONS):
        await client.delete(path)
    return took


def build_reservation(address: str, name: str, uid: str) -> dict[str, Any]:
    """A reservation as the operator makes them, in a space of its own."""
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPReservation",
        "metadata": {"name": f"bare.{address}"},
        "spec": {
            "address": address,
            "space": "bare",
            "range": "none",
            "requested": "dynamic",
            "since": "2026-01-01T00:00:00Z",
            "owner": {"namespace": "bare", "name": name, "uid": uid, "cluster": "bare"},
        },
    }


async def time_burst(stack: Stack, count: int) -> float:
    """Create floating IPs at once; the time until the last one has its address."""
    for number in range(BURST_NAMESPACES):
        await stack.plane.create_namespace(f"burst-{number}")

    def one(number: int) -> Callable[[], Awaitable[Any]]:
        namespace = f"burst-{number % BURST_NAMESPACES}"
        body = build_floating_ip(namespace, f"burst-{number}", range_name="burst")
        return lambda: stack.client.create(floating_ips(namespace), body)

    began = time.monotonic()
    await in_parallel([one(number) for number in range(count)])

    async def all_held() -> bool:
        return await count_served(stack.client, "burst-") == count

    await eventually(all_held, seconds=DEADLINE_SECONDS, what="all floating IPs of the burst")
    return time.monotonic() - began


async def count_served(client: ApiClient, prefix: str) -> int:
    """Count the floating IPs whose status has an address."""
    items = await client.items(ALL_FLOATING_IPS)
    return sum(
        1
        for each in items
        if each["metadata"]["name"].startswith(prefix) and (each.get("status") or {}).get("addresses")
    )


async def bring_up_guests(stack: Stack, count: int) -> str:
    """Create guests by fixed writers; the time from each one's last object to its address."""
    order = [step for step in REAL_ORDER if step not in {Step.KUBECONFIG, Step.TOKEN}]
    served: dict[str, float] = {}
    guests: list[Guest] = []
    watching = asyncio.create_task(note_served(stack.client, served))

    def one(number: int) -> Callable[[], Awaitable[None]]:
        async def create() -> None:
            plan = stack.player.plan_guest(f"guest-{number}")
            guests.append(await stack.player.create_guest(plan, SimulatedGuest(), order=order))

        return create

    began = time.monotonic()
    await in_parallel([one(number) for number in range(count)])
    rate = count / (time.monotonic() - began)

    async def all_served() -> bool:
        return all(guest.cluster_id in served for guest in guests)

    await eventually(all_served, seconds=DEADLINE_SECONDS, what="an address for every guest")
    watching.cancel()
    waits = sorted(max(0.0, served[guest.cluster_id] - guest.changed_at) for guest in guests)
    p99 = waits[int(len(waits) * 0.99) - 1]
    for guest in guests:
        for step in (Step.KUBECONFIG, Step.TOKEN):
            stack.player._delays[step] = 0.0  # noqa: SLF001 - the wait that it plays is not what is measured
            await stack.player.take(guest, step)
    return (
        f"{count} new guests at {rate:.0f}/s: address p50 {statistics.median(waits):.3f} s, p99 {p99:.3f} s"
    )


async def note_served(client: ApiClient, served: dict[str, float]) -> None:
    """Note when each guest's floating IP has its address."""
    async for event in client.watch(ALL_FLOATING_IPS):
        found = event["object"]
        namespace = found["metadata"].get("namespace", "")
        if namespace not in served and (found.get("status") or {}).get("addresses"):
            served[namespace] = time.monotonic()


async def time_pass(stack: Stack, name: str, interval: str, count: int) -> str:
    """Make a pass over every guest at once, by a change of the settings."""
    for guest in stack.player.guests.values():
        stack.proxy.forget_requests(guest.cluster_id)
    began = time.monotonic()
    await stack.set_options(operateGuestClusterInterval=interval)

    async def all_visited() -> bool:
        return all(stack.proxy.requests_of(guest.cluster_id) for guest in stack.player.guests.values())

    await eventually(all_visited, seconds=DEADLINE_SECONDS, what=f"the {name} pass")
    took = time.monotonic() - began
    requests = sum(len(stack.proxy.requests_of(each.cluster_id)) for each in stack.player.guests.values())
    return f"{name} pass over {count} guests: {took:.1f} s, {requests / count:.1f} requests each"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--guests", type=positive, default=1000, help="new guests (default: %(default)s)")
    parser.add_argument(
        "--burst", type=positive, default=500, help="floating IPs at once (default: %(default)s)"
    )
    chosen = parser.parse_args()
    asyncio.run(main(chosen.guests, chosen.burst))
