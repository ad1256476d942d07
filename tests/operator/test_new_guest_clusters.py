"""Guest clusters that Rancher is making or removing: they are at no fault, and nobody is alarmed."""

import pytest

from tests.harness.fleet import CLUSTERS, WORKSPACE, Fleet, build_fleet

A = "c-m-a"
X = "10.0.0.10"
HOUR = 3600
KUBECONFIG = ("secrets", WORKSPACE, f"cluster-{A}-kubeconfig")
PROVISIONING = ("Unknown", "GuestProvisioning")
CONFIGURED = ("True", "Configured")
LEAVING = ("Unknown", "GuestLeaving")


async def made_by_rancher(*, status: int = 0) -> Fleet:
    """Have a guest cluster that boots, and whose API server answers so as long as it does; fipop runs already."""
    fleet = Fleet()
    fleet.add_range()
    await fleet.start(leader_election=False)
    fleet.add_guest(A).status = status
    fleet.provision(A, "Unknown")
    fleet.ask(A)
    return fleet


async def configured() -> Fleet:
    """Have a guest cluster with an address."""
    fleet = build_fleet(A)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(30)
    assert fleet.condition(A, "GuestConfigured") == CONFIGURED
    return fleet


@pytest.mark.parametrize("status", [503, 403])
async def test_a_guest_cluster_that_boots_is_provisioning_and_served_as_soon_as_rancher_provisioned_it(
    status: int,
) -> None:
    fleet = await made_by_rancher(status=status)
    for _ in range(10):
        await fleet.pass_time(20)
        assert fleet.condition(A, "GuestConfigured") == PROVISIONING
    fleet.guests[A].status = 0
    fleet.provision(A)
    await fleet.settle()
    assert fleet.guests[A].addresses == {X}
    assert fleet.condition(A, "Ready") == ("True", "Ready")


async def test_a_guest_cluster_that_boots_is_asked_every_15_seconds() -> None:
    fleet = await made_by_rancher(status=503)
    await fleet.pass_time(30)
    before = fleet.guests[A].asked
    await fleet.pass_time(150)
    # Each visit asks for ConfigMaps and Services at once; every wait is up to a tenth shorter.
    assert 2 * 10 <= fleet.guests[A].asked - before <= 2 * 12


async def test_a_guest_cluster_that_answers_before_rancher_provisioned_it_is_served() -> None:
    fleet = await made_by_rancher(status=503)
    await fleet.pass_time(30)
    fleet.guests[A].status = 0
    await fleet.pass_time(15)
    assert fleet.condition(A, "GuestConfigured") == CONFIGURED
    fleet.guests[A].status = 503
    await fleet.pass_time(600)
    assert fleet.condition(A, "GuestConfigured") == ("False", "GuestUnreachable")


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("reason", ["GuestUnreachable", "GuestDisconnected", "KubeconfigMissing"])
async def test_a_guest_cluster_is_provisioning_for_an_hour_at_most(reason: str, is_restarted: bool) -> None:
    fleet = await made_by_rancher(status=503)
    if reason == "GuestDisconnected":
        fleet.disconnect(A)
    elif reason == "KubeconfigMissing":
        fleet.take_away(KUBECONFIG)
    await fleet.pass_time(60)
    if is_restarted:
        await fleet.restart(leader_election=False)
    assert fleet.condition(A, "GuestConfigured") == PROVISIONING
    before = fleet.link.requests["get", "secrets"]
    await fleet.pass_time(600)
    assert fleet.link.requests["get", "secrets"] - before < 60
    await fleet.skip_time(HOUR)
    await fleet.pass_time(600)
    assert (fleet.condition(A, "GuestConfigured"), fleet.addresses(A)) == (("False", reason), [X])


async def test_a_guest_cluster_is_provisioning_until_its_kubeconfig_exists_and_is_served_at_once() -> None:
    fleet = Fleet()
    fleet.add_range()
    await fleet.start(leader_election=False)
    fleet.add_guest(A, connected=False)
    fleet.ask(A)
    bring_back = fleet.take_away(KUBECONFIG)
    await fleet.pass_time(60)
    fleet.connect(A)
    await fleet.pass_time(0.3)
    assert fleet.condition(A, "GuestConfigured") == PROVISIONING
    bring_back()
    await fleet.pass_time(0.5)
    assert fleet.condition(A, "GuestConfigured") == CONFIGURED


async def test_a_young_guest_cluster_that_was_visited_and_loses_its_kubeconfig_is_not_provisioning() -> None:
    fleet = await configured()
    fleet.take_away(KUBECONFIG)
    await fleet.pass_time(600)
    assert fleet.condition(A, "GuestConfigured") == ("False", "KubeconfigMissing")


async def test_a_floating_ip_in_a_namespace_of_no_guest_cluster_is_told_so() -> None:
    fleet = Fleet()
    fleet.add_range(clusterSelector={"matchLabels": {}})
    await fleet.start(leader_election=False)
    fleet.add_guest(A)
    fleet.ask("default", range_name="")
    fleet.ask(f"Cluster-{A}", range_name="")
    await fleet.pass_time(5)
    question = f'(did you mean "{A}", that of cluster "cluster-{A}"?)'
    assert question in fleet.message(f"Cluster-{A}", "Allocated")
    assert "did you mean" not in fleet.message("default", "Allocated")
    for kind in ("Allocated", "GuestConfigured"):
        assert fleet.condition("default", kind) == ("False", "GuestNotFound")
        assert 'Namespace "default" belongs to no guest cluster' in fleet.message("default", kind)


def begin_deletion(fleet: Fleet, key: tuple[str, str, str]) -> None:
    """Have an object wait for its finalizers."""
    found = fleet.memory.objects[key]
    metadata = {**found["metadata"], "deletionTimestamp": fleet.memory.timestamp()}
    fleet.memory.put(key, {**found, "metadata": metadata})


@pytest.mark.parametrize("key", [(CLUSTERS, "", A), ("namespaces", "", A)], ids=["cluster", "namespace"])
async def test_a_guest_cluster_that_rancher_removes_is_leaving_until_its_namespace_is_gone(
    key: tuple[str, str, str],
) -> None:
    fleet = await configured()
    begin_deletion(fleet, key)
    await fleet.settle()
    assert fleet.condition(A, "Ready") == LEAVING
    fleet.disconnect(A)
    await fleet.pass_time(600)
    assert fleet.condition(A, "Ready") == LEAVING
    assert fleet.status(A)["guest"].get("reachable") is None
    fleet.memory.remove((CLUSTERS, WORKSPACE, f"cluster-{A}"))
    if key[0] == "namespaces":
        fleet.memory.remove((CLUSTERS, "", A))
    await fleet.pass_time(60)
    assert fleet.condition(A, "Ready") == fleet.condition(A, "GuestConfigured") == LEAVING
    assert fleet.addresses(A) == [X]


async def test_a_namespace_that_is_deleted_after_its_guest_cluster_is_gone_is_leaving() -> None:
    fleet = await configured()
    fleet.remove_guest(A)
    await fleet.settle()
    assert fleet.condition(A, "Ready") == ("False", "GuestNotFound")
    begin_deletion(fleet, ("namespaces", "", A))
    await fleet.settle()
    assert fleet.condition(A, "Ready") == LEAVING
