"""Coming from kube-fip-operator: nothing is touched while it works, then everybody keeps what they have."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.rancher_plan import Guest
from localfleet.routes import upstream_of
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    SETTINGS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.emptying import clear
from tests.api.predecessor import make_reservations_younger
from tests.api.proxied import read_log

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("left-behind")

DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-fip/deployments"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


@pytest_asyncio.fixture
async def stack(left_behind_stack: Stack) -> AsyncIterator[Stack]:
    stack = left_behind_stack
    yield stack
    await clear(stack)
    await stack.operators[-1].stop()


@pytest_asyncio.fixture
async def guest_plane(fleet: LocalFleet) -> AsyncIterator[ControlPlane]:
    """A guest's own control plane: what other tests left in a shared one would be found there."""
    plane = await fleet.guest("predecessor-guest")
    yield plane
    await fleet.remove(plane)


@pytest_asyncio.fixture
async def guest(stack: Stack, guest_plane: ControlPlane) -> Guest:
    return await stack.player.create_guest(stack.player.plan_guest("demo"), upstream_of(guest_plane))


def _deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "kube-fip-operator"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kube-fip-operator", "namespace": "kube-fip"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "operator", "image": "example"}]},
            },
        },
    }


async def test_the_predecessors_objects_are_left_alone_until_it_is_gone_then_adopted_oldest_first(
    stack: Stack, guest: Guest, guest_plane: ControlPlane
) -> None:
    own = floating_ips(guest.cluster_id)
    await stack.client.create(RANGES, build_range("guest-vlan", "10.135.10.192/26"))
    names: dict[str, Any] = {"range_name": "guest-vlan", "cluster": "demo", "ipaddress": "10.135.10.200"}
    await stack.client.create(own, build_floating_ip(guest.cluster_id, "older", **names))
    await asyncio.sleep(1.1)  # "older" must be so by a whole second
    await stack.client.create(own, build_floating_ip(guest.cluster_id, "a-younger", **names))
    await stack.client.create(
        own, build_floating_ip(guest.cluster_id, "outside", **(names | {"ipaddress": "10.9.9.9"}))
    )
    config_map = {"metadata": {"name": "kubevip"}, "data": {"cidr-global": "10.135.10.200/32"}}
    await guest_plane.client.create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **config_map})
    await make_reservations_younger(stack)
    await stack.client.create(DEPLOYMENTS, _deployment(1))
    if await stack.client.find(SETTINGS) is None:
        body = {"metadata": {"name": SETTINGS.rpartition("/")[2]}}
        await stack.client.create(SETTINGS.rpartition("/")[0], body)
    await stack.set_options(logLevel="Trace")
    before = await stack.client.items(ALL_FLOATING_IPS)

    operator = await stack.start_operator()

    async def has_looked_on() -> bool:
        """Whether the operator saw again and again that the predecessor works: it is at rest between."""
        paths = [line["path"] for line in read_log(operator) if line["message"] == "Request"]
        return len([path for path in paths if path.endswith("/kube-fip-operator")]) > 3

    await eventually(has_looked_on, seconds=30)
    assert await stack.client.items(ALL_FLOATING_IPS) == before
    assert await stack.client.items(RESERVATIONS) == []
    assert stack.proxy.requests_of(guest.cluster_id) == []

    await stack.client.patch(f"{DEPLOYMENTS}/kube-fip-operator", {"spec": {"replicas": 0}})

    async def is_settled() -> bool:
        older, younger, outside = [
            await stack.floating_ip(guest.cluster_id, name) for name in ("older", "a-younger", "outside")
        ]
        assert older["status"]["addresses"] == ["10.135.10.200"]
        assert outside["status"]["addresses"] == ["10.9.9.9"]
        refusal = condition(younger, "Ready")
        assert (refusal["status"], refusal["reason"]) == ("False", "AddressInUse")
        assert f"{guest.cluster_id}/older" in refusal["message"]
        return condition(older, "Ready")["status"] == "True"

    await eventually(is_settled, seconds=30)
    found = await guest_plane.client.get(f"{CONFIG_MAPS}/kubevip")
    assert found["data"] == {"cidr-global": "10.135.10.200/32,10.9.9.9/32"}

    async def is_counted() -> bool:
        capacity = (await stack.client.get(f"{RANGES}/guest-vlan"))["status"]["capacity"]
        assert (capacity["used"], capacity["outOfRange"]) == (1, 1)
        return True

    await eventually(is_counted)
    await stack.client.delete(f"{DEPLOYMENTS}/kube-fip-operator")
