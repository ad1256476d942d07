"""Changed wishes: the new address is had before the old one is given up; where it is not, nothing moves."""

import asyncio

import pytest

from fipop.deadlines import UNDER_WAY_SECONDS
from localfleet.stack import RESERVATIONS, Stack, condition
from localfleet.waiting import eventually
from tests.api.tenant import Json, Tenant

pytestmark = pytest.mark.xdist_group("shared-stack")


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


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ("9", "AddressInUse"),
        ("200", "AddressOutOfRange"),
        ("3", "AddressOutOfRange"),
    ],
)
async def test_where_the_new_address_cannot_be_had_the_old_one_stays_and_the_condition_says_why(
    tenant: Tenant, wish: str, reason: str
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/25", exclude=[f"{tenant.net}3"])
    await tenant.ask("holder", pool, ipaddress=f"{tenant.net}9")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}5")
    await tenant.served("holder")
    await tenant.served("web")
    await tenant.change("web", ipaddress=f"{tenant.net}{wish}")
    found = await tenant.refused("web", reason, words=f"keeps {tenant.net}5")
    assert found["status"]["addresses"] == [f"{tenant.net}5"]
    assert found["spec"]["ipaddress"] == f"{tenant.net}{wish}", "the wish is the admin's: it stays as written"
    assert await tenant.holders() == {f"{tenant.net}9": "holder", f"{tenant.net}5": "web"}


async def test_another_spelling_of_the_same_address_moves_and_writes_nothing(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net6}/64")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net6}ab")
    await tenant.served("web")
    (before,) = [each for each in await _reservations(tenant) if each["spec"]["owner"]["name"] == "web"]
    spelled = f"{tenant.net6}00AB".upper()
    await tenant.change("web", ipaddress=spelled)
    assert await tenant.served("web") == [f"{tenant.net6}ab"]
    assert (await tenant.read("web"))["spec"]["ipaddress"] == spelled
    (after,) = [each for each in await _reservations(tenant) if each["spec"]["owner"]["name"] == "web"]
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_chosen_address_moves_with_the_range_that_is_named(tenant: Tenant) -> None:
    old = await tenant.offer("old", f"{tenant.net}0/26")
    new = await tenant.offer("new", f"{tenant.net}128/26")
    await tenant.ask("web", old)
    assert await tenant.served("web") == [f"{tenant.net}1"]
    await tenant.move("web", new)

    async def has_moved() -> bool:
        return await tenant.served("web") == [f"{tenant.net}129"]

    await eventually(has_moved)
    assert (await tenant.read("web"))["spec"]["ipaddress"] == f"{tenant.net}129"
    assert (await tenant.read("web"))["status"]["range"] == new
    await tenant.quarantined(f"{tenant.net}1")
    await tenant.capacity(old, used=0, quarantined=1)
    await tenant.capacity(new, used=1, quarantined=0)


async def test_a_full_range_takes_nobody_in_and_who_wanted_there_stays_until_it_has_room(
    tenant: Tenant,
) -> None:
    old = await tenant.offer("old", f"{tenant.net}0/26")
    new = await tenant.offer("new", f"{tenant.net}128")
    await tenant.ask("holder", new)
    await tenant.served("holder")
    await tenant.ask("web", old)
    await tenant.served("web")
    await tenant.move("web", new)
    found = await tenant.refused("web", "RangeFull", words=f"keeps {tenant.net}1")
    assert found["status"]["range"] == old
    await tenant.change_range(new, iprange=f"{tenant.net}128-{tenant.net}129")
    assert await tenant.served("web", seconds=5) == [f"{tenant.net}129"]


async def test_an_address_that_was_asked_for_by_name_is_not_changed_for_another_by_a_move(
    tenant: Tenant,
) -> None:
    old = await tenant.offer("old", f"{tenant.net}0/26")
    new = await tenant.offer("new", f"{tenant.net}128/26")
    await tenant.ask("web", old, ipaddress=f"{tenant.net}5")
    await tenant.served("web")
    await tenant.move("web", new)
    found = await tenant.refused("web", "AddressOutOfRange", words=new)
    assert found["status"]["addresses"] == [f"{tenant.net}5"]
    assert found["status"]["range"] == old


async def test_an_address_that_both_ranges_hold_stays_and_counts_in_the_new_one(tenant: Tenant) -> None:
    wide = await tenant.offer("wide", f"{tenant.net}0/24")
    await tenant.ask("web", wide)
    await tenant.served("web")
    # The older range gives out what both have; without it the younger one does.
    young = await tenant.offer("young", f"{tenant.net}0/25")
    await tenant.change_range(wide, iprange=f"{tenant.net}128/25")
    await tenant.capacity(wide, used=0, outOfRange=1)
    await tenant.move("web", young)

    async def counts_in_the_new_one() -> bool:
        found = await tenant.reservation(f"{tenant.net}1")
        return found is not None and found["spec"]["range"] == young

    await eventually(counts_in_the_new_one)
    assert await tenant.served("web") == [f"{tenant.net}1"]
    await tenant.capacity(young, used=1)
    await tenant.capacity(wide, used=0, outOfRange=0)


async def test_in_another_space_a_held_address_can_be_held_again(tenant: Tenant) -> None:
    here = await tenant.offer("here", f"{tenant.net}0/24")
    there = await tenant.offer("there", f"{tenant.net}0/24", addressSpace=f"space-{tenant.number}")
    await tenant.ask("web", here, ipaddress=f"{tenant.net}5")
    await tenant.ask("api", there, ipaddress=f"{tenant.net}5")
    assert await tenant.served("web") == await tenant.served("api") == [f"{tenant.net}5"]


async def test_another_space_in_which_the_address_is_taken_leaves_the_first_one_in_force(
    tenant: Tenant,
) -> None:
    taken = await tenant.offer("taken", f"{tenant.net}0/24", addressSpace=f"space-{tenant.number}")
    await tenant.ask("holder", taken, ipaddress=f"{tenant.net}5")
    await tenant.served("holder")
    pool = await tenant.offer("pool", f"{tenant.net}4-{tenant.net}5")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}5")
    await tenant.served("web")
    await tenant.move("web", taken)
    found = await tenant.refused("web", "AddressInUse", words=f"{tenant.namespace}/holder")
    assert found["status"]["addresses"] == [f"{tenant.net}5"]
    assert found["status"]["addressSpace"] == "default"
    holder = await tenant.reservation(f"{tenant.net}5")
    assert holder is not None
    assert holder["spec"]["owner"]["name"] == "web"


async def test_a_range_made_again_in_another_space_gives_out_nothing_while_an_address_of_its_name_is_held(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24", quarantineSeconds=1)
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.drop_range(pool)
    await tenant.offer(
        "pool", f"{tenant.net}0/24", quarantineSeconds=1, addressSpace=f"space-{tenant.number}"
    )

    async def says_so() -> bool:
        return condition(await tenant.range(pool), "Ready").get("reason") == "AddressSpaceChanged"

    # Until the operator has seen the new range, the former one serves.
    await eventually(says_so)
    await tenant.ask("new", pool)
    await tenant.refused("new", "AddressSpaceChanged", words='"default"')
    assert (await tenant.read("web"))["status"]["addresses"] == [f"{tenant.net}1"]
    await tenant.delete("web")
    assert await tenant.served("new", seconds=20) == [f"{tenant.net}1"]


async def test_who_asks_for_both_families_later_keeps_what_it_has_until_both_can_be_had(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.change("web", ipFamilyPolicy="RequireDualStack")
    found = await tenant.refused("web", "FamilyMissing", words=f"keeps {tenant.net}1")
    assert found["status"]["addresses"] == [f"{tenant.net}1"]
    await tenant.change_range(pool, iprange=f"{tenant.net}0/24,{tenant.net6}/64")

    async def has_both() -> bool:
        return await tenant.served("web") == [f"{tenant.net}1", f"{tenant.net6}1"]

    await eventually(has_both)
    assert (await tenant.read("web"))["spec"]["ipaddress"] == f"{tenant.net}1,{tenant.net6}1"


async def test_who_asks_for_one_family_only_gives_the_other_back(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24,{tenant.net6}/64")
    await tenant.ask("web", pool, ipFamilyPolicy="PreferDualStack")
    await tenant.served("web")
    await tenant.change("web", ipFamilyPolicy="SingleStack", ipaddress=f"{tenant.net6}1")
    assert await tenant.served("web") == [f"{tenant.net6}1"]
    await tenant.quarantined(f"{tenant.net}1")


async def test_an_address_of_another_family_that_cannot_be_had_costs_nothing_that_is_held(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24,{tenant.net6}/64")
    await tenant.ask("holder", pool, ipaddress=f"{tenant.net}5")
    await tenant.served("holder")
    await tenant.ask("web", pool, ipFamilies=["IPv6"])
    assert await tenant.served("web") == [f"{tenant.net6}1"]
    await tenant.change("web", ipFamilies=["IPv4"], ipaddress=f"{tenant.net}5")
    found = await tenant.refused("web", "AddressInUse", words=f"keeps {tenant.net6}1")
    assert found["status"]["addresses"] == [f"{tenant.net6}1"]


@pytest.mark.parametrize("times", range(3))
async def test_a_wish_that_goes_back_and_forth_ends_as_if_it_had_never_moved(
    tenant: Tenant, times: int
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool, ipaddress=f"{tenant.net}5")
    await tenant.served("web")
    for address in (f"{tenant.net}6", "1::2::3", f"{tenant.net}5", f"{tenant.net}7", f"{tenant.net}5") * (
        times + 1
    ):
        await tenant.change("web", ipaddress=address)
    assert await tenant.served("web") == [f"{tenant.net}5"]

    async def has_given_back_the_rest() -> bool:
        return await tenant.holders() == {f"{tenant.net}5": "web"}

    await eventually(has_given_back_the_rest)
    assert await tenant.served("web") == [f"{tenant.net}5"]


async def test_a_wish_that_cannot_be_read_moves_nothing(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    await tenant.ask("web", pool)
    await tenant.served("web")
    await tenant.change("web", ipaddress="1::2::3")
    found = await tenant.refused("web", "InvalidSpec", words="1::2::3")
    assert found["status"]["addresses"] == [f"{tenant.net}1"]
    await tenant.change("web", ipaddress=f"{tenant.net}1")
    assert await tenant.served("web") == [f"{tenant.net}1"]


async def test_a_move_that_was_cut_short_after_its_first_write_is_completed_and_not_made_again(
    stack: Stack, tenant: Tenant
) -> None:
    old = await tenant.offer("old", f"{tenant.net}0/26")
    new = await tenant.offer("new", f"{tenant.net}128/26")
    made = await tenant.ask("web", old)
    await tenant.served("web")
    await tenant.ask("neighbour", new)
    assert await tenant.served("neighbour") == [f"{tenant.net}129"]
    # As a process leaves it that dies between its reservation and the floating IP.
    owner = {"namespace": tenant.namespace, "name": "web", "uid": made["metadata"]["uid"]}
    await stack.client.create(RESERVATIONS, _build_reservation(f"{tenant.net}140", new, owner))
    await tenant.move("web", new)

    async def has_moved() -> bool:
        found = await tenant.read("web")
        return (
            found["status"]["range"] == new
            and condition(found, "Allocated")["status"] == "True"
            and len([name for name in (await tenant.holders()).values() if name == "web"]) == 1
        )

    await eventually(has_moved)
    held = {address for address, name in (await tenant.holders()).items() if name == "web"}
    assert held == set((await tenant.read("web"))["status"]["addresses"])
    await tenant.quarantined(f"{tenant.net}1")


async def test_a_second_reservation_of_the_same_floating_ip_is_given_back(
    stack: Stack, tenant: Tenant
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    made = await tenant.ask("web", pool)
    await tenant.served("web")
    owner = {"namespace": tenant.namespace, "name": "web", "uid": made["metadata"]["uid"]}
    await stack.client.create(RESERVATIONS, _build_reservation(f"{tenant.net}40", pool, owner))
    # Whoever wrote it might be about to name it: it is given back when that can no longer be.
    await tenant.quarantined(f"{tenant.net}40", seconds=2 * UNDER_WAY_SECONDS)
    assert await tenant.holders() == {f"{tenant.net}1": "web"}
    assert await tenant.served("web") == [f"{tenant.net}1"]


async def test_a_range_that_is_asked_for_by_nobody_yet_serves_where_a_static_address_belongs(
    stack: Stack, tenant: Tenant
) -> None:
    await stack.player.create_harvester(f"harvester-{tenant.number}")
    harvester = stack.player.harvesters[-1]
    for name, iprange in (("one", f"{tenant.net}0/26"), ("two", f"{tenant.net}128/26")):
        await stack.client.create(
            "/apis/kubefip.k8s.binbash.org/v1/floatingipranges",
            _build_served_range(f"{name}-{tenant.number}", iprange, harvester.display_name),
        )
    guest = await stack.player.create_guest(
        stack.player.plan_guest(
            f"guest-{tenant.number}",
            harvester=harvester,
            annotations={"kubefip.k8s.binbash.org/floating-ip": "false"},
        )
    )
    there = Tenant(stack=stack, number=tenant.number, namespace=guest.cluster_id)
    await there.ask("web", None, ipaddress=f"{tenant.net}130")
    assert await there.served("web") == [f"{tenant.net}130"]
    assert (await there.read("web"))["status"]["range"] == f"two-{tenant.number}"
    await asyncio.gather(stack.player.delete_guest(guest))


def _build_served_range(name: str, iprange: str, harvester: str) -> Json:
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPRange",
        "metadata": {"name": name, "annotations": {"harvesterClusterName": harvester}},
        "spec": {"iprange": iprange},
    }


async def _reservations(tenant: Tenant) -> list[Json]:
    return [
        each
        for each in await tenant.stack.client.items(RESERVATIONS)
        if each["spec"].get("owner", {}).get("namespace") == tenant.namespace
    ]


def _build_reservation(address: str, range_name: str, owner: Json) -> Json:
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPReservation",
        "metadata": {"name": f"default.{address}"},
        "spec": {
            "address": address,
            "space": "default",
            "range": range_name,
            "owner": owner,
            "requested": "dynamic",
            "since": "2026-01-01T00:00:00Z",
        },
    }
