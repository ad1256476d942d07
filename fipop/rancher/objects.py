"""Rancher's objects as values: of each only what decides something, so that its refreshes change nothing.

`parse_*` read what the API server serves and never fail, whatever a stranger wrote there: what is missing or
of another type counts as absent. `resource_version` does not take part in comparisons.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from fipop.api import names
from fipop.api.conditions import parse_time
from fipop.api.models import EPOCH
from fipop.settings.yaml import YamlRefusedError, parse_yaml

Json = Mapping[str, Any]

CREDENTIAL_NAMESPACE = "cattle-global-data"
HARVESTER_CONFIG_KIND = "HarvesterConfig"
LABEL_PROVIDER = "provider.cattle.io"
PROVIDER_HARVESTER = "harvester"

MAX_KUBECONFIG_BYTES = 64 * 1024
MAX_NETWORK_INFO_CHARACTERS = 64 * 1024

_MAX_VERSION_DIGITS = 20  # a uint64
_OBJECT_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_CREDENTIAL_ID = "harvestercredentialConfig-clusterId"
_CREDENTIAL_KUBECONFIG = "harvestercredentialConfig-kubeconfigContent"
_CLUSTER_PATH = re.compile(r"/k8s/clusters/([^/]+)/*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A namespaced object by its name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePool:
    """A group of a guest's machines; `credential` is its own, as text, "" where the cluster's holds."""

    is_control_plane: bool
    config_kind: str
    config_name: str
    credential: str

    @property
    def is_on_harvester(self) -> bool:
        """Whether its machines are Harvester's."""
        return self.config_kind == HARVESTER_CONFIG_KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningCluster:
    """provisioning.cattle.io/v1 Cluster; `cluster_name`, "" until Rancher writes it, is the guest's id.

    One without rkeConfig `is_imported`: Rancher did not make its machines, or not through this object (the mirrors
    of older clusters, named as their management Cluster, and of the local one).
    """

    namespace: str
    name: str
    uid: str
    resource_version: int = field(compare=False)
    created: datetime
    deleting: bool
    labels: Mapping[str, str]
    paused: bool
    wants_floating_ip: bool
    cluster_name: str
    credential: str
    is_imported: bool
    pools: tuple[MachinePool, ...]

    @property
    def opted_in(self) -> bool:
        """Whether its label opts the guest in for installation."""
        return names.parse_go_bool(self.labels.get(names.LABEL_OPT_IN)) is True

    @property
    def harvester_pool(self) -> MachinePool | None:
        """The pool that speaks for the guest: kube-vip runs on the control plane, so its pool comes first."""
        pools = [pool for pool in self.pools if pool.is_on_harvester]
        return next((pool for pool in pools if pool.is_control_plane), pools[0] if pools else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementCluster:
    """management.cattle.io/v3 Cluster: `name` is an id, `display_name` what people and ranges call it."""

    namespace: str = ""
    name: str
    uid: str
    resource_version: int = field(compare=False)
    deleting: bool
    display_name: str
    workspace: str
    provider: str
    connected: bool
    is_internal: bool

    @property
    def is_harvester(self) -> bool:
        """Whether it is a Harvester cluster, which is never a guest."""
        return self.provider == PROVIDER_HARVESTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceInfo:
    """A Namespace, of which only its being there and its going matter."""

    namespace: str = ""
    name: str
    uid: str
    resource_version: int = field(compare=False)
    terminating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedField:
    """A field that says nothing we can read; `reason` never quotes it."""

    field: str
    reason: str


def parse_provisioning_cluster(obj: Json) -> ProvisioningCluster:
    """Read a provisioning.cattle.io/v1 Cluster."""
    meta = _mapping(obj.get("metadata"))
    spec = _mapping(obj.get("spec"))
    annotations = _texts(meta.get("annotations"))
    rke_config = spec.get("rkeConfig")
    return ProvisioningCluster(
        namespace=_text(meta.get("namespace")),
        name=_text(meta.get("name")),
        uid=_text(meta.get("uid")),
        resource_version=_version(meta),
        created=parse_time(meta.get("creationTimestamp")) or EPOCH,
        deleting=bool(meta.get("deletionTimestamp")),
        labels=_texts(meta.get("labels")),
        paused=names.parse_go_bool(annotations.get(names.ANNOTATION_PAUSED)) is True,
        wants_floating_ip=names.parse_go_bool(annotations.get(names.ANNOTATION_FLOATING_IP)) is not False,
        cluster_name=_text(_mapping(obj.get("status")).get("clusterName")),
        credential=_text(spec.get("cloudCredentialSecretName")),
        is_imported=not isinstance(rke_config, Mapping),
        pools=_parse_pools(_mapping(rke_config).get("machinePools")),
    )


def parse_management_cluster(obj: Json) -> ManagementCluster:
    """Read a management.cattle.io/v3 Cluster."""
    meta = _mapping(obj.get("metadata"))
    spec = _mapping(obj.get("spec"))
    status = _mapping(obj.get("status"))
    name = _text(meta.get("name"))
    return ManagementCluster(
        name=name,
        uid=_text(meta.get("uid")),
        resource_version=_version(meta),
        deleting=bool(meta.get("deletionTimestamp")),
        display_name=_text(spec.get("displayName")),
        workspace=_text(spec.get("fleetWorkspaceName")),
        provider=_text(status.get("provider")) or _texts(meta.get("labels")).get(LABEL_PROVIDER, ""),
        connected=_is_connected(status.get("conditions")),
        is_internal=name == "local" or spec.get("internal") is True,
    )


def parse_namespace(obj: Json) -> NamespaceInfo:
    """Read a Namespace."""
    meta = _mapping(obj.get("metadata"))
    phase = _mapping(obj.get("status")).get("phase")
    return NamespaceInfo(
        name=_text(meta.get("name")),
        uid=_text(meta.get("uid")),
        resource_version=_version(meta),
        terminating=bool(meta.get("deletionTimestamp")) or phase == "Terminating",
    )


def parse_harvester_networks(obj: Json) -> tuple[str, ...] | MalformedField:
    """Give the networks of a HarvesterConfig's machines in its order, each `namespace/name` or `name`.

    `networkInfo` holds JSON in a text; objects made before it have `networkName`. Neither: no network.
    """
    info = obj.get("networkInfo")
    if not isinstance(info, str) or not info.strip():
        old = _text(obj.get("networkName")).strip()
        return (old,) if old else ()
    if len(info) > MAX_NETWORK_INFO_CHARACTERS:
        return MalformedField(field="networkInfo", reason="is too long")
    try:
        parsed = json.loads(info)
    except (ValueError, RecursionError):
        return MalformedField(field="networkInfo", reason="is not JSON")
    if not isinstance(parsed, dict):
        return MalformedField(field="networkInfo", reason="is no JSON object")
    interfaces = parsed.get("interfaces")
    if interfaces is None:
        return ()
    if not isinstance(interfaces, list):
        return MalformedField(field="networkInfo", reason="has interfaces that are no list")
    found = (_text(_mapping(interface).get("networkName")).strip() for interface in interfaces)
    return tuple(dict.fromkeys(name for name in found if name))


def parse_credential(secret: Json) -> str | None:
    """Give the id of the Harvester cluster that a cloud credential is for; None where it names no cluster.

    The id is optional there; without it, the server of the kubeconfig's current context names the cluster.
    """
    data = _mapping(secret.get("data"))
    cluster_id = (_decode(data.get(_CREDENTIAL_ID)) or "").strip()
    if not cluster_id:
        cluster_id = _cluster_of_kubeconfig(_decode(data.get(_CREDENTIAL_KUBECONFIG)) or "")
    return cluster_id if _OBJECT_NAME.fullmatch(cluster_id) else None


def credential_ref(credential: str, cluster_namespace: str) -> ObjectRef | None:
    """Give the Secret that a cluster or pool names as its credential; None where it can be no Secret's name.

    `cattle-global-data:name` is a Secret there; anything else is, whole, the name of one beside the cluster.
    """
    namespace, separator, name = credential.partition(":")
    if not separator or namespace != CREDENTIAL_NAMESPACE:
        namespace, name = cluster_namespace, credential
    return object_ref(namespace, name)


def object_ref(namespace: str, name: str) -> ObjectRef | None:
    """Give the reference that somebody wrote; None where no object can have that name."""
    return ObjectRef(namespace=namespace, name=name) if _OBJECT_NAME.fullmatch(name) else None


def _parse_pools(items: object) -> tuple[MachinePool, ...]:
    pools = (_mapping(item) for item in items) if isinstance(items, list) else ()
    return tuple(
        MachinePool(
            is_control_plane=pool.get("controlPlaneRole") is True,
            config_kind=_text(_mapping(pool.get("machineConfigRef")).get("kind")),
            config_name=_text(_mapping(pool.get("machineConfigRef")).get("name")),
            credential=_text(pool.get("cloudCredentialSecretName")),
        )
        for pool in pools
    )


def _is_connected(conditions: object) -> bool:
    items = conditions if isinstance(conditions, list) else []
    return any(
        _mapping(item).get("type") == "Connected" and _mapping(item).get("status") == "True" for item in items
    )


def _cluster_of_kubeconfig(text: str) -> str:
    try:
        kubeconfig = _mapping(parse_yaml(text, max_bytes=MAX_KUBECONFIG_BYTES))
    except YamlRefusedError:
        return ""
    context = _named(kubeconfig.get("contexts"), kubeconfig.get("current-context"))
    cluster = _named(kubeconfig.get("clusters"), _mapping(context.get("context")).get("cluster"))
    try:
        path = urlsplit(_text(_mapping(cluster.get("cluster")).get("server")).strip()).path
    except ValueError:
        return ""
    match = _CLUSTER_PATH.fullmatch(path)
    return match.group(1) if match else ""


def _named(items: object, name: object) -> Json:
    entries = (_mapping(item) for item in items) if isinstance(items, list) else ()
    return next((entry for entry in entries if name and entry.get("name") == name), {})


def _decode(value: object) -> str | None:
    # Four characters of base64 are three bytes: refuse before decoding what we would refuse to read.
    if not isinstance(value, str) or len(value) > MAX_KUBECONFIG_BYTES * 4 // 3 + 4:
        return None
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> dict[str, str]:
    return {key: item for key, item in _mapping(value).items() if isinstance(item, str)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _version(meta: Json) -> int:
    text = _text(meta.get("resourceVersion"))
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_VERSION_DIGITS else 0
