"""keepalived mode (docs/reference/cloud-provider.md) against a real API server."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.client import ApiClient, Json
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.provider import ProviderProcess
from localfleet.waiting import eventually
from tests.api.services.conftest import open_shop
from tests.api.services.shop import Shop

pytestmark = pytest.mark.xdist_group("management")

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/vip-configmap"
LEDGER = "k8s.co/cloud-provider-config"
METHOD = "k8s.co/keepalived-forward-method"


@pytest_asyncio.fixture
async def keepalived(
    fleet: LocalFleet, bare_guest: ControlPlane, tmp_path: Path, shop_numbers: Iterator[int]
) -> AsyncIterator[Shop]:
    """A provider in keepalived mode, started by its own name, and a namespace."""
    running = ProviderProcess(
        plane=bare_guest,
        folder=tmp_path / "provider",
        ports=fleet.ports,
        program="keepalived-cloud-provider",
        environment={"KEEPALIVED_SERVICE_CIDR": "10.210.38.100/26"},
    )
    shop = await open_shop(bare_guest, next(shop_numbers))
    await leave_behind(shop)
    await running.start()
    yield shop
    assert await running.stop() == 0
    assert "Traceback" not in (tmp_path / "provider" / "provider.log").read_text()
    await bare_guest.client.delete(CONFIG_MAP)


async def leave_behind(shop: Shop) -> None:
    """Write what a run with keepalived-cloud-provider leaves: a Service, its place, and a key of somebody's own."""
    made = await shop.open("old")
    entry = {
        "uid": made["metadata"]["uid"],
        "ip": "10.210.38.66",
        "serviceNamespace": shop.namespace,
        "serviceName": "old",
        "forwardMethod": "DR",
    }
    body = {
        "metadata": {
            "name": "vip-configmap",
            "annotations": {LEDGER: json.dumps({"services": [entry]})},
        },
        "data": {"10.210.38.66": f"{shop.namespace}/old:DR", "10.210.38.65": "elsewhere/own"},
    }
    await shop.client.create("/api/v1/namespaces/kube-system/configmaps", body)


async def data(client: ApiClient) -> dict[str, str]:
    return dict((await client.get(CONFIG_MAP)).get("data") or {})


async def announced(shop: Shop, name: str, address: str) -> Json:
    async def look() -> Json:
        found = await shop.read(name)
        assert found["status"]["loadBalancer"].get("ingress", []) == [{"ip": address, "ipMode": "VIP"}]
        return found

    return await eventually(look, what=f"{name} has {address}")


async def test_a_life_with_keepalived(keepalived: Shop) -> None:
    shop, own = keepalived, {"10.210.38.65": "elsewhere/own"}
    await announced(shop, "old", "10.210.38.66")
    await shop.open("web")
    await announced(shop, "web", "10.210.38.67")
    await shop.open("far", loadBalancerIP="192.0.2.7", annotations={METHOD: "DR"})
    await announced(shop, "far", "192.0.2.7")
    await shop.open("thief", loadBalancerIP="192.0.2.7")
    await shop.warned("AddressInUse", f"{shop.namespace}/far")
    named = {name: f"{shop.namespace}/{name}" for name in ("old", "web", "far")}
    assert await data(shop.client) == {
        **own,
        "10.210.38.66": f"{named['old']}:DR",
        "10.210.38.67": named["web"],
        "192.0.2.7": f"{named['far']}:DR",
    }
    await shop.change("far", {"metadata": {"annotations": {METHOD: "NAT"}}})
    await eventually(lambda: _says(shop, "192.0.2.7", named["far"]))
    await shop.change("far", {"metadata": {"annotations": {METHOD: "TUNNEL"}}})
    await shop.warned("InvalidForwardMethod", "TUNNEL")
    await shop.change("web", {"spec": {"loadBalancerIP": "192.0.2.8"}})
    await announced(shop, "web", "192.0.2.8")
    await shop.change("web", {"spec": {"loadBalancerIP": None}})
    await shop.close("old")
    await shop.close("far")
    await eventually(
        lambda: _says(shop, "192.0.2.7", f"{shop.namespace}/thief"), what="the waiting one has it"
    )
    assert await data(shop.client) == {
        **own,
        "192.0.2.7": f"{shop.namespace}/thief",
        "192.0.2.8": named["web"],
    }


async def _says(shop: Shop, address: str, value: str) -> bool:
    return (await data(shop.client)).get(address) == value
