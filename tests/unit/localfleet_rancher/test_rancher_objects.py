"""Rancher's objects have the shapes that a reader has to cope with."""

import dataclasses
import json

import pytest
import yaml

from localfleet import rancher_objects as objects
from localfleet.rancher_plan import (
    REAL_ORDER,
    Credential,
    GuestKind,
    GuestPlan,
    HarvesterCluster,
    Step,
    is_possible,
)

HARVESTER = HarvesterCluster(cluster_id="c-m-9hb2c7rr", display_name="harvester-cluster1")
PLAN = GuestPlan(
    name="demo",
    cluster_id="c-m-4xk8q2vz",
    labels={"kube-vip": "true"},
    credential=Credential(name="cc-7zqhx", harvester=HARVESTER),
)


def test_a_harvester_guest_names_its_global_credential_and_its_machine_config() -> None:
    spec = objects.build_provisioning_cluster(PLAN)["spec"]
    assert spec["cloudCredentialSecretName"] == "cattle-global-data:cc-7zqhx"
    (pool,) = spec["rkeConfig"]["machinePools"]
    assert pool["machineConfigRef"] == {"kind": "HarvesterConfig", "name": "nc-demo-pool1"}
    (config,) = objects.build_harvester_configs(PLAN)
    assert json.loads(config["networkInfo"])["interfaces"][0]["networkName"] == "default/vlan10"
    assert "spec" not in config


def test_a_credential_of_the_clusters_own_namespace_is_named_without_one() -> None:
    credential = Credential(name="own", harvester=HARVESTER, namespace="fleet-default")
    spec = objects.build_provisioning_cluster(dataclasses.replace(PLAN, credential=credential))["spec"]
    assert spec["cloudCredentialSecretName"] == "own"


def test_a_pools_credential_stands_at_the_pool() -> None:
    spec = objects.build_provisioning_cluster(dataclasses.replace(PLAN, credential_per_pool=True))["spec"]
    assert "cloudCredentialSecretName" not in spec
    assert spec["rkeConfig"]["machinePools"][0]["cloudCredentialSecretName"] == "cattle-global-data:cc-7zqhx"


def test_a_credential_may_tell_its_harvester_by_kubeconfig_alone() -> None:
    data = objects.build_credential(Credential(name="x", harvester=HARVESTER, names_cluster=False))[
        "stringData"
    ]
    assert "harvestercredentialConfig-clusterId" not in data
    kubeconfig = yaml.safe_load(data["harvestercredentialConfig-kubeconfigContent"])
    assert kubeconfig["clusters"][0]["cluster"]["server"].endswith("/k8s/clusters/c-m-9hb2c7rr")


def test_an_old_machine_config_names_its_network_in_the_old_field() -> None:
    (config,) = objects.build_harvester_configs(dataclasses.replace(PLAN, old_network_field=True))
    assert (config["networkName"], config["networkInfo"]) == ("default/vlan10", "")


def test_worker_and_control_plane_pools_may_have_different_networks() -> None:
    plan = dataclasses.replace(PLAN, worker_network="default/vlan20")
    pools = objects.build_provisioning_cluster(plan)["spec"]["rkeConfig"]["machinePools"]
    assert [(pool["name"], pool["controlPlaneRole"]) for pool in pools] == [
        ("workers", False),
        ("pool1", True),
    ]
    assert len(objects.build_harvester_configs(plan)) == 2


@pytest.mark.parametrize("kind", [GuestKind.IMPORTED, GuestKind.LEGACY])
def test_a_cluster_that_rancher_did_not_make_has_no_machines(kind: GuestKind) -> None:
    plan = dataclasses.replace(PLAN, kind=kind, credential=None)
    cluster = objects.build_provisioning_cluster(plan)
    assert cluster["spec"] == {}
    assert cluster["metadata"]["name"] == ("demo" if kind is GuestKind.IMPORTED else "c-m-4xk8q2vz")


def test_the_kubeconfig_secret_holds_what_rancher_puts_there() -> None:
    secret = objects.build_kubeconfig_secret(
        PLAN, server="https://127.0.0.1:1/k8s/clusters/x", ca_pem="PEM", token="u-a:b"
    )
    assert secret["metadata"]["name"] == "demo-kubeconfig"
    assert secret["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": "demo"}
    kubeconfig = yaml.safe_load(secret["stringData"]["value"])
    assert kubeconfig["users"][0]["user"]["token"] == secret["stringData"]["token"] == "u-a:b"


def test_a_lost_connection_keeps_the_sticky_ready() -> None:
    assert objects.build_provisioning_status(PLAN, connected=True, at="t")["ready"] is True
    assert "ready" not in objects.build_provisioning_status(PLAN, connected=False, at="t")
    lost = objects.build_management_conditions(connected=False, at="t")
    assert {one["type"]: one["status"] for one in lost} == {
        "Connected": "False",
        "Ready": "False",
        "BackingNamespaceCreated": "True",
    }


def test_only_orders_that_ranchers_parts_could_take_are_possible() -> None:
    assert is_possible(REAL_ORDER)
    assert is_possible([Step.NAMESPACE, Step.MANAGEMENT])
    assert not is_possible([Step.LINK, Step.PROVISIONING])
    assert not is_possible([Step.TOKEN])
