"""Letting go: quarantine, who gets an address back at once, who waits for it, and what ends the waiting."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.proxy import upstream_of
from localfleet.rancher_plan import Guest
from localfleet.stack import RESERVATIONS, Stack, condition, floating_ips
from localfleet.waiting import eventually
from tests.api.tenant import Tenant, open_tenant

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


@pytest_asyncio.fixture
async def neighbour(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[Tenant]:
    """Another namespace, which asks for what the first one had."""
    async with open_tenant(stack, numbers) as neighbour:
        yield neighbour


def in_guest(tenant: Tenant, guest: Guest) -> Tenant:
    return Tenant(stack=tenant.stack, number=tenant.number, namespace=guest.cluster_id)


async def is_configured(tenant: Tenant, name: str) -> None:
    async def has_its_address_in_the_guest() -> bool:
        return condition(await tenant.read(name), "GuestConfigured").get("status") == "True"

    await eventually(has_its_address_in_the_guest, seconds=15)


async def is_free(tenant: Tenant, address: str, *, seconds: float = 10.0) -> None:
    async def is_without_reservation() -> bool:
        return await tenant.reservation(address) is None

    await eventually(is_without_reservation, seconds=seconds, what=f"{address} to be free")


async def test_an_address_of_a_deleted_floating_ip_waits_as_long_as_its_range_says(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=77)
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.delete("web")
    spec = (await tenant.quarantined(f"{tenant.net}1"))["spec"]
    (past,) = spec["history"]
    released = datetime.fromisoformat(past["releasedAt"])
    # Both stand there in whole seconds: the release is rounded down, the end up.
    waits = datetime.fromisoformat(spec["quarantinedUntil"]) - released
    assert timedelta(seconds=77) <= waits <= timedelta(seconds=78)
    assert (past["namespace"], past["name"]) == (tenant.namespace, "web")
    await tenant.capacity(pool, total=254, used=0, free=253, quarantined=1)
    await tenant.ask("next", pool)
    assert await tenant.served("next") == [f"{tenant.net}2"], "others get what is free"


async def test_quarantine_ends_when_its_time_has_passed_and_there_is_no_guest_that_could_carry_the_address(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.delete("web")
    await tenant.quarantined(f"{tenant.net}1")
    await is_free(tenant, f"{tenant.net}1")
    await tenant.capacity(pool, used=0, free=254, quarantined=0)


async def test_the_same_floating_ip_of_the_same_cluster_and_range_gets_its_address_back_at_once(
    tenant: Tenant, guest: Guest
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    there = in_guest(tenant, guest)
    for name in ("lower", "web"):
        await there.ask(name, pool)
        await there.served(name)
    await there.delete("lower")
    await there.delete("web")
    await tenant.quarantined(f"{tenant.net}2")
    await there.ask("web", pool)
    assert await there.served("web") == [f"{tenant.net}2"], "its own comes before what is free"


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


async def test_who_asks_for_a_quarantined_address_by_name_waits_and_its_condition_says_until_when(
    tenant: Tenant, neighbour: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=4)
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}9")
    await tenant.served("web")
    await neighbour.ask("heir", pool, ipaddress=f"{tenant.net}9")
    await neighbour.refused("heir", "AddressInUse", words=f"{tenant.namespace}/web")
    await tenant.delete("web")
    until = (await tenant.quarantined(f"{tenant.net}9"))["spec"]["quarantinedUntil"]
    words = datetime.fromisoformat(until).strftime("%Y-%m-%d %H:%M:%S UTC")
    await neighbour.refused("heir", "AddressQuarantined", words=f"until {words}")
    assert await neighbour.served("heir", seconds=15) == [f"{tenant.net}9"]


async def test_another_floating_ip_of_the_same_namespace_gets_the_address_at_once(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=3600)
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}9")
    await tenant.served("web")
    await tenant.ask("web-in-git", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused("web-in-git", "AddressInUse")
    await tenant.delete("web")
    assert await tenant.served("web-in-git") == [f"{tenant.net}9"]


async def test_an_address_that_a_service_of_the_guest_still_has_stays_in_quarantine_and_the_condition_names_it(
    tenant: Tenant, guest: Guest, second_guest: ControlPlane
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    there = in_guest(tenant, guest)
    await there.ask("web", pool, ipaddress=f"{tenant.net}9")
    await is_configured(there, "web")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ingress", "annotations": {"kube-vip.io/loadbalancerIPs": f"{tenant.net}9"}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    }
    await second_guest.client.create(SERVICES, service)
    await there.delete("web")
    await tenant.ask("heir", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused("heir", "AddressQuarantined", words="default/ingress", seconds=15)
    config_map = await second_guest.client.find(GUEST_CONFIG_MAP)
    assert f"{tenant.net}9" not in str((config_map or {}).get("data")), "our key is gone, the Service is not"
    assert "quarantinedUntil" in (await tenant.reservation(f"{tenant.net}9") or {})["spec"]
    await second_guest.client.delete(f"{SERVICES}/ingress")
    assert await tenant.served("heir", seconds=45) == [f"{tenant.net}9"]


async def test_quarantine_does_not_end_while_the_guest_is_there_and_cannot_be_asked(
    stack: Stack, tenant: Tenant, guest: Guest
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    there = in_guest(tenant, guest)
    await there.ask("web", pool, ipaddress=f"{tenant.net}9")
    await is_configured(there, "web")
    await stack.player.disconnect(guest)
    await there.delete("web")
    await tenant.quarantined(f"{tenant.net}9")
    await tenant.ask("heir", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused("heir", "AddressQuarantined", words="could not be read")
    # With the guest goes the last who could carry it.
    await stack.player.delete_guest(guest)
    await is_free_or_given(tenant, f"{tenant.net}9", "heir", seconds=45)


async def is_free_or_given(tenant: Tenant, address: str, name: str, *, seconds: float) -> None:
    assert await tenant.served(name, seconds=seconds) == [address]


async def test_a_reservation_that_vanishes_while_its_floating_ip_lives_is_made_again(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/30")
    await tenant.ask("web", pool)
    await tenant.served("web")
    before = await tenant.reservation(f"{tenant.net}1") or {}
    await tenant.delete_reservation(f"{tenant.net}1")

    async def is_made_again() -> bool:
        found = await tenant.reservation(f"{tenant.net}1")
        return found is not None and found["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(is_made_again)
    assert (await tenant.reservation(f"{tenant.net}1") or {})["spec"]["owner"] == before["spec"]["owner"]
    assert await tenant.served("web") == [f"{tenant.net}1"]


async def test_a_floating_ip_that_is_made_again_under_its_name_keeps_its_address_with_its_new_uid(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.ask("lower", pool)
    for _ in range(5):
        held = await tenant.served("web")
        await tenant.delete("web")
        made = await tenant.ask("web", pool)
        assert await tenant.served("web") == held
        owner = (await tenant.reservation(held[0]) or {})["spec"]["owner"]
        assert owner["uid"] == made["metadata"]["uid"]


async def test_an_admin_who_deletes_a_quarantined_reservation_frees_its_address_at_once(
    tenant: Tenant, neighbour: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}9", quarantineSeconds=3600)
    await tenant.ask("web", pool)
    await tenant.served("web")
    await neighbour.ask("heir", pool, ipaddress=f"{tenant.net}9")
    await tenant.ask("anybody", pool)
    await tenant.delete("web")
    await tenant.quarantined(f"{tenant.net}9")
    await tenant.delete_reservation(f"{tenant.net}9")

    async def has_an_heir() -> bool:
        return (await tenant.holders() | await neighbour.holders()).keys() == {f"{tenant.net}9"}

    await eventually(has_an_heir, seconds=5)


async def test_many_floating_ips_of_a_guest_that_are_deleted_by_will_are_all_let_go(
    stack: Stack, tenant: Tenant, guest: Guest
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    there = in_guest(tenant, guest)
    names = [f"fip-{index}" for index in range(40)]
    await asyncio.gather(*(there.ask(name, pool) for name in names))
    await there.all_served(names)
    await stack.client.delete(floating_ips(there.namespace))
    await tenant.capacity(pool, used=0, quarantined=40)
    assert await there.holders() == {}


async def test_a_namespace_that_goes_with_its_floating_ips_leaves_no_held_address_behind(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    names = [f"fip-{index}" for index in range(10)]
    await asyncio.gather(*(tenant.ask(name, pool) for name in names))
    # Some are served by now and some are not.
    await tenant.served("fip-0")
    await stack.client.delete(f"/api/v1/namespaces/{tenant.namespace}")

    async def is_all_gone() -> bool:
        owners = [
            each["spec"].get("owner", {}).get("namespace") for each in await stack.client.items(RESERVATIONS)
        ]
        namespace = await stack.client.find(f"/api/v1/namespaces/{tenant.namespace}")
        return namespace is None and tenant.namespace not in owners

    await eventually(is_all_gone, seconds=30)
    await tenant.capacity(pool, used=0, free=254, quarantined=0)
