"""Services of a guest cluster that wait get floating IPs, and lose them, on real control planes (`perGuest`)."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.proxy import upstream_of
from localfleet.rancher_plan import Guest, GuestKind
from localfleet.rancher_steps import delete
from localfleet.stack import Stack, condition
from localfleet.waiting import eventually
from tests.api.tenant import Tenant

pytestmark = pytest.mark.xdist_group("default")

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
SERVICES = "/api/v1/namespaces/default/services"
ADDRESSES = "kube-vip.io/loadbalancerIPs"
NAMES = ("one", "two", "three")
PATIENCE_SECONDS = 40.0
REPORT_SECONDS = 90.0


@pytest_asyncio.fixture
async def guest(stack: Stack, tenant: Tenant, second_guest: ControlPlane) -> AsyncIterator[Guest]:
    plan = stack.player.plan_guest(f"guest-{tenant.number}", kind=GuestKind.OTHER_MACHINES)
    guest = await stack.player.create_guest(plan, upstream_of(second_guest))
    yield guest
    for name in NAMES:
        await delete(second_guest.client, f"{SERVICES}/{name}")
    await stack.player.delete_guest(guest)


@pytest.mark.slow
async def test_services_that_wait_get_floating_ips_which_go_when_no_service_uses_them(
    stack: Stack, tenant: Tenant, guest: Guest, second_guest: ControlPlane
) -> None:
    limits = {"minAllocate": 1, "maxAllocate": 2, "releaseAfterSeconds": 10}
    pool = await tenant.offer("pool", f"{tenant.net}0/24", perGuest=limits)
    there = Tenant(stack=stack, number=tenant.number, namespace=guest.cluster_id)
    await there.ask("web", pool)
    first, second = f"{tenant.net}1", f"{tenant.net}2"
    assert await there.served("web") == [first]
    for name in NAMES:
        body = {"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
        await second_guest.client.create(SERVICES, body)

    async def pool_has(*addresses: str) -> bool:
        found = await second_guest.client.find(CONFIG_MAP) or {}
        return found["data"]["cidr-global"] == ",".join(f"{each}/32" for each in addresses)

    async def is_told() -> bool:
        found = await there.read("web")
        assert condition(found, "DemandMet").get("reason") == "LimitReached", found["status"]
        waiting = [each["name"] for each in found["status"]["waiting"]["services"]]
        return "default/two" in condition(found, "DemandMet")["message"] and "default/two" in waiting

    await eventually(lambda: pool_has(first, second), seconds=PATIENCE_SECONDS, what="a second address")
    await eventually(is_told, seconds=REPORT_SECONDS, what="what limits it")
    for name, address in (("one", first), ("three", second)):
        changed = {"metadata": {"annotations": {ADDRESSES: address}}}
        await second_guest.client.patch(f"{SERVICES}/{name}", changed)

    async def services_of(name: str) -> Json:
        return (await there.read(name))["status"].get("services") or {}

    async def are_named() -> bool:
        made = f"{guest.name}-kubevip-2"
        found = [(await services_of(name)).get("names") for name in ("web", made)]
        return found == [["default/one"], ["default/three"]]

    await eventually(are_named, seconds=REPORT_SECONDS, what="the Services that use them")
    await second_guest.client.delete(f"{SERVICES}/three")
    await second_guest.client.delete(f"{SERVICES}/two")
    await eventually(lambda: pool_has(first), seconds=PATIENCE_SECONDS, what="one address alone")
    await tenant.quarantined(second)
