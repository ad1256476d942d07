"""The condition `Announced` beside the truth of the wire: real kube-vips on two nodes, read by a real operator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.proxy import RancherProxy
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import ADDRESS, GuestBench, open_bench
from tests.api.guest.wire import NODES, Wire, find_obstacle, open_wire
from tests.api.sweeping import sweep

OBSTACLE = find_obstacle()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("guest"),
    pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE or "none"),
]
SERVICE = "/api/v1/namespaces/default/services/web"
SLICE = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/plndr-svcs-lock"
TOLD_SECONDS = 120.0


@pytest_asyncio.fixture
async def bench(
    plane: ControlPlane, proxy: RancherProxy, repository: ChartRepository, helm_program: Path, guest_id: str
) -> AsyncIterator[GuestBench]:
    options = {"kubevipChartRepoUrl": repository.url, "operateGuestClusterInterval": "5"}
    async with open_bench(plane, proxy, str(helm_program), guest_id, speed=1, **options) as bench:
        bench.opt_in()
        await bench.until_ready()
        yield bench
    await sweep(plane.client)


@pytest_asyncio.fixture
async def wire(bench: GuestBench, tmp_path: Path) -> AsyncIterator[Wire]:
    """Have kube-vip on both nodes, and a Service with an endpoint on each that uses the floating IP."""
    async with open_wire(bench.plane, tmp_path) as wire:
        for node in NODES:
            wire.start(node)
        await serve(bench)
        await until_announced(bench, wire, "True", "Announced")
        yield wire
    for path in (SERVICE, f"{SLICE}/web-1", LEASE):
        if await bench.client.find(path) is not None:
            await bench.client.delete(path)


async def serve(bench: GuestBench, **annotations: str) -> None:
    """Have the Service, as a cloud provider leaves it, with its endpoints."""
    metadata = {
        "name": "web",
        "annotations": {"kube-vip.io/loadbalancerIPs": ADDRESS, **annotations},
        "labels": {"implementation": "kube-vip"},
    }
    spec = {"type": "LoadBalancer", "loadBalancerIP": ADDRESS, "ports": [{"port": 80}]}
    await bench.client.create(
        "/api/v1/namespaces/default/services",
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec},
    )
    endpoints: list[dict[str, Any]] = [
        {"addresses": [f"10.42.0.{number}"], "nodeName": node, "conditions": {"ready": True, "serving": True}}
        for number, node in enumerate(NODES, start=1)
    ]
    await bench.client.create(
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


def announced(bench: GuestBench) -> tuple[str, str]:
    found = [each for each in bench.fleet.status(bench.guest_id)["conditions"] if each["type"] == "Announced"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


async def until_announced(bench: GuestBench, wire: Wire, *wanted: str) -> None:
    """Wait until the condition has a status and a reason; what kube-vip wrote is in the error."""

    async def is_so() -> bool:
        return announced(bench) == wanted

    try:
        await eventually(is_so, seconds=TOLD_SECONDS, what=f"Announced to be {wanted}")
    except Exception as error:
        status = bench.fleet.status(bench.guest_id)["conditions"]
        raise AssertionError(f"{error}: {status}\n{wire.logs()}") from error


async def test_an_address_that_a_node_announces_is_on_that_node(bench: GuestBench, wire: Wire) -> None:
    (node,) = wire.nodes_of(ADDRESS)
    message = bench.fleet.message(bench.guest_id, "Announced")
    assert f"Node {node} announces {ADDRESS} for Service default/web" in message


async def test_a_takeover_by_another_node_shows_no_fault(bench: GuestBench, wire: Wire) -> None:
    (former,) = wire.nodes_of(ADDRESS)
    wire.end(former)
    seen = set()
    for _ in range(40):
        seen.add(announced(bench))
        await asyncio.sleep(1)
    (other,) = wire.nodes_of(ADDRESS)
    assert other != former
    assert seen == {("True", "Announced")}


async def test_no_kube_vip_that_runs_is_told_and_the_remedy_works(bench: GuestBench, wire: Wire) -> None:
    for node in NODES:
        wire.end(node)
    await until_announced(bench, wire, "False", "NoLeader")
    assert wire.nodes_of(ADDRESS) == []
    assert bench.fleet.status(bench.guest_id)["lastAnnounced"]
    for node in NODES:
        wire.start(node)
    await until_announced(bench, wire, "True", "Announced")
    assert len(wire.nodes_of(ADDRESS)) == 1


async def test_pods_that_go_leave_it_unknown(bench: GuestBench, wire: Wire) -> None:
    await bench.client.patch(f"{SLICE}/web-1", {"endpoints": []})
    await until_announced(bench, wire, "Unknown", "NoEndpoints")
    assert wire.nodes_of(ADDRESS) == []


async def test_an_interface_that_no_node_has_is_told(bench: GuestBench, wire: Wire) -> None:
    await bench.client.delete(SERVICE)
    await bench.client.delete(f"{SLICE}/web-1")
    await serve(bench, **{"kube-vip.io/serviceInterface": "nope0"})
    await until_announced(bench, wire, "False", "NotTaken")
    assert "nope0" in bench.fleet.message(bench.guest_id, "Announced")
    assert wire.nodes_of(ADDRESS) == []
