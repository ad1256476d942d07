"""Addresses that are released while Rancher, a guest cluster or a namespace still has something of them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.proxy import upstream_of
from localfleet.rancher_plan import Guest
from localfleet.stack import RESERVATIONS, Stack, condition
from localfleet.waiting import eventually
from tests.api.tenant import Tenant

pytestmark = pytest.mark.xdist_group("shared-stack")

GUEST_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"
SERVICES = "/api/v1/namespaces/default/services"
UNSERVED = {"kubefip.k8s.binbash.org/floating-ip": "false"}


@pytest_asyncio.fixture
async def guest(stack: Stack, tenant: Tenant, second_guest: ControlPlane) -> AsyncIterator[Guest]:
    """A guest that Rancher reaches and that gets no floating IP by itself."""
    plan = stack.player.plan_guest(f"guest-{tenant.number}", annotations=UNSERVED)
    guest = await stack.player.create_guest(plan, upstream_of(second_guest))
    yield guest
    if guest.cluster_id in stack.player.guests:
        await stack.player.delete_guest(guest)


def in_guest(tenant: Tenant, guest: Guest) -> Tenant:
    return Tenant(stack=tenant.stack, number=tenant.number, namespace=guest.cluster_id)


async def is_configured(tenant: Tenant, name: str) -> None:
    async def has_its_address_in_the_guest() -> bool:
        return condition(await tenant.read(name), "GuestConfigured").get("status") == "True"

    await eventually(has_its_address_in_the_guest, seconds=15)


async def test_a_guest_that_is_made_again_under_its_name_gets_its_address_back_in_its_new_namespace(
    stack: Stack, tenant: Tenant, guest: Guest
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    there = in_guest(tenant, guest)
    await tenant.ask("before", pool)
    await tenant.served("before")
    await there.ask("web", pool)
    assert await there.served("web") == [f"{tenant.net}2"]
    await stack.player.delete_guest(guest)
    await tenant.quarantined(f"{tenant.net}2")
    await tenant.delete("before")
    again = await stack.player.create_guest(stack.player.plan_guest(guest.name, annotations=UNSERVED))
    assert again.cluster_id != guest.cluster_id
    new = in_guest(tenant, again)
    await new.ask("web", pool)
    assert await new.served("web") == [f"{tenant.net}2"]
    owner = (await tenant.reservation(f"{tenant.net}2") or {})["spec"]["owner"]
    assert (owner["namespace"], owner["cluster"]) == (again.cluster_id, guest.name)
    await stack.player.delete_guest(again)


async def test_a_namespace_that_goes_with_its_floating_ips_leaves_no_held_address_behind(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    names = [f"fip-{index}" for index in range(10)]
    await asyncio.gather(*(tenant.ask(name, pool) for name in names))
    # Some are served by now and some are not.
    await tenant.served("fip-0")
    await stack.client.delete(f"/api/v1/namespaces/{tenant.namespace}")

    async def is_nothing_held() -> bool:
        held = [each["spec"] for each in await stack.client.items(RESERVATIONS)]
        owners = [each["owner"]["namespace"] for each in held if "quarantinedUntil" not in each]
        namespace = await stack.client.find(f"/api/v1/namespaces/{tenant.namespace}")
        return namespace is None and tenant.namespace not in owners

    await eventually(is_nothing_held, seconds=30)
    await tenant.capacity(pool, used=0)
