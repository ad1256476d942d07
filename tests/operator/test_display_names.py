"""A cluster that Rancher named by its id has another name for people. That shows everywhere, and gives no rights.

One that is removed from Rancher and imported again has another id. It is known by what people call it.
"""

import pytest

from tests.harness.api_in_memory import Commit
from tests.harness.fleet import EVERY_GUEST, WORKSPACE, Fleet
from tests.harness.history import FLOATING_IPS, RESERVATIONS

A, B, C = "c-aaaaa", "c-bbbbb", "c-ccccc"
X, Y = "10.0.0.10", "10.0.0.11"
SHOP = "shop-berlin"
HOUR = 3600.0


def add(fleet: Fleet, guest_id: str, called: str = SHOP, **options: object) -> None:
    """Import a cluster in Rancher's pages, whose machines are those of another one if that uses its addresses."""
    fleet.add_guest(guest_id, imported=True, named=guest_id, called=called, is_served=True, **options)  # type: ignore[arg-type]


async def served(**spec: object) -> Fleet:
    """Have an imported cluster with an address that one of its Services uses."""
    fleet = Fleet()
    fleet.set_options(operateGuestClusterInterval="60")
    fleet.add_range(clusterSelector=EVERY_GUEST, **spec)
    add(fleet, A)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    assert fleet.held() == {f"default.{X}": A}
    return fleet


def leave(fleet: Fleet, guest_id: str = A) -> None:
    """Remove a cluster from Rancher, with its namespace."""
    fleet.remove_guest(guest_id, named=guest_id)
    for key in [*fleet.memory.objects]:
        if key[0] == FLOATING_IPS and key[1] == guest_id:
            fleet.memory.remove(key)
    fleet.memory.remove(("namespaces", "", guest_id))


def come_back(fleet: Fleet) -> None:
    """Import it again: it still has its ConfigMap and Service."""
    add(fleet, B)
    fleet.guests[B].add_service(X)


# Removed and imported again


async def test_a_cluster_that_is_imported_again_under_another_id_gets_its_address_back_at_once() -> None:
    fleet = await served()
    leave(fleet)
    await fleet.pass_time(HOUR)
    assert fleet.quarantined() == {f"default.{X}"}
    come_back(fleet)
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": B}
    assert fleet.addresses(B, f"{B}-kubevip") == [X]
    assert fleet.guests[B].addresses == {X}
    assert fleet.problems == []


async def test_a_cluster_that_was_registered_by_its_name_is_the_one_that_is_called_so_now() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    fleet.add_guest("c-m-aaaaaaaa", imported=True, named=SHOP, is_served=True)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    fleet.remove_guest("c-m-aaaaaaaa", named=SHOP)
    fleet.give_up("c-m-aaaaaaaa", f"{SHOP}-kubevip")
    await fleet.pass_time(120)
    come_back(fleet)
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": B}


async def test_its_name_stays_known_while_rancher_removes_it_which_begins_with_the_object_that_has_the_name() -> (
    None
):
    fleet = await served()
    fleet.memory.remove(("clusters", "", A))
    await fleet.pass_time(5)
    fleet.memory.remove(("clusters", WORKSPACE, A))
    fleet.carries(A, set())
    fleet.give_up(A, f"{A}-kubevip")
    await fleet.pass_time(60)
    come_back(fleet)
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": B}


async def test_a_cluster_that_is_imported_again_gets_an_address_back_from_another_range_than_a_new_one_would() -> (
    None
):
    fleet = await served()
    leave(fleet)
    await fleet.pass_time(60)
    fleet.add_range("earlier", "10.0.1.10-10.0.1.13", clusterSelector=EVERY_GUEST)
    key = ("floatingipranges", "", "earlier")
    found = fleet.memory.objects[key]
    created = {"creationTimestamp": "2020-01-01T00:00:00Z"}
    fleet.memory.put(key, {**found, "metadata": {**found["metadata"], **created}})
    await fleet.pass_time(5)
    come_back(fleet)
    await fleet.pass_time(90)
    assert fleet.held() == {f"default.{X}": B}


async def test_a_range_is_not_chosen_for_an_address_that_another_cluster_of_that_name_had() -> None:
    fleet = Fleet()
    fleet.add_range("first", f"{X}-{Y}", clusterSelector=EVERY_GUEST)
    await fleet.pass_time(2)
    fleet.add_range("full", "10.0.1.10-10.0.1.10", clusterSelector=EVERY_GUEST, quarantineSeconds=HOUR)
    add(fleet, A)
    fleet.ask(A, name=f"{A}-kubevip", range_name="full")
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    fleet.annotate(("clusters", WORKSPACE, A), {"kubefip.k8s.binbash.org/floating-ip": "false"})
    fleet.give_up(A, f"{A}-kubevip")
    await fleet.pass_time(10)
    assert fleet.quarantined() == {"default.10.0.1.10"}
    add(fleet, B)
    await fleet.pass_time(120)
    assert fleet.held() == {f"default.{X}": B}


@pytest.mark.parametrize(
    ("called", "uses", "workspace"),
    [(SHOP, "", WORKSPACE), ("shop", X, WORKSPACE), (SHOP, X, "fleet-other")],
    ids=["without the address", "another name", "another workspace"],
)
async def test_another_cluster_does_not_get_the_address_of_one_that_left(
    called: str, uses: str, workspace: str
) -> None:
    fleet = await served()
    leave(fleet)
    await fleet.pass_time(60)
    add(fleet, B, called, workspace=workspace)
    if uses:
        fleet.guests[B].add_service(uses)
    await fleet.pass_time(120)
    assert fleet.held() == {f"default.{Y}": B}


async def test_of_two_clusters_that_are_called_so_none_gets_the_address() -> None:
    fleet = await served()
    leave(fleet)
    await fleet.pass_time(60)
    fleet.add_guest(C, named=SHOP)
    come_back(fleet)
    await fleet.pass_time(120)
    assert fleet.held() == {f"default.{Y}": B}


async def test_a_cluster_that_is_only_called_like_one_whose_machines_rancher_removed_gets_nothing_of_it() -> (
    None
):
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST, quarantineSeconds=HOUR)
    fleet.add_guest("c-m-aaaaaaaa", named=SHOP, is_served=True)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    fleet.remove_guest("c-m-aaaaaaaa", named=SHOP)
    fleet.give_up("c-m-aaaaaaaa", f"{SHOP}-kubevip")
    await fleet.pass_time(60)
    add(fleet, B)
    await fleet.pass_time(120)
    assert fleet.held() == {f"default.{Y}": B}


async def test_a_cluster_that_lives_beside_the_former_one_does_not_get_its_address() -> None:
    fleet = await served()
    fleet.give_up(A, f"{A}-kubevip")
    come_back(fleet)
    await fleet.pass_time(20)
    assert fleet.held().get(f"default.{X}") != B


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_reservation_that_lacks_the_display_name_gets_it_while_its_cluster_is_there(
    *, is_held: bool
) -> None:
    fleet = await served(quarantineSeconds=HOUR)
    if not is_held:
        fleet.annotate(("clusters", WORKSPACE, A), {"kubefip.k8s.binbash.org/floating-ip": "false"})
        fleet.give_up(A, f"{A}-kubevip")
        await fleet.pass_time(10)
    await fleet.stop()
    key = (RESERVATIONS, "", f"default.{X}")
    found = fleet.memory.objects[key]
    owner = {name: value for name, value in found["spec"]["owner"].items() if name != "displayName"}
    assert owner != found["spec"]["owner"]
    fleet.memory.put(key, {**found, "spec": {**found["spec"], "owner": owner}})
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.memory.objects[key]["spec"]["owner"]["displayName"] == SHOP


async def test_a_reservation_of_a_cluster_with_a_name_of_its_own_stays_as_it_is() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST)
    fleet.add_guest("c-m-a", named="demo", called="Demo", is_served=True)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    assert "displayName" not in fleet.memory.objects[RESERVATIONS, "", f"default.{X}"]["spec"]["owner"]


# Rights


async def test_a_display_name_gives_no_right_and_the_condition_has_the_name_to_write() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector=EVERY_GUEST, allowedClusters=[SHOP])
    add(fleet, A)
    fleet.ask(A)
    await fleet.start(leader_election=False)
    await fleet.pass_time(30)
    assert (fleet.held(), fleet.condition(A)) == ({}, ("False", "RangeRestricted"))
    assert f'"{SHOP}" is only its display name, write "{A}"' in fleet.message(A)


async def test_an_override_by_a_display_name_changes_nothing_and_the_condition_has_the_name_to_write() -> (
    None
):
    fleet = Fleet()
    overrides = f'[{{name: berlin, clusters: [{SHOP}], values: {{env: {{x: "1"}}}}}}]'
    fleet.set_options(kubevipGuestInstall="enabled", kubevipChartValuesOverrides=overrides)
    fleet.add_range(clusterSelector=EVERY_GUEST)
    add(fleet, A)
    await fleet.start(leader_election=False)
    await fleet.pass_time(90)
    name = f"{A}-kubevip"
    assert fleet.condition(A, "KubeVipReady", name) == ("True", "DisplayNameIgnored")
    assert f'write "{A}"' in fleet.message(A, "KubeVipReady", name)
    assert fleet.condition(A, "CloudProviderReady", name) == ("True", "Ready")


# Messages


async def test_messages_have_the_display_name_beside_the_id() -> None:
    fleet = await served(iprange=f"{X}-{X}")
    fleet.add_guest("c-m-b")
    fleet.ask("c-m-b", X)
    await fleet.pass_time(30)
    assert f'of cluster "{A}" ({SHOP})' in fleet.message("c-m-b")
    fleet.guests[A].add_service("10.0.0.12")
    fleet.change_range(iprange="10.0.0.10-10.0.0.12")
    await fleet.pass_time(90)
    fleet.change("c-m-b", ipaddress="10.0.0.12")
    await fleet.pass_time(30)
    assert f"guest cluster {A} ({SHOP})" in fleet.message("c-m-b")


async def test_a_crd_that_does_not_keep_the_display_name_holds_no_quarantine_up() -> None:
    fleet = await served(quarantineSeconds=90)
    fleet.annotate(("clusters", WORKSPACE, A), {"kubefip.k8s.binbash.org/floating-ip": "false"})
    fleet.give_up(A, f"{A}-kubevip")

    def prune(commit: Commit) -> None:
        owner = ((commit.obj or {}).get("spec") or {}).get("owner") or {}
        if commit.key[0] == RESERVATIONS and "displayName" in owner:
            kept = {name: value for name, value in owner.items() if name != "displayName"}
            fleet.memory.objects[commit.key] = {**commit.obj, "spec": {**commit.obj["spec"], "owner": kept}}  # type: ignore[dict-item,index]

    fleet.memory.listeners.insert(0, prune)
    await fleet.pass_time(600)
    assert (fleet.held(), fleet.quarantined()) == ({}, set())


async def test_a_floating_ip_in_a_namespace_that_is_called_as_its_cluster_gets_a_question() -> None:
    fleet = await served()
    annotations = {"provisioning.cattle.io/management-cluster-display-name": SHOP}
    fleet.annotate(("clusters", WORKSPACE, A), annotations)
    fleet.ask(SHOP)
    await fleet.pass_time(30)
    assert f'did you mean "{A}", that of cluster "{SHOP}"?' in fleet.message(SHOP, "GuestConfigured")


async def test_a_question_names_the_cluster_that_has_the_name_before_one_that_is_only_called_so() -> None:
    fleet = await served()
    fleet.add_guest("c-m-b", named=SHOP)
    annotations = {"provisioning.cattle.io/management-cluster-display-name": SHOP}
    for guest_id in (A, "c-z", "z"):
        add(fleet, guest_id)
        fleet.annotate(("clusters", WORKSPACE, guest_id), annotations)
    fleet.ask(SHOP)
    await fleet.pass_time(30)
    assert f'did you mean "c-m-b", that of cluster "{SHOP}"?' in fleet.message(SHOP, "GuestConfigured")
