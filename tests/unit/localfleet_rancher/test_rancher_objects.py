"""Rancher's objects have the shapes that a reader has to cope with."""

import dataclasses

import yaml

from localfleet import rancher_objects as objects
from localfleet.rancher_plan import (
    Credential,
    GuestPlan,
    HarvesterCluster,
)

HARVESTER = HarvesterCluster(cluster_id="c-m-9hb2c7rr", display_name="harvester-cluster1")
PLAN = GuestPlan(
    name="demo",
    cluster_id="c-m-4xk8q2vz",
    labels={"kube-vip": "true"},
    credential=Credential(name="cc-7zqhx", harvester=HARVESTER),
)


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
