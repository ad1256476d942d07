"""Floating IPs from the manifest to the guest cluster; tests/operator and tests/golden state what each one gets."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.proxy import upstream_of
from localfleet.stack import (
    RANGES,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
    open_stack,
)
from localfleet.waiting import eventually
from tests.api.tenant import Tenant, open_tenant
from tests.api.test_crd_existing_objects import old_crd, replace_crd

pytestmark = pytest.mark.xdist_group("shared-stack")

EXAMPLES = Path(__file__).parents[2] / "examples"
BURST = 500
GUEST_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"


async def test_a_changed_address_is_claimed_before_the_old_one_goes_to_quarantine(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}5")
    await tenant.served("web")
    await tenant.change("web", ipaddress=f"{tenant.net}6")
    assert await tenant.served("web") == [f"{tenant.net}6"]
    released = await tenant.quarantined(f"{tenant.net}5")
    claimed = await tenant.reservation(f"{tenant.net}6")
    assert claimed is not None
    assert claimed["metadata"]["creationTimestamp"] <= released["spec"]["history"][0]["releasedAt"]
    assert int(claimed["metadata"]["resourceVersion"]) < int(released["metadata"]["resourceVersion"])


async def test_the_manifests_of_the_runbooks_do_what_they_say_each_before_its_guest_exists(
    stack: Stack, second_guest: ControlPlane
) -> None:
    kubectl = stack.plane.kubectl
    await stack.plane.create_namespace("c-m-ngd5hs2r")
    await kubectl("create", "-f", str(EXAMPLES / "floatingip-static.yaml"))
    await kubectl("create", "-f", str(EXAMPLES / "range.yaml"))
    runbook = Tenant(stack=stack, number=0, namespace="c-m-ngd5hs2r")
    assert await runbook.served("demo-vip") == ["10.135.10.200"]
    found = await runbook.read("demo-vip")
    assert condition(found, "Ready")["reason"] == "GuestNotFound"

    guest = await stack.player.create_guest(
        stack.player.plan_guest("demo", cluster_id="c-m-ngd5hs2r"), upstream_of(second_guest)
    )

    async def is_ready() -> bool:
        return condition(await runbook.read("demo-vip"), "Ready").get("status") == "True"

    await eventually(is_ready, seconds=15)
    config_map = await second_guest.client.get(GUEST_CONFIG_MAP)
    assert config_map["data"]["cidr-global"] == "10.135.10.200/32"
    assert len(await stack.client.items(floating_ips("c-m-ngd5hs2r"))) == 1, "it has one: it gets no second"

    await kubectl("delete", "-f", str(EXAMPLES / "floatingip-static.yaml"))
    await kubectl("create", "-f", str(EXAMPLES / "floatingip-dynamic.yaml"))
    # The same floating IP of the same cluster and range: what it had comes back to it.
    assert await runbook.served("demo-vip") == ["10.135.10.200"]
    await stack.player.delete_guest(guest)


async def test_a_floating_ip_that_names_the_cluster_of_another_namespace_writes_no_guest(
    stack: Stack, tenant: Tenant, second_guest: ControlPlane
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    unserved = {"kubefip.k8s.binbash.org/floating-ip": "false"}
    for name in ("victim", "mallory"):
        plan = stack.player.plan_guest(f"{name}-{tenant.number}", annotations=unserved)
        await stack.player.create_guest(plan, upstream_of(second_guest))
    victim, mallory = list(stack.player.guests.values())[-2:]
    before = await second_guest.client.find(GUEST_CONFIG_MAP)
    await stack.client.create(
        floating_ips(mallory.cluster_id),
        build_floating_ip(mallory.cluster_id, "trick", cluster=victim.name, range_name=pool),
    )
    tricked = Tenant(stack=stack, number=tenant.number, namespace=mallory.cluster_id)

    async def is_told() -> str:
        told = condition(await tricked.read("trick"), "GuestConfigured")
        assert told.get("reason") == "ClusterMismatch", told
        message: str = told["message"]
        return message

    message = await eventually(is_told)
    assert f'"{victim.name}"' in message
    assert f'"{mallory.name}"' in message
    assert condition(await tricked.read("trick"), "Ready")["status"] == "False"
    assert await second_guest.client.find(GUEST_CONFIG_MAP) == before
    assert await stack.client.items(floating_ips(victim.cluster_id)) == []

    # Once it names its own, that one is written: it was the name that stood in the way.
    honest = {"metadata": {"annotations": {"clustername": mallory.name}}}
    await stack.client.patch(tricked.path("trick"), honest)

    async def is_written() -> bool:
        config_map = await second_guest.client.get(GUEST_CONFIG_MAP)
        return f"{tenant.net}1/32" in config_map["data"].get("cidr-global", "")

    await eventually(is_written)
    for guest in (victim, mallory):
        await stack.player.delete_guest(guest)


async def test_objects_of_the_old_schemas_are_served_once_the_operator_has_brought_the_schemas_up_to_date(
    fleet: LocalFleet, numbers: Iterator[int]
) -> None:
    async with open_stack(fleet, "old-schemas") as stack, open_tenant(stack, numbers) as tenant:
        for kind in ("FloatingIPRange", "FloatingIP"):
            crd = old_crd(kind)
            del crd["metadata"]["annotations"]
            await replace_crd(stack.plane, crd)
        pool = f"pool-{tenant.number}"
        bare = build_floating_ip(tenant.namespace, "bare", range_name=pool)
        del bare["spec"]

        async def is_stored_without_spec() -> bool:
            made = await stack.client.create(f"{floating_ips(tenant.namespace)}?dryRun=All", bare)
            return "spec" not in made

        await eventually(is_stored_without_spec, what="the old schema to be served")
        await stack.client.create(floating_ips(tenant.namespace), bare)
        await tenant.ask("static", pool, ipaddress=f"{tenant.net}9")
        await tenant.offer("pool", f"{tenant.net}0/24")
        nothing = {**build_range("nothing", ""), "spec": None}
        await stack.client.create(RANGES, {key: value for key, value in nothing.items() if value is not None})

        await stack.start_operator()
        assert await tenant.served("bare") == [f"{tenant.net}1"]
        assert (await tenant.read("bare"))["spec"] == {"ipaddress": f"{tenant.net}1"}
        assert await tenant.served("static") == [f"{tenant.net}9"]
        await tenant.capacity(pool, total=254, used=2)

        async def is_told() -> bool:
            return condition(await tenant.range("nothing"), "Ready").get("reason") == "Invalid"

        await eventually(is_told)


@pytest.mark.slow
async def test_a_burst_of_500_is_served_and_each_gets_an_address_of_its_own(tenant: Tenant) -> None:
    """How long it takes beside the bare writes, `make bench PART=fleet` records."""
    pool = await tenant.offer("pool", "10.250.0.0/22")
    await _side_by_side(lambda index: tenant.ask(f"burst-{index}", pool), BURST)
    await tenant.all_served([f"burst-{index}" for index in range(BURST)], seconds=120)
    assert len(await tenant.holders()) == BURST


async def _side_by_side(do: Callable[[int], Awaitable[object]], count: int) -> None:
    gate = asyncio.Semaphore(40)

    async def do_one(index: int) -> None:
        async with gate:
            await do(index)

    await asyncio.gather(*(do_one(index) for index in range(count)))
