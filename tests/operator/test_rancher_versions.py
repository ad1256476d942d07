"""Clusters as Rancher 2.10 to 2.16 makes them, however they came into it: each is served, and found again.

What Rancher makes of a cluster differs between 2.10 and the later ones: only these have its display name on it.
"""

from dataclasses import replace

import pytest

from localfleet import rancher_objects as objects
from localfleet.rancher_plan import Credential, GuestKind, GuestPlan, HarvesterCluster
from tests.harness.fleet import CLUSTERS, EVERY_GUEST, WORKSPACE, Fleet

NAME, X = "shop-berlin", "10.0.0.10"
HARVESTER = HarvesterCluster(cluster_id="c-m-harv0001", display_name="hv1")
VERSIONS = [(2, 10), (2, 16)]
IMPORTED = (GuestKind.IMPORTED, GuestKind.LEGACY)


def bring_in(fleet: Fleet, plan: GuestPlan) -> None:
    """Have Rancher make all objects of a cluster, whose agent is connected."""
    imported = plan.kind in IMPORTED
    fleet.add_guest(plan.cluster_id, named=plan.provisioning_name, imported=imported)
    provisioning, management = (
        objects.build_provisioning_cluster(plan),
        objects.build_management_cluster(plan),
    )
    at = fleet.memory.timestamp()
    conditions = objects.build_management_conditions(connected=True, provisioned=True, at=at)
    if plan.credential is not None:
        for config in objects.build_harvester_configs(plan):
            fleet.write(("harvesterconfigs", WORKSPACE, config["metadata"]["name"]), config)
        fleet.add_harvester(HARVESTER.display_name)
        fleet.write((CLUSTERS, "", HARVESTER.cluster_id), objects.build_harvester_cluster(HARVESTER))
        fleet.write_credential(HARVESTER.display_name, cluster_id=HARVESTER.cluster_id)
    status = {**management["status"], "conditions": conditions}
    fleet.write((CLUSTERS, "", plan.cluster_id), {**management, "status": status})
    linked = objects.build_provisioning_status(plan, connected=True, at=at)
    fleet.write((CLUSTERS, WORKSPACE, plan.provisioning_name), {**provisioning, "status": linked})


def plan_of(kind: GuestKind, rancher: tuple[int, int]) -> GuestPlan:
    guest_id = "c-k7w2p" if kind is GuestKind.LEGACY else "c-m-k7w2pxyz"
    on_harvester = kind is GuestKind.HARVESTER
    credential = Credential(name="cc-hv1", harvester=HARVESTER) if on_harvester else None
    labels = {"kube-vip": "true"}
    return GuestPlan(
        name=NAME, cluster_id=guest_id, kind=kind, rancher=rancher, credential=credential, labels=labels
    )


@pytest.mark.parametrize("kind", list(GuestKind), ids=lambda kind: kind.name)
@pytest.mark.parametrize("rancher", VERSIONS, ids=lambda each: ".".join(map(str, each)))
async def test_a_cluster_of_each_kind_and_version_is_served_and_installed(
    kind: GuestKind, rancher: tuple[int, int]
) -> None:
    fleet, plan = Fleet(), plan_of(kind, rancher)
    fleet.add_range(harvester="hv1" if kind is GuestKind.HARVESTER else "", clusterSelector=EVERY_GUEST)
    bring_in(fleet, plan)
    await fleet.start()
    await fleet.pass_time(60)
    name = f"{plan.provisioning_name}-kubevip"
    assert fleet.addresses(plan.cluster_id, name) == [X]
    assert fleet.condition(plan.cluster_id, "Ready", name) == ("True", "Ready")
    assert fleet.guests[plan.cluster_id].addresses == {X}
    assert fleet.problems_on_lease() == []
    owner = fleet.memory.objects["floatingipreservations", "", f"default.{X}"]["spec"]["owner"]
    assert owner.get("displayName") == (NAME if kind is GuestKind.LEGACY else None)
    assert bool(owner.get("imported")) is (kind in (*IMPORTED, GuestKind.CUSTOM))


@pytest.mark.parametrize("rancher", VERSIONS, ids=lambda each: ".".join(map(str, each)))
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (GuestKind.LEGACY, GuestKind.LEGACY),
        (GuestKind.IMPORTED, GuestKind.LEGACY),
        (GuestKind.LEGACY, GuestKind.IMPORTED),
        (GuestKind.IMPORTED, GuestKind.IMPORTED),
    ],
    ids=lambda kind: kind.name,
)
async def test_a_cluster_that_is_removed_and_imported_again_gets_its_address_back(
    rancher: tuple[int, int], before: GuestKind, after: GuestKind
) -> None:
    fleet, former = Fleet(), plan_of(before, rancher)
    fleet.add_range(clusterSelector=EVERY_GUEST)
    bring_in(fleet, former)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    fleet.remove_guest(former.cluster_id, named=former.provisioning_name)
    fleet.give_up(former.cluster_id, f"{former.provisioning_name}-kubevip")
    await fleet.pass_time(120)
    again = plan_of(after, rancher)
    latter = replace(again, cluster_id="c-b8x3q" if after is GuestKind.LEGACY else "c-m-b8x3qxyz")
    bring_in(fleet, latter)
    fleet.guests[latter.cluster_id].add_service(X)
    await fleet.pass_time(60)
    assert fleet.held() == {f"default.{X}": latter.cluster_id}
    assert fleet.problems == []
