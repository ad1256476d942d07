"""How an admin splits an address space after kube-fip-operator: the steps of docs/how-to/split-an-address-space.md."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.fleet import LocalFleet
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
from tests.api.predecessor import make_reservations_younger

EAST, WEST = "c-m-east1", "c-m-west1"
V4, V6 = "10.7.0.0/24", "fd00:7::/64"
KEPT = {
    "duplicate": ["10.7.0.10"],
    "both": ["10.7.0.11", "fd00:7::b"],
    "static": ["10.7.0.12"],
    "outside": ["10.8.0.9"],
}
"""What the guests of the second network carry."""


@pytest_asyncio.fixture
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    async with open_stack(fleet, "split") as stack:
        yield stack


async def _make_predecessors_objects(stack: Stack) -> None:
    """Two networks with the same addresses, in one space: kube-fip-operator gave each to one guest of each network."""
    for name in ("east", "west"):
        await stack.client.create(RANGES, build_range(name, f"{V4},{V6}", quarantineSeconds=1))
    for guest_id in (EAST, WEST):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": guest_id}}
        await stack.client.create("/api/v1/namespaces", namespace)
    own: dict[str, Any] = {"range_name": "east", "ipaddress": "10.7.0.10"}
    await stack.client.create(floating_ips(EAST), build_floating_ip(EAST, "a-first", **own))
    for name, addresses in KEPT.items():
        body = build_floating_ip(WEST, name, range_name="west", ipaddress=",".join(addresses))
        await stack.client.create(floating_ips(WEST), body)


async def _allocated(stack: Stack, name: str, namespace: str = WEST) -> tuple[str, list[str], str]:
    """The reason of the condition, and what the status names in which space."""
    found = await stack.floating_ip(namespace, name)
    status = found.get("status") or {}
    return (
        condition(found, "Allocated").get("reason", ""),
        status.get("addresses") or [],
        status.get("addressSpace") or "",
    )


@pytest.mark.slow
async def test_an_address_space_is_split_by_the_procedure_of_the_documentation(stack: Stack) -> None:
    await _make_predecessors_objects(stack)
    await make_reservations_younger(stack)
    await stack.start_operator()

    async def is_adopted() -> bool:
        assert await _allocated(stack, "duplicate") == ("AddressOutOfRange", [], ""), "the older range has it"
        for name in ("both", "static", "outside"):
            assert await _allocated(stack, name) == ("Allocated", KEPT[name], "default")
        return True

    await eventually(is_adopted, seconds=30)

    async def conflicts() -> bool:
        old = await stack.client.get(f"{RANGES}/west")
        return condition(old, "Conflict").get("status") == "True"

    await eventually(conflicts, seconds=30)

    # 1. and 2.: the same pool, with what the old range no longer had.
    await stack.client.create(
        RANGES,
        build_range("west-2", f"{V4},{V6},10.8.0.9", quarantineSeconds=1, addressSpace="west"),
    )

    async def counts_what_is_outside() -> bool:
        found = await stack.client.get(f"{RANGES}/west")
        return bool(found["status"]["capacity"]["outOfRange"])

    await eventually(counts_what_is_outside)

    # 3.
    for name in KEPT:
        body = {"metadata": {"annotations": {"fiprange": "west-2"}}}
        await stack.client.patch(f"{floating_ips(WEST)}/{name}", body)

    async def have_moved() -> bool:
        for name, addresses in KEPT.items():
            assert await _allocated(stack, name) == ("Allocated", addresses, "west")
        return True

    await eventually(have_moved, seconds=20)
    assert await _allocated(stack, "a-first", EAST) == ("Allocated", ["10.7.0.10"], "default")

    # 4.
    async def is_empty() -> bool:
        capacity = (await stack.client.get(f"{RANGES}/west"))["status"]["capacity"]
        return not (capacity["used"] or capacity["quarantined"] or capacity["outOfRange"])

    await eventually(is_empty, seconds=240)  # a quarantine lasts at least 90 s
    await stack.client.delete(f"{RANGES}/west")

    # 5.
    patch = {"metadata": {"annotations": {"harvesterClusterName": "harvester-west"}}}
    await stack.client.patch(f"{RANGES}/west-2", patch)
    for each in await stack.client.items(ALL_FLOATING_IPS):
        assert condition(each, "Allocated")["status"] == "True"
    held = {each["metadata"]["name"] for each in await stack.client.items(RESERVATIONS)}
    assert held == {
        "default.10.7.0.10",
        "west.10.7.0.10",
        "west.10.7.0.11",
        "west.fd00000700000000000000000000000b",
        "west.10.7.0.12",
        "west.10.8.0.9",
    }
