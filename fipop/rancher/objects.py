"""Rancher's objects as values: of each only what decides something, so that its refreshes change nothing.

`parse_*` read what the API server serves and never fail, whatever a stranger wrote there: what is missing or
of another type counts as absent. Neither the version nor the generation takes part in comparisons.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from fipop.api import names
from fipop.api.codec import parse_time
from fipop.api.objects import KubeObject, Metadata, read_metadata
from fipop.api.spelling_warnings import CLUSTER_ANNOTATIONS, CLUSTER_LABELS, find_spelling_warnings
from fipop.jsons import JsonView, as_list, as_mapping, as_text, as_texts
from fipop.texts import LONGEST_WORD, clean, is_object_name

CREDENTIAL_NAMESPACE = "cattle-global-data"
HARVESTER_CONFIG_KIND = "HarvesterConfig"
LABEL_PROVIDER = "provider.cattle.io"
PROVIDER_HARVESTER = "harvester"

ANNOTATION_DISPLAY_NAME = "provisioning.cattle.io/management-cluster-display-name"
"""On the provisioning Cluster: a copy of the display name, which the management Cluster has."""
OUR_LABELS = frozenset(CLUSTER_LABELS)

MAX_NETWORK_INFO_CHARACTERS = 64 * 1024
LONGEST_DISPLAY_NAME = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """A namespaced object by its name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePool:
    """A group of a guest's machines; `credential` is its own, as text, "" where the cluster's holds."""

    is_control_plane: bool
    is_on_harvester: bool
    config_name: str
    credential: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningCluster(KubeObject):
    """provisioning.cattle.io/v1 Cluster; `cluster_name`, "" until Rancher writes it, is the guest's id.

    One without rkeConfig `is_imported`: Rancher did not make its machines, or not through this object (the mirrors
    of older clusters, named as their management Cluster, and of the local one).
    """

    labels: Mapping[str, str]
    paused: bool
    wants_floating_ip: bool
    cluster_name: str
    credential: str
    is_imported: bool
    pools: tuple[MachinePool, ...]
    display_name: str = ""
    """What people call it. A user who can edit the cluster chooses it, so it gives no rights."""
    spelling_warnings: tuple[str, ...] = ()
    """What of its annotations and labels is probably not meant so, as sentences."""

    @property
    def opted_in(self) -> bool:
        """Whether its label opts the guest in for installation."""
        return names.parse_go_bool(self.labels.get(names.LABEL_OPT_IN)) is True

    @property
    def opted_out(self) -> bool:
        """Whether its label says in so many words that fipop has to install nothing."""
        return names.parse_go_bool(self.labels.get(names.LABEL_OPT_IN)) is False

    def is_meant_by(self, name: str) -> bool:
        """Whether a user can mean it by a name: its own, also with its workspace, or the id of the guest cluster."""
        return name in (self.name, f"{self.namespace}/{self.name}", self.cluster_name)

    @property
    def is_named_by_id(self) -> bool:
        """Whether Rancher named it by the id of the guest cluster: people know its display name alone."""
        return self.name == self.cluster_name

    @property
    def wants_removal(self) -> bool:
        """Whether its label says that fipop has to uninstall what it installed."""
        return self.labels.get(names.LABEL_REMOVE) == "true"

    @property
    def lives_on(self) -> bool:
        """Whether its machines keep running when it is removed from Rancher, which did not make them.

        So do imported clusters, and custom ones, whose machines an administrator registered.
        """
        return self.is_imported or not self.pools

    @property
    def harvester_pool(self) -> MachinePool | None:
        """The pool that speaks for the guest: kube-vip runs on the control plane, so its pool comes first."""
        pools = [pool for pool in self.pools if pool.is_on_harvester]
        return next((pool for pool in pools if pool.is_control_plane), pools[0] if pools else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementCluster(KubeObject):
    """management.cattle.io/v3 Cluster: `name` is an id, `display_name` what people and ranges call it."""

    display_name: str
    workspace: str
    provider: str
    connected: bool
    is_internal: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those of fipop, which count on the provisioning Cluster alone."""
    provisioned: bool = True
    """False while its machines are being made: until then Rancher answers 503 for it. Nothing runs there yet."""
    ready_since: datetime | None = None
    readable_since: datetime | None = field(default=None, compare=False)
    """Since when it is connected and provisioned; None if it is not, or if Rancher does not say. A refresh can change
    it, and is no news."""

    @property
    def is_harvester(self) -> bool:
        """Whether it is a Harvester cluster, which is never a guest."""
        return self.provider == PROVIDER_HARVESTER

    @property
    def may_be_harvester(self) -> bool:
        """Whether it is a Harvester cluster, or just imported, so that Rancher does not know what it is."""
        return self.is_harvester or not self.provider


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceInfo(KubeObject):
    """A Namespace, of which only its being there and its going matter."""

    terminating: bool


def parse_provisioning_cluster(obj: JsonView) -> ProvisioningCluster:
    """Read a provisioning.cattle.io/v1 Cluster."""
    meta = as_mapping(obj.get("metadata"))
    spec = as_mapping(obj.get("spec"))
    annotations, labels = as_texts(meta.get("annotations")), as_texts(meta.get("labels"))
    rke_config = spec.get("rkeConfig")
    return ProvisioningCluster(
        metadata=_parse_meta(obj),
        labels=labels,
        paused=names.parse_go_bool(annotations.get(names.ANNOTATION_PAUSED)) is True,
        wants_floating_ip=names.parse_go_bool(annotations.get(names.ANNOTATION_FLOATING_IP)) is not False,
        cluster_name=as_text(as_mapping(obj.get("status")).get("clusterName")),
        credential=as_text(spec.get("cloudCredentialSecretName")),
        is_imported=not isinstance(rke_config, Mapping),
        pools=_parse_pools(as_mapping(rke_config).get("machinePools")),
        display_name=annotations.get(ANNOTATION_DISPLAY_NAME, "")[:LONGEST_DISPLAY_NAME],
        spelling_warnings=find_spelling_warnings("annotation", annotations, CLUSTER_ANNOTATIONS)
        + find_spelling_warnings("label", labels, CLUSTER_LABELS),
    )


def parse_management_cluster(obj: JsonView) -> ManagementCluster:
    """Read a management.cattle.io/v3 Cluster."""
    meta = as_mapping(obj.get("metadata"))
    spec = as_mapping(obj.get("spec"))
    status, labels = as_mapping(obj.get("status")), as_texts(meta.get("labels"))
    return ManagementCluster(
        metadata=_parse_meta(obj),
        display_name=as_text(spec.get("displayName"))[:LONGEST_DISPLAY_NAME],
        labels={name: value for name, value in labels.items() if name in OUR_LABELS},
        workspace=as_text(spec.get("fleetWorkspaceName")),
        provider=as_text(status.get("provider")) or labels.get(LABEL_PROVIDER, ""),
        connected=_condition(status.get("conditions"), "Connected") is not None,
        provisioned=_is_provisioned(status.get("conditions")),
        ready_since=parse_time((_condition(status.get("conditions"), "Ready") or {}).get("lastUpdateTime")),
        readable_since=_find_readable_since(status.get("conditions")),
        is_internal=meta.get("name") == "local" or spec.get("internal") is True,
    )


def show_name(name: str, display_name: str) -> str:
    """Return the name of a cluster, with what people call it if that is another name."""
    return f"{name} ({clean(display_name, LONGEST_WORD)})" if display_name not in ("", name) else name


def parse_namespace(obj: JsonView) -> NamespaceInfo:
    """Read a Namespace."""
    meta = _parse_meta(obj)
    phase = as_mapping(obj.get("status")).get("phase")
    return NamespaceInfo(
        metadata=meta, terminating=meta.deletion_timestamp is not None or phase == "Terminating"
    )


def parse_harvester_networks(obj: JsonView) -> tuple[str, ...] | str:
    """Return the networks of a HarvesterConfig's machines in its order, each `namespace/name` or `name`.

    `networkInfo` holds JSON in a text; objects made before it have `networkName`. Neither: no network. If it cannot be
    read, return why, as it follows the name of the field; that never quotes it.
    """
    info = obj.get("networkInfo")
    if not isinstance(info, str) or not info.strip():
        old = as_text(obj.get("networkName")).strip()
        return (old,) if old else ()
    if len(info) > MAX_NETWORK_INFO_CHARACTERS:
        return "is too long"
    try:
        parsed = json.loads(info)
    except (ValueError, RecursionError):
        return "is not JSON"
    if not isinstance(parsed, dict):
        return "is not a JSON object"
    interfaces = parsed.get("interfaces")
    if interfaces is None:
        return ()
    if not isinstance(interfaces, list):
        return "has interfaces that are not a list"
    found = (as_text(as_mapping(interface).get("networkName")).strip() for interface in interfaces)
    return tuple(dict.fromkeys(name for name in found if name))


def credential_ref(credential: str, cluster_namespace: str) -> ObjectRef | None:
    """Return the Secret that a cluster or pool names as its credential; None if no Secret can have that name.

    `cattle-global-data:name` is a Secret there; anything else is, whole, the name of one beside the cluster.
    """
    namespace, separator, name = credential.partition(":")
    if not separator or namespace != CREDENTIAL_NAMESPACE:
        namespace, name = cluster_namespace, credential
    return object_ref(namespace, name)


def object_ref(namespace: str, name: str) -> ObjectRef | None:
    """Return a reference to an object; None if no object can have that name."""
    return ObjectRef(namespace=namespace, name=name) if is_object_name(name) else None


def _parse_meta(obj: JsonView) -> Metadata:
    """Read the metadata without annotations, and without the generation.

    That of a management Cluster rises whenever Rancher refreshes it.
    """
    return replace(read_metadata(obj), generation=0, annotations={})


def _parse_pools(items: object) -> tuple[MachinePool, ...]:
    return tuple(
        MachinePool(
            is_control_plane=pool.get("controlPlaneRole") is True,
            is_on_harvester=as_mapping(pool.get("machineConfigRef")).get("kind") == HARVESTER_CONFIG_KIND,
            config_name=as_text(as_mapping(pool.get("machineConfigRef")).get("name")),
            credential=as_text(pool.get("cloudCredentialSecretName")),
        )
        for pool in map(as_mapping, as_list(items))
    )


def _is_provisioned(conditions: object) -> bool:
    """Return whether condition Provisioned is True; Rancher writes it as soon as it works on a cluster."""
    return all(
        each.get("status") == "True" for each in _conditions(conditions) if each.get("type") == "Provisioned"
    )


def _find_readable_since(conditions: object) -> datetime | None:
    """Return since when Connected is True, and Provisioned, if Rancher writes it; None if a time is not known."""
    found = [each for each in _conditions(conditions) if each.get("type") in ("Connected", "Provisioned")]
    times = [parse_time(each.get("lastUpdateTime")) for each in found if each.get("status") == "True"]
    if _condition(conditions, "Connected") is None or len(times) < len(found):
        return None
    return max(each for each in times if each is not None) if None not in times else None


def _condition(conditions: object, kind: str) -> JsonView | None:
    """Return a condition that is True."""
    found = _conditions(conditions)
    return next((each for each in found if (each.get("type"), each.get("status")) == (kind, "True")), None)


def _conditions(value: object) -> Iterator[JsonView]:
    return map(as_mapping, as_list(value))
