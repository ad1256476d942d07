"""How fast the operator is: new guests, bursts, passes over a large fleet.

Real: etcd, kube-apiserver, the operator as a process under the chart's access. Fake, since thousands of them do not
fit on one machine: the guests, which answer after 50 ms from memory (localfleet.simulated).

    python -m bench.fleet [--guests N] [--pace N] [--burst N]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.client import ApiClient
from localfleet.fleet import LocalFleet
from localfleet.installation import OperatorProcess
from localfleet.observation import parse_metrics
from localfleet.rancher_plan import REAL_ORDER, Step
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
UP_TO_LINK = REAL_ORDER[: REAL_ORDER.index(Step.LINK) + 1]
"""What Rancher does until a guest can get its floating IP."""


async def main(guests: int, pace: int, burst: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Fleet",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        "etcd, kube-apiserver and the operator's process are real; the guests are simulated, 50 ms a request.",
        "All of it, the making of the guests too, shares the processors.",
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
            async for line in measure(stack, guests, pace, burst):
                lines.append(f"- {line}")
                print(lines[-1], flush=True)
    write_section("fleet", lines)


async def measure(stack: Stack, guests: int, pace: int, burst: int) -> AsyncIterator[str]:
    """Give a line for each result, as soon as it is there."""
    bare = await time_bare_writes(stack, burst)
    yield f"bare writes of a burst of {burst}, no operator running: {bare:.2f} s"
    operator = await stack.start_operator()
    took = await time_burst(stack, burst)
    yield f"burst of {burst} floating IPs: {took:.2f} s, {took / bare:.2f} times the bare writes"
    yield await bring_up_guests(stack, operator, guests, pace)
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
            owner = {
                "namespace": "bare",
                "name": f"bare-{number}",
                "uid": made["metadata"]["uid"],
                "cluster": "bare",
            }
            body = build_reservation(address, owner, space="bare", range_name="none")
            await client.create(RESERVATIONS, body)
            await client.patch(f"{path}/bare-{number}", {"metadata": {"labels": {"step": "1"}}})
            await client.patch(f"{path}/bare-{number}", {"metadata": {"labels": {"step": "2"}}})

        return write

    began = time.monotonic()
    await in_parallel([one(number) for number in range(count)])
    took = time.monotonic() - began
    for path in (floating_ips("bare"), RESERVATIONS):
        await client.delete(path)
    return took


def build_reservation(address: str, owner: dict[str, str], *, space: str, range_name: str) -> dict[str, Any]:
    """A reservation of a chosen address as the operator makes them."""
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPReservation",
        "metadata": {"name": f"{space}.{address}"},
        "spec": {
            "address": address,
            "space": space,
            "range": range_name,
            "requested": "dynamic",
            "since": "2026-01-01T00:00:00Z",
            "owner": owner,
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


async def bring_up_guests(stack: Stack, operator: OperatorProcess, count: int, per_second: float) -> str:
    """Create guests at a fixed pace; the time from each one's last link to its address, and what it costs.

    The next guest does not wait for the ones before: where the operator falls behind, waits grow.
    """
    linked: dict[str, float] = {}
    served: dict[str, float] = {}
    watching = asyncio.create_task(note_served(stack.client, served))

    async def create(number: int) -> None:
        plan = stack.player.plan_guest(f"guest-{number}")
        guest = await stack.player.create_guest(plan, SimulatedGuest(), order=UP_TO_LINK)
        linked[guest.cluster_id] = guest.changed_at
        for step in REAL_ORDER[len(UP_TO_LINK) :]:
            await stack.player.take(guest, step)

    before = await read_costs(operator)
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            await asyncio.sleep(began + number / per_second - time.monotonic())
            group.create_task(create(number))
    rate = count / (time.monotonic() - began)

    async def all_served() -> bool:
        return linked.keys() <= served.keys()

    await eventually(all_served, seconds=DEADLINE_SECONDS, what="an address for every guest")
    watching.cancel()
    cost = await read_costs(operator) - before
    waits = sorted(max(0.0, served[guest_id] - at) for guest_id, at in linked.items())
    p99 = waits[int(len(waits) * 0.99) - 1]
    return (
        f"{count} new guests at {rate:.0f}/s: address p50 {statistics.median(waits):.3f} s, p99 {p99:.3f} s; "
        f"of the operator {1000 * cost.processor_seconds / count:.0f} ms of processor time, "
        f"{cost.requests / count:.1f} requests to Rancher and {cost.guest_requests / count:.1f} to the guest each"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What an operator has cost so far; `requests` to the management cluster, watches apart."""

    processor_seconds: float
    requests: float
    guest_requests: float

    def __sub__(self, earlier: Costs) -> Costs:
        return Costs(
            processor_seconds=self.processor_seconds - earlier.processor_seconds,
            requests=self.requests - earlier.requests,
            guest_requests=self.guest_requests - earlier.guest_requests,
        )


async def read_costs(operator: OperatorProcess) -> Costs:
    """Read them from its metrics."""
    samples = parse_metrics(await operator.metrics())

    def total(name: str, **labels: str) -> float:
        return sum(
            each.value for each in samples if each.name == name and labels.items() <= each.labels.items()
        )

    return Costs(
        processor_seconds=total("process_cpu_seconds_total"),
        requests=total("fipop_api_requests_total", target="management"),
        guest_requests=total("fipop_api_requests_total", target="guest"),
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
        "--pace", type=positive, default=10, help="new guests a second (default: %(default)s)"
    )
    parser.add_argument(
        "--burst", type=positive, default=500, help="floating IPs at once (default: %(default)s)"
    )
    chosen = parser.parse_args()
    asyncio.run(main(chosen.guests, chosen.pace, chosen.burst))
