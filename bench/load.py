"""The load that benchmarks put on a local fleet, and what they watch meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address
from typing import Any

from localfleet.client import ApiClient
from localfleet.rancher_plan import REAL_ORDER, Credential, Step
from localfleet.simulated import Capacity, SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    condition,
    floating_ips,
)

WRITERS = 32
FIRST = IPv4Address("10.1.0.1")
"""Of the addresses that are held: what a range gives out first lies below."""
UP_TO_LINK = REAL_ORDER[: REAL_ORDER.index(Step.LINK) + 1]
"""What Rancher does until a guest can get its floating IP."""


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


async def count_served(client: ApiClient, prefix: str, *, is_ready: bool = False) -> int:
    """Count the floating IPs whose status has an address, or of which all is well."""
    found = [
        each for each in await client.items(ALL_FLOATING_IPS) if each["metadata"]["name"].startswith(prefix)
    ]
    if is_ready:
        return sum(condition(each, "Ready").get("status") == "True" for each in found)
    return sum(bool((each.get("status") or {}).get("addresses")) for each in found)


async def note_served(client: ApiClient, served: dict[str, float]) -> None:
    """Note when each guest's floating IP has its address."""
    async for event in client.watch(ALL_FLOATING_IPS):
        found = event["object"]
        namespace = found["metadata"].get("namespace", "")
        if namespace not in served and (found.get("status") or {}).get("addresses"):
            served[namespace] = time.monotonic()


async def make_guests(
    stack: Stack, count: int, *, first: int, credentials: int, capacity: Capacity | None = None
) -> None:
    """Have so many more connected guests; with a `capacity`, all behind one Rancher."""
    harvester = stack.player.harvesters[0]
    shared = [Credential(name=f"cc-{number}", harvester=harvester) for number in range(credentials)]

    def one(number: int) -> Callable[[], Awaitable[Any]]:
        plan = stack.player.plan_guest(f"guest-{number}", credential=shared[number % credentials])
        return lambda: stack.player.create_guest(plan, SimulatedGuest(capacity=capacity))

    await in_parallel([one(number) for number in range(first, first + count)])


async def hold_addresses(stack: Stack, count: int, *, range_name: str) -> None:
    """Write floating IPs with their reservations and statuses, the same number in each guest, as after years."""
    namespaces = [(guest.cluster_id, guest.name) for guest in stack.player.guests.values()]

    def one(number: int) -> Callable[[], Awaitable[None]]:
        namespace, cluster = namespaces[number % len(namespaces)]
        name = f"held-{number}"
        address = str(FIRST + number)

        async def write() -> None:
            path = floating_ips(namespace)
            body = build_floating_ip(
                namespace,
                name,
                range_name=range_name,
                cluster=cluster,
                ipaddress=address,
                serviceNamespace=f"n{number}",
            )
            made = await stack.client.create(path, body)
            owner = {"namespace": namespace, "name": name, "uid": made["metadata"]["uid"], "cluster": cluster}
            body = build_reservation(address, owner, space="default", range_name=range_name)
            await stack.client.create(RESERVATIONS, body)
            status = {
                "addresses": [address],
                "range": range_name,
                "addressSpace": "default",
                "observedGeneration": 1,
            }
            await stack.client.patch(f"{path}/{name}/status", {"status": status})

        return write

    await in_parallel([one(number) for number in range(count)])
