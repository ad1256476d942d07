"""The objects that Rancher keeps about a cluster, as manifests: values in, values out.

Shapes are Rancher's, from 2.10 to 2.16, cut down to what a reader of them needs. These versions differ in one thing
here: since 2.11, a provisioning Cluster has the display name as an annotation.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

from localfleet.rancher_plan import (
    FLEET_DEFAULT,
    FLEET_LOCAL,
    Credential,
    GuestKind,
    GuestPlan,
    HarvesterCluster,
)

PROVISIONING_FINALIZERS = (
    "wrangler.cattle.io/provisioning-cluster-remove",
    "wrangler.cattle.io/rke-cluster-remove",
    "wrangler.cattle.io/cloud-config-secret-remover",
)
MANAGEMENT_FINALIZERS = (
    "controller.cattle.io/mgmt-cluster-rbac-remove",
    "controller.cattle.io/cluster-scoped-gc",
    "wrangler.cattle.io/mgmt-cluster-remove",
)

Manifest = dict[str, Any]

_DISPLAY_NAME = "provisioning.cattle.io/management-cluster-display-name"
_PROVISIONED = (GuestKind.HARVESTER, GuestKind.OTHER_MACHINES, GuestKind.CUSTOM)
"""Of these, the provisioning Cluster has an rkeConfig: Rancher installs Kubernetes there."""


def build_provisioning_cluster(plan: GuestPlan) -> Manifest:
    """The provisioning Cluster as a user's create request leaves it: without a status."""
    spec: Manifest = {}
    if plan.kind in _PROVISIONED:
        spec = {"kubernetesVersion": "v1.33.5+rke2r1", "rkeConfig": _build_rke_config(plan)}
        if plan.credential and not plan.credential_per_pool:
            spec["cloudCredentialSecretName"] = plan.credential.reference
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {
            "name": plan.provisioning_name,
            "namespace": plan.namespace,
            "labels": dict(plan.labels),
            "annotations": {
                **({_DISPLAY_NAME: plan.name} if plan.rancher >= (2, 11) else {}),
                **plan.annotations,
            },
            "finalizers": list(PROVISIONING_FINALIZERS),
        },
        "spec": spec,
    }


def _build_rke_config(plan: GuestPlan) -> Manifest:
    cloud_config = "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
    pools = [_build_pool(plan, "pool1", control_plane=True)] if plan.kind is not GuestKind.CUSTOM else []
    if plan.worker_network is not None:
        pools.insert(0, _build_pool(plan, "workers", control_plane=False))
    return {
        "chartValues": {
            "harvester-cloud-provider": {
                "cloudConfigPath": cloud_config,
                "global": {"cattle": {"clusterName": plan.name}},
            }
        },
        "machineGlobalConfig": {"cni": "calico", "disable-kube-proxy": False},
        "machinePools": pools,
        "machineSelectorConfig": [{"config": {"protect-kernel-defaults": False}}],
    }


def _build_pool(plan: GuestPlan, name: str, *, control_plane: bool) -> Manifest:
    kind = "HarvesterConfig" if plan.kind is GuestKind.HARVESTER else "VmwarevsphereConfig"
    pool: Manifest = {
        "name": name,
        "quantity": 3 if control_plane else 1,
        "controlPlaneRole": control_plane,
        "etcdRole": control_plane,
        "workerRole": True,
        "machineConfigRef": {"kind": kind, "name": plan.machine_config(name)},
        "unhealthyNodeTimeout": "0s",
    }
    if plan.credential and plan.credential_per_pool:
        pool["cloudCredentialSecretName"] = plan.credential.reference
    return pool


def build_provisioning_status(plan: GuestPlan, *, connected: bool, at: str) -> Manifest:
    """The status that Rancher gives a provisioning Cluster; a lost connection never takes `ready` back."""
    conditions = [("Created", "True"), ("Provisioned", "True"), ("Updated", "True"), ("Reconciling", "False")]
    if connected:
        conditions.append(("Connected", "True"))
    status: Manifest = {
        "clusterName": plan.cluster_id,
        "fleetWorkspaceName": plan.namespace,
        "observedGeneration": 1,
        "conditions": [{"type": kind, "status": value, "lastUpdateTime": at} for kind, value in conditions],
    }
    if connected:
        status |= {"clientSecretName": plan.kubeconfig_secret, "agentDeployed": True, "ready": True}
    return status


def build_management_cluster(plan: GuestPlan) -> Manifest:
    """The management Cluster, whose agent has not called yet."""
    provider = {"provider.cattle.io": "rke2"}
    made = _build_management(
        plan.cluster_id, plan.name, plan.namespace, {**plan.labels, **provider}, provider="rke2"
    )
    is_provisioned = plan.kind in _PROVISIONED
    made["metadata"]["annotations"] = {"provisioning.cattle.io/administrated": str(is_provisioned).lower()}
    return made


def build_harvester_cluster(harvester: HarvesterCluster) -> Manifest:
    """The management Cluster of a Harvester cluster."""
    labels = {"provider.cattle.io": "harvester"}
    return _build_management(
        harvester.cluster_id, harvester.display_name, FLEET_DEFAULT, labels, provider="harvester"
    )


def build_local_cluster() -> Manifest:
    """The management Cluster of the cluster in which Rancher itself runs."""
    return _build_management("local", "local", FLEET_LOCAL, {"provider.cattle.io": "rke2"}, provider="rke2")


def _build_management(
    cluster_id: str, display_name: str, workspace: str, labels: Mapping[str, str], *, provider: str
) -> Manifest:
    return {
        "apiVersion": "management.cattle.io/v3",
        "kind": "Cluster",
        "metadata": {
            "name": cluster_id,
            "labels": dict(labels),
            "annotations": {"provisioning.cattle.io/administrated": "true"},
            "finalizers": list(MANAGEMENT_FINALIZERS),
        },
        "spec": {
            "displayName": display_name,
            "description": "",
            "fleetWorkspaceName": workspace,
            "internal": cluster_id == "local",
            "importedConfig": {"kubeConfig": ""},
        },
        "status": {
            "driver": "imported",
            "provider": provider,
            "conditions": [{"type": "BackingNamespaceCreated", "status": "True"}],
        },
    }


def build_management_conditions(*, connected: bool, provisioned: bool, at: str) -> list[Manifest]:
    """The conditions of a management Cluster whose agent has called; `at` moves with every ping."""
    made: Manifest = {
        "type": "Provisioned",
        "status": "True" if provisioned else "Unknown",
        "lastUpdateTime": at,
    }
    ping: Manifest = {"type": "Connected", "status": "True", "lastUpdateTime": at}
    ready: Manifest = {"type": "Ready", "status": "True"}
    if not connected:
        lost = {"reason": "Disconnected", "message": "Cluster agent is not connected"}
        ping = {**ping, "status": "False", **lost}
        ready = {**ready, "status": "False", **lost}
    return [{"type": "BackingNamespaceCreated", "status": "True"}, made, ping, ready]


def build_system_namespace(cluster_id: str) -> Manifest:
    """The namespace that Rancher makes for a cluster: it has no labels and no link to it but its name."""
    annotations = {"management.cattle.io/system-namespace": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": cluster_id, "annotations": annotations},
    }


def build_harvester_configs(plan: GuestPlan) -> list[Manifest]:
    """The machine configs of a guest's pools: everything at the top level, numbers as strings."""
    configs = [_build_machine_config(plan, "pool1", plan.networks)]
    if plan.worker_network is not None:
        configs.append(_build_machine_config(plan, "workers", (plan.worker_network,)))
    return configs


def _build_machine_config(plan: GuestPlan, pool: str, networks: Sequence[str]) -> Manifest:
    interfaces = [{"networkName": name, "macAddress": ""} for name in networks]
    modern = {"networkName": "", "networkInfo": json.dumps({"interfaces": interfaces}, separators=(",", ":"))}
    old = {"networkName": networks[0] if networks else "", "networkInfo": ""}
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "HarvesterConfig",
        "metadata": {"name": plan.machine_config(pool), "namespace": plan.namespace},
        "cpuCount": "4",
        "memorySize": "8",
        "diskSize": "0",
        "diskInfo": '{"disks":[{"imageName":"default/image-abcde","bootOrder":1,"size":40}]}',
        "sshUser": "ubuntu",
        "vmNamespace": "default",
        **(old if plan.old_network_field else modern),
    }


def build_credential(credential: Credential) -> Manifest:
    """The cloud credential Secret with which Rancher makes machines on a Harvester cluster."""
    server = f"https://rancher.example.com/k8s/clusters/{credential.harvester.cluster_id}"
    data = {
        "harvestercredentialConfig-clusterType": "imported" if credential.names_cluster else "external",
        "harvestercredentialConfig-kubeconfigContent": build_kubeconfig(
            server=server, token=f"kubeconfig-user-demo:{credential.name}"
        ),
    }
    if credential.names_cluster:
        data["harvestercredentialConfig-clusterId"] = credential.harvester.cluster_id
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": credential.name,
            "namespace": credential.namespace,
            "annotations": {
                "field.cattle.io/name": credential.harvester.display_name,
                "provisioning.cattle.io/driver": "harvester",
            },
            "labels": {"cattle.io/creator": "norman"},
        },
        "type": "Opaque",
        "stringData": data,
    }


def build_kubeconfig_secret(plan: GuestPlan, *, server: str, ca_pem: str, token: str) -> Manifest:
    """The Secret through which a guest is reached."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": plan.kubeconfig_secret,
            "namespace": plan.namespace,
            "labels": {"cluster.x-k8s.io/cluster-name": plan.provisioning_name},
        },
        "type": "Opaque",
        "stringData": {
            "token": token,
            "value": build_kubeconfig(server=server, token=token, ca_pem=ca_pem),
        },
    }


def build_kubeconfig(*, server: str, token: str, ca_pem: str | None = None) -> str:
    """The text of a kubeconfig with one context."""
    cluster = {"server": server}
    if ca_pem is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
            "current-context": "default",
            "preferences": {},
        },
        sort_keys=False,
    )


def build_owner_reference(cluster: Manifest) -> Manifest:
    """What ties an object's life to a provisioning Cluster that exists."""
    metadata = cluster["metadata"]
    return {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def timestamp(at: datetime | None = None) -> str:
    """A time as Rancher writes it: seconds, UTC."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
