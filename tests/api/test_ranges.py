"""Ranges: what they count and say, how they overlap, shrink, drain, go and come back, and when they are written."""

import asyncio
import time

import pytest

from localfleet.errors import ApiError
from localfleet.stack import RANGES, RESERVATIONS, Stack, condition
from localfleet.waiting import eventually
from tests.api.tenant import Json, Tenant

INT64_MAX = 2**63 - 1


pytestmark = pytest.mark.xdist_group("shared-stack")


async def ready(tenant: Tenant, name: str, status: str, *, words: str = "", kind: str = "Ready") -> Json:
    """Wait until a range says this of its present spec; the condition."""

    async def says_so() -> Json:
        found = await tenant.range(name)
        said = condition(found, kind)
        assert said.get("status") == status, found.get("status")
        assert words in said["message"], said
        assert said["observedGeneration"] == found["metadata"]["generation"], said
        return said

    return await eventually(says_so)


@pytest.mark.parametrize(
    ("pool", "spec", "total"),
    [
        ("{net}192/26", {}, 62),
        ("{net}64/26", {"skipEndIPs": False}, 64),
        ("{net}192/26", {"skipEndIPs": False}, 63),
        ("{net}4/31", {}, 2),
        ("{net}4/32", {}, 1),
        ("{net}4", {}, 1),
        ("{net}10 - {net}19 , {net}15-{net}24", {}, 15),
        ("{net}0/24", {}, 254),
        ("{net}0/24", {"skipEndIPs": False}, 254),
        ("{net}0/24", {"skipEndIPs": False, "avoidBuggyIPs": False}, 256),
        ("{net}0/24", {"exclude": ["{net}1-{net}100", "{net}50", "{net}200"]}, 153),
    ],
)
async def test_a_range_counts_exactly_what_it_can_give_out(
    tenant: Tenant, pool: str, spec: dict[str, object], total: int
) -> None:
    exclude = [part.format(net=tenant.net) for part in spec.get("exclude", [])]  # type: ignore[attr-defined]
    name = await tenant.offer("pool", pool.format(net=tenant.net), **{**spec, "exclude": exclude})
    await tenant.capacity(name, total=total, used=0, free=total, quarantined=0, outOfRange=0)


async def test_host_bits_are_masked_and_the_range_says_so(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}200/24")
    await ready(tenant, pool, "True", words=f"{tenant.net}200/24 means {tenant.net}0/24")
    await tenant.capacity(pool, total=254)


async def test_the_counts_add_up_for_the_whole_and_for_each_family_in_status_and_metrics(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/28,{tenant.net6}/124")
    for name in ("a", "b", "c"):
        await tenant.ask(name, pool, ipFamilyPolicy="RequireDualStack")
        await tenant.served(name)
    await tenant.delete("b")
    await tenant.quarantined(f"{tenant.net}2")
    counts = await tenant.capacity(pool, total=29, used=4, free=23, quarantined=2)
    assert counts["ipv4"] == {"total": 14, "used": 2, "free": 11, "quarantined": 1, "outOfRange": 0}
    assert counts["ipv6"] == {"total": 15, "used": 2, "free": 12, "quarantined": 1, "outOfRange": 0}
    for part in (counts, counts["ipv4"], counts["ipv6"]):
        assert part["total"] == part["used"] + part["free"] + part["quarantined"]
    scraped = [line for line in (await stack.operators[-1].metrics()).splitlines() if f'"{pool}"' in line]
    assert any(
        line.startswith("kubefipoperator_fipranges_capacity{") and line.endswith(" 29.0") for line in scraped
    )
    assert any(
        line.startswith("kubefipoperator_fipranges_reserved{") and line.endswith(" 6.0") for line in scraped
    )


async def test_a_count_beyond_what_a_status_holds_is_clamped_and_said_so(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net6}/48")
    await ready(tenant, pool, "True", words=str(INT64_MAX))
    await tenant.ask("web", pool)
    assert await tenant.served("web") == [f"{tenant.net6}1"]
    await tenant.capacity(pool, total=INT64_MAX, used=1, free=INT64_MAX)


async def test_a_range_that_cannot_be_read_says_why_and_what_it_gave_out_stays(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.change_range(pool, iprange=f"{tenant.net}9-{tenant.net}1")
    await ready(tenant, pool, "False", words="must not end below")
    found = await tenant.refused("web", "RangeInvalid", words=f"keeps {tenant.net}1")
    assert found["status"]["addresses"] == [f"{tenant.net}1"]
    await tenant.change_range(pool, iprange=f"{tenant.net}0/25")
    assert await tenant.served("web") == [f"{tenant.net}1"]
    await tenant.capacity(pool, total=126, used=1)


async def test_a_range_that_shrinks_renumbers_nobody_and_counts_who_is_out_of_it(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("low", pool, ipaddress=f"{tenant.net}1")
    await tenant.ask("high", pool, ipaddress=f"{tenant.net}200")
    await tenant.ask("chosen", pool)
    for name in ("low", "high", "chosen"):
        await tenant.served(name)
    before = {name: (await tenant.read(name))["metadata"]["resourceVersion"] for name in ("high", "chosen")}
    await tenant.change_range(pool, iprange=f"{tenant.net}0/30", exclude=[f"{tenant.net}2"])
    await tenant.capacity(pool, total=1, used=1, free=0, quarantined=0, outOfRange=2)
    assert await tenant.holders() == {
        f"{tenant.net}1": "low",
        f"{tenant.net}200": "high",
        f"{tenant.net}2": "chosen",
    }
    after = {name: (await tenant.read(name))["metadata"]["resourceVersion"] for name in ("high", "chosen")}
    assert after == before, "who keeps its address is not written"
    await tenant.change_range(pool, iprange=f"{tenant.net}0/24", exclude=[])
    await tenant.capacity(pool, total=254, used=3, outOfRange=0)


async def test_a_draining_range_gives_out_nothing_and_breaks_nothing(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.change_range(pool, draining=True)
    await ready(tenant, pool, "False")
    await tenant.ask("late", pool)
    await tenant.ask("named", pool, ipaddress=f"{tenant.net}9")
    await tenant.refused("late", "RangeDraining")
    await tenant.refused("named", "RangeDraining")
    assert await tenant.served("web") == [f"{tenant.net}1"]
    await tenant.delete_reservation(f"{tenant.net}1")

    async def is_made_again() -> bool:
        return (await tenant.holders()) == {f"{tenant.net}1": "web"}

    await eventually(is_made_again, what="the reservation of who lives there")
    await tenant.change_range(pool, draining=False)
    assert await tenant.served("late", seconds=5) == [f"{tenant.net}2"]
    assert await tenant.served("named", seconds=5) == [f"{tenant.net}9"]


async def test_the_younger_of_two_that_overlap_gives_out_only_what_is_its_own_and_names_the_other(
    tenant: Tenant,
) -> None:
    # Of two that are made in the same second the name decides.
    older = await tenant.offer("a-older", f"{tenant.net}0/29")
    await tenant.capacity(older, total=6)
    younger = await tenant.offer("b-younger", f"{tenant.net}0/28")
    await ready(tenant, younger, "True", words=older, kind="Conflict")
    await ready(tenant, older, "False", kind="Conflict")
    await tenant.capacity(younger, total=8)
    await tenant.ask("web", younger)
    assert await tenant.served("web") == [f"{tenant.net}7"]
    await tenant.ask("named", younger, ipaddress=f"{tenant.net}3")
    await tenant.refused("named", "AddressOutOfRange", words=older)
    await tenant.ask("there", older, ipaddress=f"{tenant.net}3")
    assert await tenant.served("there") == [f"{tenant.net}3"]
    # Without the older one the younger has all of it, but what is held.
    await tenant.drop_range(older)
    await ready(tenant, younger, "False", kind="Conflict")
    await tenant.refused("named", "AddressInUse", words=f"{tenant.namespace}/there")


async def test_a_range_in_use_cannot_be_deleted_without_its_annotation_and_finds_its_addresses_when_it_returns(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.capacity(pool, used=1)
    with pytest.raises(ApiError, match="1 addresses are held"):
        await stack.client.delete(f"{RANGES}/{pool}")
    await tenant.drop_range(pool)
    found = await tenant.refused("web", "RangeNotFound", words=f"keeps {tenant.net}1")
    assert found["status"]["addresses"] == [f"{tenant.net}1"]
    assert await tenant.holders() == {f"{tenant.net}1": "web"}
    await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.capacity(pool, total=254, used=1)
    assert await tenant.served("web") == [f"{tenant.net}1"]
    await tenant.ask("next", pool)
    assert await tenant.served("next") == [f"{tenant.net}2"]


async def test_a_range_that_nobody_uses_can_be_deleted(stack: Stack, tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.capacity(pool, used=0)
    await stack.client.delete(f"{RANGES}/{pool}")
    assert await stack.client.find(f"{RANGES}/{pool}") is None


async def test_the_status_of_a_range_is_written_at_most_once_a_second_and_ends_true(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.capacity(pool, used=0)
    version = (await tenant.range(pool))["metadata"]["resourceVersion"]
    began = time.monotonic()
    gate = asyncio.Semaphore(8)

    async def ask(name: str) -> None:
        async with gate:
            await tenant.ask(name, pool)
            await tenant.served(name)

    await asyncio.gather(*(ask(f"fip-{index}") for index in range(120)))
    await tenant.capacity(pool, used=120, free=134)
    took = time.monotonic() - began
    writes = await _count_writes(stack, pool, since=version)
    assert 1 <= writes <= took + 1.5, f"{writes} writes in {took:.1f} s"


async def test_a_restart_moves_nothing_and_writes_nothing(stack: Stack, tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}4/31, {tenant.net6}/120", quarantineSeconds=3600)
    await tenant.ask("one", pool)
    await tenant.ask("two", pool, ipaddress=f"{tenant.net}5")
    await tenant.ask("dual", pool, ipFamilies=["IPv6"])
    for name in ("one", "two", "dual"):
        await tenant.served(name)
    await tenant.ask("gone", pool, ipFamilies=["IPv6"])
    await tenant.served("gone")
    await tenant.delete("gone")
    await tenant.ask("full", pool)
    await tenant.refused("full", "RangeFull")
    await tenant.ask("lost", "nowhere")
    await tenant.refused("lost", "RangeNotFound")
    await tenant.capacity(pool, used=3, quarantined=1)
    before = await _quiet_versions(stack)
    await stack.operators[-1].stop()
    restarted = await stack.start_operator()

    async def leads() -> bool:
        return "fipop_leader 1" in await restarted.metrics()

    await eventually(leads, seconds=20)
    # The proof that it works again, and is through with what it found: the last to come is served.
    await tenant.ask("last", pool, ipFamilies=["IPv6"])
    await tenant.served("last")
    await tenant.capacity(pool, used=4, quarantined=1)
    after = await _versions(stack)
    assert {key: version for key, version in after.items() if key in before and before[key] != version} == {
        ("FloatingIPRange", "", pool): after["FloatingIPRange", "", pool]
    }, "nothing but the counts of the range that served the last is written"


async def _versions(stack: Stack) -> dict[tuple[str, str, str], str]:
    """The version of every object of ours, of the settings and of Rancher's."""
    kinds = {
        "FloatingIPRange": RANGES,
        "FloatingIPReservation": RESERVATIONS,
        "FloatingIP": "/apis/kubefip.k8s.binbash.org/v1/floatingips",
        "Cluster": "/apis/provisioning.cattle.io/v1/clusters",
        "ManagementCluster": "/apis/management.cattle.io/v3/clusters",
        "Namespace": "/api/v1/namespaces",
        "ConfigMap": "/api/v1/configmaps",
    }
    return {
        (kind, each["metadata"].get("namespace", ""), each["metadata"]["name"]): each["metadata"][
            "resourceVersion"
        ]
        for kind, path in kinds.items()
        for each in await stack.client.items(path)
    }


async def _quiet_versions(stack: Stack) -> dict[tuple[str, str, str], str]:
    """The versions, once nothing has been written for longer than a range's status waits for its second."""
    quiet = await _versions(stack)
    since = time.monotonic()
    async with asyncio.timeout(30):
        while time.monotonic() - since < 2.0:
            await asyncio.sleep(0.25)
            now = await _versions(stack)
            if now != quiet:
                quiet, since = now, time.monotonic()
    return quiet


async def _count_writes(stack: Stack, name: str, *, since: str) -> int:
    """How many versions a range has had since one, as the API server keeps them for watchers."""
    last = (await stack.client.get(f"{RANGES}/{name}"))["metadata"]["resourceVersion"]
    count = 0
    async with asyncio.timeout(10):
        async for event in stack.client.watch(
            RANGES, resource_version=since, fieldSelector=f"metadata.name={name}"
        ):
            count += 1
            if event["object"]["metadata"]["resourceVersion"] == last:
                return count
    return count
