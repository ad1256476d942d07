"""Faults of real kube-vips on two nodes: `fipop status` names each within two minutes, with a remedy that works.

What a condition says is held against the truth: which nodes have the address. The operator visits each second here;
what its default interval adds stands in docs/concepts/announced-addresses.md.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import ApiClient, Json
from localfleet.stack import condition
from localfleet.waiting import eventually
from localfleet.wire import NODES, Wire, find_kube_vip, find_obstacle, open_wire
from tests.api.cli.conftest import Seen

OBSTACLE = find_obstacle()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("installs"),
    pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE or "none"),
]
SERVICE = "/api/v1/namespaces/default/services/web"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/plndr-svcs-lock"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
STRANGER = "a-stranger"
TOLD_SECONDS = 120.0
TAKEOVER_SECONDS = 40
COMMAND = re.compile(r"Run (kubectl [^.]+) there\.")


@pytest_asyncio.fixture
async def wire(seen: Seen, tmp_path: Path) -> AsyncIterator[Wire]:
    """Have kube-vip on both nodes, and a Service with an endpoint on each that uses the floating IP."""
    assert seen.guest.plane is not None
    program = await asyncio.to_thread(find_kube_vip)
    async with open_wire(seen.guest.plane, tmp_path, program) as wire:
        for node in NODES:
            await wire.start(node)
        await serve(seen)
        await until_taken(seen, wire)
        yield wire
    for path in (SERVICE, f"{SLICE}/web-1", LEASE):
        if await seen.guest.client.find(path) is not None:
            await seen.guest.client.delete(path)


async def serve(seen: Seen, **annotations: str) -> None:
    """Have the Service, as a cloud provider leaves it, with its endpoints."""
    metadata = {
        "name": "web",
        "annotations": {"kube-vip.io/loadbalancerIPs": seen.address, **annotations},
        "labels": {"implementation": "kube-vip"},
    }
    spec = {"type": "LoadBalancer", "loadBalancerIP": seen.address, "ports": [{"port": 80}]}
    await seen.guest.client.create(
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
    )
    endpoints: list[dict[str, Any]] = [
        {"addresses": [f"10.42.0.{number}"], "nodeName": node, "conditions": {"ready": True, "serving": True}}
        for number, node in enumerate(NODES, start=1)
    ]
    await seen.guest.client.create(
        SLICE,
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            "endpoints": endpoints,
        },
    )


async def announced(seen: Seen, name: str | None = None) -> Json:
    return condition(await seen.guest.floating_ip(name), "Announced")


async def until_announced(
    seen: Seen, wire: Wire, status: str = "True", reason: str = "Announced", *, name: str | None = None
) -> str:
    """Wait until the condition has a status and a reason; its message. What kube-vip wrote is in the error."""

    async def is_so() -> str:
        found = await announced(seen, name)
        assert (found["status"], found["reason"]) == (status, reason), found
        return str(found["message"])

    try:
        return await eventually(is_so, seconds=TOLD_SECONDS, what=f"Announced to be {status} {reason}")
    except Exception as error:
        raise AssertionError(f"{error}\n{wire.logs()}") from error


async def until_taken(seen: Seen, wire: Wire, address: str = "", *, name: str | None = None) -> None:
    """Wait until one node has the address, and the condition names it: the test before can have left it True."""

    async def is_so() -> bool:
        nodes, message = (
            wire.nodes_of(address or seen.address),
            (await announced(seen, name)).get("message", ""),
        )
        return len(nodes) == 1 and f"Node {nodes[0]} announces" in message

    try:
        await eventually(is_so, seconds=TOLD_SECONDS, what="kube-vip to take the address")
    except Exception as error:
        raise AssertionError(f"{error}\n{wire.logs()}") from error


async def told(seen: Seen, wire: Wire, reason: str, *, name: str | None = None) -> str:
    """Wait until the condition is False with a reason, and return what `fipop status` says of it."""
    await until_announced(seen, wire, "False", reason, name=name)
    ended = await seen.commands.run("status", "-o", "json")
    assert ended.code == 1
    found = [each for each in ended.json()["problems"] if each["condition"] == "Announced"]
    assert [each["reason"] for each in found] == [reason]
    return str(found[0]["message"])


async def stays_announced(seen: Seen) -> None:
    """Let the time of a takeover pass, in which no fault is shown."""
    shown = set()
    for _ in range(TAKEOVER_SECONDS):
        shown.add((await announced(seen))["reason"])
        await asyncio.sleep(1)
    assert shown == {"Announced"}


async def follow_advice(seen: Seen, wire: Wire, message: str) -> None:
    """Type the command of a message. There is no kubelet: kube-vips are restarted if the DaemonSet says so."""
    assert seen.guest.plane is not None
    command = COMMAND.search(message)
    assert command is not None, message

    async def generations() -> list[int]:
        found = await seen.guest.client.items(DAEMON_SETS)
        return [each["metadata"]["generation"] for each in found]

    before = await generations()
    await seen.guest.plane.kubectl(*command[1].split()[1:])
    assert sum(await generations()) == sum(before) + 1
    await wire.restart()


async def write_lease(client: ApiClient) -> None:
    """Write the Lease as a program does that has nothing to do with kube-vip's."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await client.patch(LEASE, {"spec": {"holderIdentity": STRANGER, "acquireTime": now, "renewTime": now}})


@asynccontextmanager
async def stranger(client: ApiClient) -> AsyncIterator[None]:
    """Have another program hold the Lease and renew it."""

    async def hold() -> None:
        while True:
            await write_lease(client)
            await asyncio.sleep(2)

    task = asyncio.create_task(hold())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_an_address_that_a_node_announces_is_on_that_node(seen: Seen, wire: Wire) -> None:
    (node,) = wire.nodes_of(seen.address)
    message = (await announced(seen))["message"]
    assert f"Node {node} announces {seen.address} for Service default/web" in message


async def test_a_takeover_by_another_node_shows_no_fault(seen: Seen, wire: Wire) -> None:
    (former,) = wire.nodes_of(seen.address)
    await wire.end(former)
    await stays_announced(seen)
    (other,) = wire.nodes_of(seen.address)
    assert other != former


async def test_kube_vip_that_ends_on_all_nodes_is_told_and_the_remedy_works(seen: Seen, wire: Wire) -> None:
    for node in NODES:
        await wire.end(node)
    message = await told(seen, wire, "NoLeader")
    assert "Check the pods of DaemonSet" in message
    assert wire.nodes_of(seen.address) == []
    assert (await seen.guest.floating_ip())["status"]["lastAnnounced"]
    for node in NODES:
        await wire.start(node)
    await until_taken(seen, wire)


async def test_kube_vip_that_is_killed_on_all_nodes_is_told_and_the_remedy_works(
    seen: Seen, wire: Wire
) -> None:
    (node,) = wire.nodes_of(seen.address)
    for each in NODES:
        await wire.kill(each)
    await told(seen, wire, "NoLeader")
    assert wire.nodes_of(seen.address) == [node], "what a killed kube-vip leaves, as the page says"
    await wire.restart()
    await until_announced(seen, wire)


async def test_a_lease_that_a_stranger_took_once_is_taken_back_and_shows_no_fault(
    seen: Seen, wire: Wire
) -> None:
    await write_lease(seen.guest.client)
    await stays_announced(seen)
    assert len(wire.nodes_of(seen.address)) == 1


async def test_a_stranger_that_holds_the_lease_is_told_and_the_remedy_works(seen: Seen, wire: Wire) -> None:
    async with stranger(seen.guest.client):
        message = await told(seen, wire, "OtherNode")
        assert f"node {STRANGER} holds the Lease" in message
        assert "stop the program that renews the Lease" in message
        assert wire.nodes_of(seen.address) == []
    await until_taken(seen, wire)


async def test_pods_that_go_leave_it_unknown_and_who_names_the_remedy(seen: Seen, wire: Wire) -> None:
    await seen.guest.client.patch(f"{SLICE}/web-1", {"endpoints": []})
    await until_announced(seen, wire, "Unknown", "NoEndpoints")
    assert wire.nodes_of(seen.address) == []
    assert "Start a pod of the Service" in (await seen.commands.run("who", seen.address)).out


async def test_an_interface_that_no_node_has_is_told_and_the_remedy_works(seen: Seen, wire: Wire) -> None:
    await seen.guest.client.delete(SERVICE)
    await seen.guest.client.delete(f"{SLICE}/web-1")
    await serve(seen, **{"kube-vip.io/serviceInterface": "nope0"})
    message = await told(seen, wire, "NotTaken")
    assert "Check that nodes have the interface nope0 of its annotation" in message
    assert wire.nodes_of(seen.address) == []
    annotations = {"kube-vip.io/serviceInterface": "eth0"}
    await seen.guest.client.patch(SERVICE, {"metadata": {"annotations": annotations}})
    await follow_advice(seen, wire, message)
    await until_taken(seen, wire)


@pytest.mark.skipif("KUBE_VIP" in os.environ, reason="Only of v1.2.2 it is known that it loses the change.")
async def test_a_changed_address_that_kube_vip_loses_is_told_and_the_remedy_works(
    seen: Seen, wire: Wire
) -> None:
    await seen.guest.ask("another", "vlan")
    try:
        await seen.guest.has_condition("Allocated", name="another")
        address = (await seen.guest.floating_ip("another"))["status"]["addresses"][0]
        renumbered = {
            "metadata": {"annotations": {"kube-vip.io/loadbalancerIPs": address}},
            "spec": {"loadBalancerIP": address},
        }
        await seen.guest.client.patch(SERVICE, renumbered)
        message = await told(seen, wire, "NotTaken", name="another")
        assert address in message
        assert wire.nodes_of(address) == []
        await follow_advice(seen, wire, message)
        await until_taken(seen, wire, address, name="another")
        assert wire.nodes_of(seen.address) == []
    finally:
        await seen.stack.client.delete(seen.guest.path("another"))
