"""What a floating IP asks for, and what it gets: static and dynamic, one family and two, full ranges and waiting."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.proxy import upstream_of
from localfleet.stack import (
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
from tests.api.tenant import Tenant, open_tenant
from tests.api.test_crd_existing_objects import old_crd, replace_crd

pytestmark = pytest.mark.xdist_group("shared-stack")

EXAMPLES = Path(__file__).parents[2] / "examples"
BURST = 500
GUEST_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/kubevip"


# Static addresses


async def test_a_static_address_is_held_as_it_is_written(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}77")
    assert await tenant.served("web") == [f"{tenant.net}77"]
    found = await tenant.reservation(f"{tenant.net}77")
    assert found is not None
    assert found["spec"]["requested"] == "static"
    assert found["spec"]["owner"]["uid"] == (await tenant.read("web"))["metadata"]["uid"]
    assert (await tenant.read("web"))["spec"]["ipaddress"] == f"{tenant.net}77"


async def test_a_static_address_that_is_taken_is_refused_and_the_condition_names_the_holder(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("first", pool, ipaddress=f"{tenant.net}9")
    await tenant.served("first")
    await tenant.ask("second", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused("second", "AddressInUse", words=f"{tenant.namespace}/first")
    assert await tenant.served("first") == [f"{tenant.net}9"]
    assert await tenant.holders() == {f"{tenant.net}9": "first"}


async def test_of_many_that_ask_for_one_address_in_all_its_spellings_one_gets_it(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net6}/64")
    prefix = tenant.net6.rstrip(":")
    spellings = [f"{prefix}::a", f"{prefix.upper()}::A", f"{prefix}:0:0:0:0:0:a", f"{prefix}::000a"]
    names = [f"claimant-{index}" for index in range(20)]
    await asyncio.gather(
        *(tenant.ask(name, pool, ipaddress=spellings[index % 4]) for index, name in enumerate(names))
    )

    async def is_decided() -> dict[str, str]:
        statuses = {name: condition(await tenant.read(name), "Allocated").get("status", "") for name in names}
        assert sorted(statuses.values()) == ["False"] * 19 + ["True"], statuses
        return statuses

    statuses = await eventually(is_decided)
    (winner,) = (name for name, status in statuses.items() if status == "True")
    for name in names:
        if name != winner:
            await tenant.refused(name, "AddressInUse", words=f"{tenant.namespace}/{winner}")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("200", "is not in it"),
        ("0", "ends in .0 or .255"),
        ("127", "network or broadcast"),
        ("13", "is excluded"),
    ],
)
async def test_an_address_that_the_range_does_not_give_out_is_refused(
    tenant: Tenant, host: str, words: str
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/25", exclude=[f"{tenant.net}10-{tenant.net}19"])
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}{host}")
    found = await tenant.refused("web", "AddressOutOfRange", words=words)
    assert f"{tenant.net}{host}" in condition(found, "Allocated")["message"]
    assert await tenant.holders() == {}


async def test_an_address_that_the_guests_cloud_provider_refuses_is_given_to_nobody(tenant: Tenant) -> None:
    pool = await tenant.offer(
        "pool", f"{tenant.net}254-10.{tenant.number // 256}.{tenant.number % 256 + 1}.1"
    )
    await tenant.ask("asked", pool, ipaddress=f"{tenant.net}255")
    await tenant.refused("asked", "AddressOutOfRange", words="avoidBuggyIPs")
    await tenant.ask("one", pool)
    assert await tenant.served("one") == [f"{tenant.net}254"]
    await tenant.ask("two", pool)
    assert await tenant.served("two") == [f"10.{tenant.number // 256}.{tenant.number % 256 + 1}.1"]


async def test_a_wish_that_cannot_be_read_is_told_with_its_words(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool, ipaddress="::ffff:1.2.3.4:5")
    await tenant.refused("web", "InvalidSpec", words="::ffff:1.2.3.4:5")


async def test_a_range_that_comes_later_serves_who_named_it_before(tenant: Tenant) -> None:
    await tenant.ask("early", f"late-{tenant.number}")
    await tenant.refused("early", "RangeNotFound", words=f"late-{tenant.number}")
    await tenant.offer("late", f"{tenant.net}0/24")
    assert await tenant.served("early") == [f"{tenant.net}1"]


# Dynamic addresses


@pytest.mark.parametrize(("order", "hosts"), [("asc", ["1", "2", "4"]), ("desc", ["6", "5", "4"])])
async def test_free_addresses_are_given_out_in_the_order_that_the_range_names(
    tenant: Tenant, order: str, hosts: list[str]
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/29", exclude=[f"{tenant.net}3"], searchOrder=order)
    given = []
    for name in ("a", "b", "c"):
        await tenant.ask(name, pool)
        given += await tenant.served(name)
    assert given == [f"{tenant.net}{host}" for host in hosts]
    assert [(await tenant.read(name))["spec"]["ipaddress"] for name in ("a", "b", "c")] == given


async def test_who_finds_a_range_full_is_served_within_5_s_of_an_address_becoming_free(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}4/31", quarantineSeconds=1)
    for name in ("one", "two"):
        await tenant.ask(name, pool)
        await tenant.served(name)
    await tenant.ask("three", pool)
    await tenant.refused("three", "RangeFull", words="is full")
    await tenant.delete("one")

    async def is_free() -> bool:
        found = await tenant.reservation(f"{tenant.net}4")
        return found is None or found["spec"]["owner"]["name"] == "three"

    await eventually(is_free, seconds=10)
    began = time.monotonic()
    assert await tenant.served("three") == [f"{tenant.net}4"]
    assert time.monotonic() - began < 5


async def test_a_range_that_grows_serves_who_waits(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}4")
    await tenant.ask("one", pool)
    await tenant.served("one")
    await tenant.ask("two", pool)
    await tenant.refused("two", "RangeFull")
    await tenant.change_range(pool, iprange=f"{tenant.net}4-{tenant.net}5")
    assert await tenant.served("two", seconds=5) == [f"{tenant.net}5"]


async def test_an_emptied_address_is_written_back_twice_and_then_left_to_whoever_empties_it(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    assert await tenant.served("web") == [f"{tenant.net}1"]

    async def is_written_back() -> bool:
        found: str = (await tenant.read("web"))["spec"].get("ipaddress", "")
        return found == f"{tenant.net}1"

    for _ in range(2):
        await tenant.change("web", ipaddress="")
        await eventually(is_written_back, what="the address to be written back")
    await tenant.change("web", ipaddress="")
    found = await tenant.refused("web", "SpecReverted")
    assert found["spec"]["ipaddress"] == ""
    assert found["status"]["addresses"] == [f"{tenant.net}1"]
    assert await tenant.holders() == {f"{tenant.net}1": "web"}
    # Whoever writes it again ends the quarrel.
    await tenant.change("web", ipaddress=f"{tenant.net}1")
    assert await tenant.served("web") == [f"{tenant.net}1"]


# Families


async def test_a_dual_stack_wish_gets_one_address_of_each_family_in_the_order_that_it_names(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}/64")
    await tenant.ask("web", pool, ipFamilyPolicy="RequireDualStack", ipFamilies=["IPv6", "IPv4"])
    assert await tenant.served("web") == [f"{tenant.net}1", f"{tenant.net6}1"]
    assert (await tenant.read("web"))["spec"]["ipaddress"] == f"{tenant.net6}1,{tenant.net}1"


@pytest.mark.parametrize(
    ("spec", "families"),
    [
        ({}, [4]),
        ({"ipFamilies": ["IPv6"]}, [6]),
        ({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}, [6]),
        ({"ipFamilyPolicy": "PreferDualStack"}, [4, 6]),
        ({"ipFamilies": ["IPv4", "IPv6"]}, [4, 6]),
    ],
)
async def test_policy_and_families_decide_what_is_given(
    tenant: Tenant, spec: dict[str, object], families: list[int]
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}/64")
    await tenant.ask("web", pool, **spec)
    addresses = await tenant.served("web")
    assert addresses == [{4: f"{tenant.net}1", 6: f"{tenant.net6}1"}[family] for family in families]


async def test_both_families_or_none_are_given_and_a_vain_wish_writes_nothing_again_and_again(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}1")
    await tenant.ask("holder", pool, ipFamilies=["IPv6"])
    await tenant.served("holder")
    await tenant.ask("both", pool, ipFamilyPolicy="RequireDualStack")
    refused = await tenant.refused("both", "RangeFull", words="IPv6")
    assert refused["status"].get("addresses", []) == []
    assert set((await tenant.holders()).values()) == {"holder"}
    since = (await tenant.stack.client.get(RESERVATIONS))["metadata"]["resourceVersion"]
    begun = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            async for event in tenant.stack.client.watch(RESERVATIONS, resource_version=since):
                name = event["object"]["spec"]["owner"]["name"]
                begun += [event["type"]] if name == "both" else []
    assert begun == []
    assert (await tenant.read("both"))["metadata"]["resourceVersion"] == refused["metadata"][
        "resourceVersion"
    ]


async def test_two_static_addresses_of_which_one_is_taken_are_not_given_by_halves(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}/64")
    await tenant.ask("holder", pool, ipaddress=f"{tenant.net6}5")
    await tenant.served("holder")
    await tenant.ask("both", pool, ipaddress=f"{tenant.net}5,{tenant.net6}5")
    await tenant.refused("both", "AddressInUse", words=f"{tenant.namespace}/holder")
    assert "both" not in (await tenant.holders()).values()
    await tenant.ask("other", pool, ipaddress=f"{tenant.net}5")
    assert await tenant.served("other") == [f"{tenant.net}5"]


async def test_who_prefers_both_families_is_content_with_the_one_that_is_left(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24, {tenant.net6}1")
    await tenant.ask("holder", pool, ipFamilies=["IPv6"])
    await tenant.served("holder")
    await tenant.ask("web", pool, ipFamilyPolicy="PreferDualStack")
    assert await tenant.served("web") == [f"{tenant.net}1"]
    # The second family comes when there is one.
    await tenant.change_range(pool, iprange=f"{tenant.net}0/24, {tenant.net6}1-{tenant.net6}2")

    async def has_both() -> bool:
        return await tenant.served("web") == [f"{tenant.net}1", f"{tenant.net6}2"]

    await eventually(has_both)


async def test_a_family_that_the_range_lacks_is_refused(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool, ipFamilies=["IPv6"])
    await tenant.refused("web", "FamilyMissing", words="only IPv4")


# Guests


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


# Many at once


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
