"""What guest clusters use by hand, on real control planes: by following our own advice, and in one that is imported."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.proxy import Fault, upstream_of
from localfleet.rancher_plan import Guest, GuestKind
from localfleet.rancher_steps import delete
from localfleet.stack import Stack, build_range, condition
from localfleet.waiting import eventually
from tests.api.borrowing import borrow
from tests.api.served_guest import find_reservation
from tests.api.tenant import Tenant, open_tenant

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("quick-stack")

CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
SERVICES = "/api/v1/namespaces/default/services"
UNSERVED = {"kubefip.k8s.binbash.org/floating-ip": "false"}
VISITED_SECONDS = 60.0
QUARANTINE_SECONDS = 90
"""The shortest quarantine."""


def build_service(address: str) -> Json:
    return {
        "metadata": {"name": "second", "annotations": {"kube-vip.io/loadbalancerIPs": address}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }


@pytest_asyncio.fixture(scope="module")
async def stack(quick_stack: Stack) -> AsyncIterator[Stack]:
    """An operator that visits each guest cluster every second."""
    async with borrow(quick_stack, build_range("unused", "10.76.0.0/24", harvester="nowhere")) as stack:
        yield stack


@pytest_asyncio.fixture
async def tenant(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[Tenant]:
    async with open_tenant(stack, numbers) as tenant:
        yield tenant


@pytest_asyncio.fixture
async def guest(stack: Stack, tenant: Tenant, second_guest: ControlPlane) -> AsyncIterator[Guest]:
    plan = stack.player.plan_guest(f"guest-{tenant.number}", annotations=UNSERVED)
    guest = await stack.player.create_guest(plan, upstream_of(second_guest))
    yield guest
    await delete(second_guest.client, f"{SERVICES}/second")
    await stack.player.delete_guest(guest)


async def test_an_address_that_the_owner_of_a_guest_cluster_adds_to_its_key_goes_to_nobody_else(
    stack: Stack, tenant: Tenant, guest: Guest, second_guest: ControlPlane
) -> None:
    """As the message of a full pool advised once."""
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    there = Tenant(stack=stack, number=tenant.number, namespace=guest.cluster_id)
    await there.ask("web", pool)
    assert await there.served("web") == [f"{tenant.net}1"]
    extended = {"data": {"cidr-global": f"{tenant.net}1/32,{tenant.net}2/32"}}

    async def is_extended() -> bool:
        found = await second_guest.client.find(CONFIG_MAP)
        if found is None or "cidr-global" not in found.get("data", {}):
            return False
        await second_guest.client.patch(CONFIG_MAP, extended)
        return True

    await eventually(is_extended)
    await second_guest.client.create(SERVICES, build_service(f"{tenant.net}2"))

    async def is_reported() -> bool:
        reported = (await tenant.range(pool))["status"].get("reported", [])
        return {"address": f"{tenant.net}2", "guest": guest.cluster_id} in reported

    await eventually(is_reported, seconds=90.0, what="the use of .2 in the status of the range")
    await tenant.ask("other", pool)
    await tenant.ask("by-name", pool, ipaddress=f"{tenant.net}2")
    assert await tenant.served("other") == [f"{tenant.net}3"]
    await tenant.refused("by-name", "AddressInUse", words=guest.cluster_id)
    assert await find_reservation(stack, f"{tenant.net}2") is None


@pytest.mark.slow
async def test_an_address_that_a_service_of_the_guest_still_has_stays_in_quarantine_and_the_condition_names_it(
    stack: Stack, tenant: Tenant, guest: Guest, second_guest: ControlPlane
) -> None:
    """The whole life of a quarantine, once, on the clock: at least 90 s, and a visit after it."""
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    there = Tenant(stack=stack, number=tenant.number, namespace=guest.cluster_id)
    await there.ask("web", pool, ipaddress=f"{tenant.net}9")

    async def is_configured() -> bool:
        return condition(await there.read("web"), "GuestConfigured").get("status") == "True"

    await eventually(is_configured)
    await second_guest.client.create(SERVICES, build_service(f"{tenant.net}9"))
    await there.delete("web")
    await tenant.ask("heir", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused(
        "heir", "AddressQuarantined", words="default/second", seconds=QUARANTINE_SECONDS + 90
    )
    config_map = await second_guest.client.find(CONFIG_MAP)
    assert f"{tenant.net}9" not in str((config_map or {}).get("data")), "our key is gone, the Service is not"
    assert "quarantinedUntil" in (await tenant.reservation(f"{tenant.net}9") or {})["spec"]
    await second_guest.client.delete(f"{SERVICES}/second")
    assert await tenant.served("heir", seconds=180) == [f"{tenant.net}9"]


async def test_a_cluster_that_is_imported_with_used_addresses_keeps_them_though_its_first_answers_fail(
    stack: Stack, tenant: Tenant, second_guest: ControlPlane
) -> None:
    """Rancher is connected to it and answers 503 until it is Provisioned; then the first answers are lost."""
    pool = await tenant.offer("pool", f"{tenant.net}0/24", clusterSelector={"matchLabels": {}})
    await second_guest.client.create(SERVICES, build_service(f"{tenant.net}1"))
    plan = stack.player.plan_guest(f"imported-{tenant.number}", kind=GuestKind.IMPORTED, annotations=UNSERVED)
    failing = Fault(status=500)
    imported = await stack.player.create_guest(plan, upstream_of(second_guest), boots=True)
    try:
        route = stack.proxy.guests[imported.cluster_id]
        route.fault = failing
        await asyncio.sleep(2.0)
        await stack.player.finish_boot(imported)
        await tenant.ask("web", pool)
        await asyncio.sleep(5.0)
        assert "addresses" not in ((await tenant.read("web")).get("status") or {}), "it was not read yet"
        route.fault = None
        assert await tenant.served("web", seconds=VISITED_SECONDS) == [f"{tenant.net}2"]
        assert condition(await tenant.read("web"), "Allocated")["status"] == "True"
    finally:
        await second_guest.client.delete(f"{SERVICES}/second")
        await stack.player.delete_guest(imported)
