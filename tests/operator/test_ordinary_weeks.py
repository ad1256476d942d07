"""Ordinary weeks of a Rancher fleet: migrations in waves, keys edited and put back, clusters away, names mistyped."""

import base64
import json
from typing import Any

import pytest

from fipop.api import names
from tests.harness.fleet import CLUSTERS, EVERY_GUEST, NAMESPACE, WORKSPACE, Fleet, Guest, build_fleet
from tests.harness.history import FLOATING_IPS

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
BOTH = {"kube-vip": "deployed", "kube-vip-cloud-provider": "deployed"}
VISITED = 150


def build(*guest_ids: str, **spec: Any) -> Fleet:
    fleet = build_fleet(*guest_ids, **{"clusterSelector": EVERY_GUEST, "quarantineSeconds": 90, **spec})
    fleet.set_options(operateGuestClusterInterval="60")
    return fleet


async def begin(fleet: Fleet, seconds: float = 10) -> None:
    await fleet.start(leader_election=False, seconds=seconds)


async def installed(*guest_ids: str, **options: str) -> Fleet:
    fleet = build(*guest_ids)
    fleet.set_options(kubevipRolloutMinSuccessTime="0", **options)
    for each in guest_ids:
        fleet.opt_in(each)
    await begin(fleet)
    for each in guest_ids:
        fleet.ask(each)
    await fleet.pass_time(200)
    assert [fleet.guests[each].releases for each in guest_ids] == [BOTH] * len(guest_ids)
    return fleet


def rollout(fleet: Fleet) -> dict[str, Any]:
    data = fleet.memory.objects["configmaps", NAMESPACE, names.ROLLOUT_CONFIG_MAP]["data"]
    found: dict[str, Any] = json.loads(data["rollout"])
    return found


def install_as_predecessor(guest: Guest) -> None:
    """Have both releases as kube-fip-operator made them."""
    for name, plural in (
        ("kube-vip", "daemonsets"),
        ("kube-vip-cloud-provider", "deployments"),
    ):
        key = ("secrets", "kube-system", f"sh.helm.release.v1.{name}.v1")
        labels = {"owner": "helm", "name": name, "version": "1", "status": "deployed"}
        kept = {"chart": name, "values": {"nameOverride": name, "old": "value"}}
        data = base64.b64encode(json.dumps(kept).encode()).decode()
        guest.put(
            key,
            {
                "metadata": {"name": key[2], "namespace": key[1], "labels": labels},
                "type": "helm.sh/release.v1",
                "data": {"release": data},
            },
        )
        annotations = {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": "kube-system"}
        counts: dict[str, Any] = (
            {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
            if plural == "deployments"
            else {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1}
        )
        guest.put(
            (plural, "kube-system", name),
            {
                "metadata": {"name": name, "namespace": "kube-system", "annotations": annotations},
                "spec": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"image": f"example/{name}:v1"}]}},
                },
                "status": {"observedGeneration": 1, **counts},
            },
        )


async def test_guest_clusters_that_are_migrated_in_a_second_wave_are_admitted_in_turn() -> None:
    """The first ones were migrated last week; ten more opt in at once, with the releases of kube-fip-operator."""
    first, second = [A, B], [f"c-m-{number}" for number in range(10)]
    fleet = build(iprange="10.0.0.10-10.0.0.40")
    fleet.set_options(kubevipUpdate="true", kubevipRolloutMinSuccessTime="20")
    for each in first:
        fleet.add_guest(each)
        fleet.opt_in(each)
    for each in second:
        install_as_predecessor(fleet.add_guest(each))
    await begin(fleet)
    for each in (*first, *second):
        fleet.ask(each)
    await fleet.pass_time(600)
    assert rollout(fleet)["phase"] == "Completed"
    for each in second:
        fleet.opt_in(each)
    await fleet.pass_time(1500)
    assert (rollout(fleet)["phase"], rollout(fleet)["failed"]) == ("Completed", {})


async def test_a_release_that_was_uninstalled_with_its_history_is_installed_again_and_is_at_the_target() -> (
    None
):
    fleet = await installed(A, B)
    guest = fleet.guests[A]
    for key, each in guest.of_kind("secrets").items():
        labels = {**each["metadata"]["labels"], "status": "uninstalled"}
        guest.put(key, {**each, "metadata": {**each["metadata"], "labels": labels}})
    for plural in ("daemonsets", "deployments", "pods"):
        for key in guest.of_kind(plural):
            guest.remove(key)
    await fleet.pass_time(VISITED)
    assert guest.releases == BOTH
    await fleet.pass_time(VISITED)
    assert fleet.condition(A, "KubeVipReady") == ("True", "Ready")
    assert rollout(fleet)["phase"] == "Completed"


async def test_a_key_that_its_owner_edited_and_put_back_goes_with_its_floating_ip() -> None:
    fleet = build(A)
    await begin(fleet)
    fleet.ask(A, serviceNamespace="shop")
    await fleet.pass_time(60)
    assert fleet.guests[A].config_map == {"cidr-shop": f"{X}/32"}
    fleet.guests[A].write_config_map(cidr_shop="10.9.0.1/32")
    await fleet.pass_time(VISITED)
    fleet.guests[A].write_config_map(cidr_shop=f"{X}/32")
    await fleet.pass_time(VISITED)
    fleet.give_up(A)
    await fleet.pass_time(3 * VISITED)
    assert fleet.guests[A].config_map == {}
    assert fleet.quarantined() == set()


@pytest.mark.parametrize("trouble", ["the cluster is away", "a mistyped clustername"])
async def test_releases_are_found_where_they_are_after(trouble: str) -> None:
    """kubevipNamespace was changed for new guest clusters, months ago."""
    fleet = await installed(A)
    fleet.set_options(kubevipNamespace="networking")
    await fleet.pass_time(VISITED)
    if trouble == "the cluster is away":
        bring_back = fleet.take_away((CLUSTERS, WORKSPACE, f"cluster-{A}"))
        await fleet.pass_time(120)
        bring_back()
    else:
        for name in ("typo", f"cluster-{A}"):
            fleet.annotate((FLOATING_IPS, A, "web"), {"clustername": name})
            await fleet.pass_time(VISITED)
    await fleet.pass_time(2 * VISITED)
    assert {key[1] for key in fleet.guests[A].of_kind("secrets")} == {"kube-system"}
    assert fleet.condition(A, "Ready") == ("True", "Ready")


async def test_a_floating_ip_beside_one_with_a_mistyped_cluster_name_is_written_or_told() -> None:
    fleet = build(A)
    await begin(fleet)
    fleet.ask(A)
    await fleet.pass_time(20)
    fleet.annotate(("floatingips", A, "web"), {"clustername": "typo"})
    await fleet.pass_time(20)
    fleet.ask(A, name="second")
    await fleet.pass_time(VISITED)
    assert fleet.addresses(A, "second") == [Y]
    told = fleet.condition(A, "GuestConfigured", "second")[0]
    assert (Y in fleet.guests[A].addresses) == (told == "True")
