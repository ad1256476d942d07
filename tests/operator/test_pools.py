"""Pools that Services choose: the keys of a guest cluster, who may use them, and floating IPs for those that wait."""

from typing import Any

import pytest

from tests.harness.fleet import EVERY_GUEST, Fleet
from tests.harness.provider_stand_in import CONDITION
from tests.operator.test_demand import FIRST, SECOND, SOON, THIRD, A, addresses_of, made, started

VISITED = 150
"""Every guest cluster was visited twice in that time."""
KVCP, FIPOP = "kubevip/kube-vip-cloud-provider", "registry.example:5000/platform/fipop"


def keys(fleet: Fleet) -> dict[str, str]:
    """Return the keys of the guest cluster."""
    return dict(fleet.guests[A].config_map)


async def serving() -> Fleet:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.add_range(interface="eth1")
    fleet.add_guest(A)
    await fleet.start(leader_election=False)
    return fleet


# The ConfigMap


async def test_a_pool_has_its_addresses_and_all_else_in_keys_of_its_own_until_its_floating_ips_are_gone() -> (
    None
):
    fleet = await serving()
    fleet.ask(A, name="one", pool="dmz", poolNamespaces=["shop", "api"], allowShare=True)
    await fleet.pass_time(5)
    fleet.ask(A, name="two", pool="dmz", poolNamespaces=["billing"], interface="eth5")
    fleet.ask(A, name="web")
    await fleet.pass_time(VISITED)
    assert keys(fleet) == {
        "cidr-dmz": "10.0.0.10/32,10.0.0.11/32",
        "allow-pool-dmz": "api,billing,shop",
        "allow-share-dmz": "true",
        "interface-dmz": "eth1",
        "cidr-global": "10.0.0.12/32",
        "interface-global": "eth1",
    }
    assert "Set serviceNamespace or pool" in fleet.message(A, "GuestConfigured", "two")
    fleet.change(A, "two", poolNamespaces=["*"])
    await fleet.pass_time(5)
    assert keys(fleet)["allow-pool-dmz"] == "*"
    fleet.change(A, "one", poolNamespaces=[])
    fleet.change(A, "two", poolNamespaces=[])
    await fleet.pass_time(VISITED)
    assert "allow-pool-dmz" not in keys(fleet), "only namespace dmz may choose it"
    for each in ("one", "two"):
        fleet.change(A, each, poolNamespaces=["shop"])
        await fleet.pass_time(VISITED)
        fleet.give_up(A, each)
    await fleet.pass_time(VISITED)
    assert set(keys(fleet)) == {"cidr-global", "interface-global"}


async def test_a_pool_and_a_namespace_of_one_name_have_one_key() -> None:
    fleet = await serving()
    fleet.ask(A, name="one", pool="shop")
    await fleet.pass_time(5)
    fleet.ask(A, name="two", serviceNamespace="shop")
    await fleet.pass_time(VISITED)
    assert keys(fleet) == {"cidr-shop": "10.0.0.10/32,10.0.0.11/32", "interface-shop": "eth1"}


async def test_who_may_choose_a_pool_is_left_to_the_guest_cluster_if_it_wrote_that_itself() -> None:
    fleet = await serving()
    fleet.guests[A].write_config_map(allow_pool_dmz="shop")
    fleet.ask(A, name="one", pool="dmz")
    await fleet.pass_time(VISITED)
    assert (keys(fleet)["allow-pool-dmz"], keys(fleet)["cidr-dmz"]) == ("shop", "10.0.0.10/32")
    assert fleet.condition(A, "GuestConfigured", "one") == ("True", "Configured")
    fleet.change(A, "one", poolNamespaces=["api"])
    await fleet.pass_time(VISITED)
    assert keys(fleet)["allow-pool-dmz"] == "shop"
    assert fleet.condition(A, "GuestConfigured", "one") == ("False", "ForeignValue")


@pytest.mark.parametrize(
    "spec",
    [
        {"pool": "dmz", "serviceNamespace": "shop"},
        {"pool": "global"},
        {"pool": "", "poolNamespaces": ["shop"]},
    ],
)
async def test_a_spec_that_contradicts_itself_is_a_condition_and_changes_no_key(spec: dict[str, Any]) -> None:
    fleet = await serving()
    fleet.ask(A, name="one", pool="dmz", poolNamespaces=["shop"])
    await fleet.pass_time(VISITED)
    before = keys(fleet)
    fleet.change(A, "one", **{"poolNamespaces": [], **spec})  # past the rules of the CRD
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, name="one") == ("False", "InvalidSpec")
    assert fleet.message(A, name="one").startswith("The FloatingIP is invalid: spec must ")
    assert fleet.addresses(A, "one") == ["10.0.0.10"]
    assert keys(fleet) == before
    assert "allow-pool-dmz" in before


# The provider


async def test_a_floating_ip_says_that_kube_vip_cloud_provider_ignores_its_pool_and_fipop_does_not() -> None:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60", kubevipUpdate="true", **_image(KVCP))
    fleet.add_range()
    fleet.add_guest(A)
    fleet.opt_in(A)
    await fleet.start(leader_election=False)
    fleet.ask(A, name="one", pool="dmz")
    fleet.ask(A, name="web")
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured", "one") == ("True", "PoolIgnored")
    assert "Services of namespace dmz only" in fleet.message(A, "GuestConfigured", "one")
    assert fleet.condition(A, "Ready", "one") == ("True", "Ready")
    assert fleet.condition(A, "GuestConfigured") == ("True", "Configured")
    fleet.set_options(operateGuestClusterInterval="60", kubevipUpdate="true", **_image(FIPOP))
    await fleet.pass_time(10 * VISITED)
    assert fleet.condition(A, "GuestConfigured", "one") == ("True", "Configured")


async def test_a_kube_vip_cloud_provider_that_people_installed_is_told_as_well() -> None:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60", **_image(FIPOP))
    fleet.add_range()
    guest = fleet.add_guest(A)
    fleet.opt_in(A)
    key = ("deployments", "vip", "provider")
    guest.put_workload(key, KVCP, KUBEVIP_NAMESPACE="kube-system", KUBEVIP_CONFIG_MAP="kubevip")
    await fleet.start(leader_election=False)
    fleet.ask(A, name="one", pool="dmz")
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured", "one") == ("True", "PoolIgnored")
    guest.put_workload(key, KVCP, KUBEVIP_NAMESPACE="vip", KUBEVIP_CONFIG_MAP="kubevip")
    await fleet.skip_time(7200)  # all Deployments are read hourly
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "GuestConfigured", "one") == ("True", "Configured"), "of another ConfigMap"


def _image(repository: str) -> dict[str, str]:
    return {"kubevipCloudProviderChartValues": f"image: {{repository: {repository}}}"}


# Floating IPs for Services


async def with_pool(**spec: Any) -> Fleet:
    """Have a guest cluster with `perGuest`, a floating IP for all Services, and one of pool dmz."""
    fleet = await started()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.ask(A, name="dmz", pool="dmz", **spec)
    await fleet.pass_time(SOON)
    fleet.guests[A].add_service("10.0.0.10", name="first")
    return fleet


async def test_a_service_of_a_full_pool_gets_a_floating_ip_of_the_pool_and_that_goes_with_it() -> None:
    fleet = await with_pool(poolNamespaces=["shop"])
    guest = fleet.guests[A]
    guest.add_service(name="web-0", namespace="shop", pool="dmz")
    await fleet.pass_time(SOON)
    assert (addresses_of(fleet, "web-0", "shop"), made(fleet)) == (["10.0.0.11"], [FIRST, "dmz"])
    guest.add_service(name="web-1", namespace="shop", pool="dmz")
    await fleet.pass_time(2 * SOON)
    assert made(fleet) == [FIRST, SECOND, "dmz"]
    spec = fleet.floating_ip(A, SECOND)["spec"]
    assert (spec["pool"], "poolNamespaces" in spec, "serviceNamespace" in spec) == ("dmz", False, False)
    assert addresses_of(fleet, "web-1", "shop") == ["10.0.0.12"]
    assert keys(fleet)["allow-pool-dmz"] == "shop"
    guest.remove_service("web-1", "shop")
    await fleet.pass_time(60)
    guest.add_service(name="other", namespace="shop")  # without a pool: it keeps nothing of pool dmz
    await fleet.pass_time(300)
    assert made(fleet) == [FIRST, THIRD, "dmz"]
    assert "pool" not in fleet.floating_ip(A, THIRD)["spec"]


@pytest.mark.parametrize(
    ("namespace", "pool", "spec"),
    [
        ("other", "dmz", {"poolNamespaces": ["shop"]}),
        ("other", "dmz", {}),
        ("dmz", "dmz", {"poolNamespaces": ["shop"]}),
        ("edge", "edge", {"poolNamespaces": ["*"]}),
        ("shop", "global", {"poolNamespaces": ["*"]}),
        ("shop", "", {"poolNamespaces": ["*"]}),
    ],
    ids=[
        "not named",
        "nobody named",
        "not even that of its name",
        "no such pool",
        "the key of all",
        "no name",
    ],
)
async def test_a_service_that_may_not_choose_a_pool_or_chooses_none_that_exists_is_no_demand(
    namespace: str, pool: str, spec: dict[str, Any]
) -> None:
    fleet = await with_pool(**spec)
    for number in range(3):
        fleet.guests[A].add_service(name=f"web-{number}", namespace=namespace, pool=pool)
    await fleet.pass_time(4 * VISITED)
    assert made(fleet) == [FIRST, "dmz"]
    assert fleet.condition(A, "DemandMet", FIRST) == ("True", "DemandMet")
    assert "waiting" not in fleet.status(A, FIRST)
    assert addresses_of(fleet, "web-0", namespace) == []


async def test_a_service_of_a_pool_that_another_writer_gives_addresses_to_is_no_demand() -> None:
    fleet = await with_pool()
    fleet.guests[A].write_config_map(range_dmz="192.168.0.1")
    await fleet.pass_time(VISITED)
    for number in range(3):
        fleet.guests[A].add_service(name=f"web-{number}", namespace="dmz", pool="dmz")
    await fleet.pass_time(4 * VISITED)
    assert made(fleet) == [FIRST, "dmz"]


async def test_a_service_that_may_not_choose_a_pool_is_no_demand_whatever_a_provider_says() -> None:
    fleet = await with_pool()
    since = fleet.guests[A].timestamp()
    told = {"type": CONDITION, "status": "False", "reason": "PoolFull", "lastTransitionTime": since}
    for number in range(3):
        fleet.guests[A].add_service(name=f"web-{number}", namespace="other", pool="dmz")
        key = ("services", "other", f"web-{number}")
        fleet.guests[A].put(key, {**fleet.guests[A].objects[key], "status": {"conditions": [told]}})
    await fleet.pass_time(4 * VISITED)
    assert made(fleet) == [FIRST, "dmz"]


@pytest.mark.parametrize(("repository", "is_made"), [(KVCP, True), (FIPOP, False)])
async def test_where_kube_vip_cloud_provider_runs_a_service_waits_as_if_it_chose_no_pool(
    repository: str, *, is_made: bool
) -> None:
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60", **_image(repository))
    fleet.add_range(clusterSelector=EVERY_GUEST, perGuest={"maxAllocate": 4})
    guest = fleet.add_guest(A, is_served=True)
    fleet.opt_in(A)
    await fleet.start()
    await fleet.pass_time(20)
    fleet.ask(A, name="dmz", pool="dmz", poolNamespaces=["*"])
    await fleet.pass_time(VISITED)
    guest.add_service("10.0.0.10", name="first")
    guest.add_service(name="waits", namespace="shop", pool="dmz")
    await fleet.pass_time(VISITED)
    assert made(fleet) == [FIRST, *([SECOND] if is_made else []), "dmz"]
    assert not is_made or "pool" not in fleet.floating_ip(A, SECOND)["spec"]


async def test_the_namespace_of_its_name_uses_a_pool_with_the_annotation_and_without() -> None:
    fleet = await with_pool()
    for number, pool in enumerate(["dmz", None, "dmz"]):
        fleet.guests[A].add_service(name=f"web-{number}", namespace="dmz", pool=pool)
    await fleet.pass_time(3 * SOON)
    assert made(fleet) == [FIRST, SECOND, THIRD, "dmz"]
    assert [fleet.floating_ip(A, each)["spec"].get("pool") for each in (SECOND, THIRD)] == ["dmz", "dmz"]
    assert all(addresses_of(fleet, f"web-{number}", "dmz") for number in range(3))
