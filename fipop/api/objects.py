"""FloatingIPRange, FloatingIP and FloatingIPReservation, field by field as in their YAML (docs/reference/api.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator

from fipop.api import names
from fipop.api.codec import Time, UnreadableError, YamlFields, format_time, read, write
from fipop.api.conditions import Condition, ConditionType
from fipop.api.spelling_warnings import FLOATING_IP_KEYS, RANGE_KEYS, find_spelling_warnings
from fipop.ipam import addresses as ipam
from fipop.ipam.ranges import RangeUsage
from fipop.jsons import Json, JsonView
from fipop.texts import count_text

K = TypeVar("K", bound="KubeObject")

EPOCH = datetime.fromtimestamp(0, UTC)
INT64_MAX = 2**63 - 1
"""Counts in a status are int64; a larger one is clamped, and the texts beside them show its power of two."""


def _keep_ours(annotations: Any) -> Any:
    """Drop the annotations of other programs: kubectl alone keeps a copy of the whole object in one.

    Those that stay are without a prefix, or of our group, also if that has a wrong letter.
    """
    if not isinstance(annotations, dict):
        return annotations
    return {
        key: value
        for key, value in annotations.items()
        if "/" not in key or "kubefip" in key or "binbash" in key
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(YamlFields):
    """What fipop uses of the metadata of any object; `namespace` is "" if its kind has none."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: int = field(default=0, compare=False)
    """The store's revision that wrote the object last."""
    generation: int = 0
    creation_timestamp: Time = EPOCH
    deletion_timestamp: Time | None = None
    annotations: Annotated[dict[str, str], BeforeValidator(_keep_ours)] = field(
        default_factory=dict, hash=False
    )
    """Those without a prefix, as kube-fip-operator's, and those of our group."""

    def is_true(self, annotation: str) -> bool:
        """Whether an annotation has a text that Go reads as true."""
        return names.parse_go_bool(self.annotations.get(annotation)) is True


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeObject(YamlFields):
    """An object with metadata, as a store holds it."""

    metadata: Metadata

    @property
    def key(self) -> tuple[str, str]:
        """The namespace and the name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace; "" if the kind is cluster scoped."""
        return self.metadata.namespace

    @property
    def name(self) -> str:
        """The name within the namespace."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """The identity of this very object, not of its name."""
        return self.metadata.uid

    @property
    def resource_version(self) -> int:
        """The store's revision that wrote this object last."""
        return self.metadata.resource_version

    @property
    def precondition(self) -> Json:
        """The metadata by which the API server refuses a patch of another version, or of another object."""
        return {"resourceVersion": str(self.resource_version), "uid": self.uid}

    @property
    def created(self) -> datetime:
        """When it was created; to the second."""
        return self.metadata.creation_timestamp

    @property
    def is_deleting(self) -> bool:
        """Whether its deletion has begun."""
        return self.metadata.deletion_timestamp is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedObject(KubeObject):
    """An object whose spec people write. One that cannot be read counts as an empty one, with the `problem`."""

    problem: Annotated[str, Field(exclude=True)] = ""


# FloatingIPRange


class SearchOrder(StrEnum):
    """From which end of a pool addresses are assigned."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector(YamlFields):
    """What a provisioning Cluster must have."""

    match_labels: dict[str, str] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerGuest(YamlFields):
    """How many floating IPs a guest cluster has from a range."""

    min_allocate: int = 1
    pre_allocate: int = 0
    """How many no Service uses."""
    max_allocate: int = 1
    release_after_seconds: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSpec(YamlFields):
    """What a range assigns, and to whom."""

    iprange: str = ""
    exclude: tuple[str, ...] = ()
    search_order: SearchOrder = SearchOrder.ASC
    skip_end_ips: Annotated[bool, Field(alias="skipEndIPs")] = True
    avoid_buggy_ips: Annotated[bool, Field(alias="avoidBuggyIPs")] = True
    address_space: str = names.DEFAULT_ADDRESS_SPACE
    cluster_selector: LabelSelector = LabelSelector()
    quarantine_seconds: int = names.DEFAULT_QUARANTINE_SECONDS
    draining: bool = False
    restrict_to_matching: bool = False
    allowed_workspaces: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    max_per_guest: int | None = None
    interface: str = ""
    per_guest: PerGuest | None = None
    """None: no floating IP is made for Services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressCounts(YamlFields):
    """How many addresses there are, in all or of one family; total = used + free + quarantined."""

    total: int = 0
    used: int = 0
    free: int = 0
    quarantined: int = 0
    out_of_range: int = 0

    @property
    def percent(self) -> float:
        """How much is used or in quarantine, 0 to 100."""
        return round(100 * (self.used + self.quarantined) / max(1, self.total), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity(AddressCounts):
    """The counts of a range, and for `kubectl get` what is free of each family that it assigns: `251/254`."""

    ipv4: AddressCounts = AddressCounts()
    ipv6: AddressCounts = AddressCounts()
    free_ipv4: Annotated[str | None, Field(alias="freeIPv4")] = None
    free_ipv6: Annotated[str | None, Field(alias="freeIPv6")] = None


@dataclass(frozen=True, slots=True, order=True)
class Reported(YamlFields):
    """An address that a guest cluster, by its id, uses without a floating IP."""

    address: str = ""
    guest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeStatus(YamlFields):
    """What a range holds; `capacity` is None if its pool is invalid."""

    capacity: Capacity | None = None
    reported: tuple[Reported, ...] = ()
    reported_count: int | None = None
    """How many addresses are in use by reports alone; None for none. `reported` may name fewer."""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPRange(CheckedObject):
    """A pool of addresses that fipop assigns to guest clusters of one network."""

    spec: RangeSpec = RangeSpec()
    status: RangeStatus = RangeStatus()

    @property
    def match_labels(self) -> Mapping[str, str] | None:
        """The labels that a provisioning Cluster must have; None if it selects by none, {} for every cluster."""
        return self.spec.cluster_selector.match_labels

    @property
    def harvester_cluster(self) -> str | None:
        """The name of the Harvester cluster whose guest clusters it serves; None for any."""
        return self.metadata.annotations.get(names.ANNOTATION_HARVESTER_CLUSTER) or None

    @property
    def harvester_network(self) -> str | None:
        """The network whose guest clusters it serves; None for any."""
        return self.metadata.annotations.get(names.ANNOTATION_HARVESTER_NETWORK) or None

    @property
    def spelling_warnings(self) -> tuple[str, ...]:
        """What of its annotations is probably not meant so, as sentences."""
        return find_spelling_warnings("annotation", self.metadata.annotations, RANGE_KEYS)


# FloatingIP


def _read_family(name: object) -> ipam.Family:
    for family in ipam.Family:
        if family.label == name:
            return family
    raise ValueError("must be IPv4 or IPv6")


Family = Annotated[
    ipam.Family, PlainValidator(_read_family), PlainSerializer(lambda family: family.label, return_type=str)
]
"""A family, by its name in a Service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPSpec(YamlFields):
    """What a floating IP asks for."""

    ipaddress: str = ""
    ip_family_policy: ipam.FamilyPolicy | None = None
    ip_families: tuple[Family, ...] = ()
    service_namespace: str = ""
    pool: str = ""
    pool_namespaces: tuple[str, ...] = ()
    allow_share: bool | None = None
    interface: str = ""

    def __post_init__(self) -> None:
        """Refuse what the rules of the CRD refuse. Raises: ValueError."""
        if self.pool and self.service_namespace:
            raise ValueError("must not have both pool and serviceNamespace")
        if self.pool == "global":
            raise ValueError("must not have pool global, which is the key of all Services")
        if self.pool_namespaces and not self.pool:
            raise ValueError("must have a pool for poolNamespaces")

    @property
    def scope(self) -> str:
        """What follows the dash in the keys of its guest cluster; "" for those of all Services."""
        return self.pool or self.service_namespace


def digest_spec(spec: FloatingIPSpec) -> str:
    """Return what tells a spec from every other."""
    return hashlib.sha256(json.dumps(write(spec), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStatus(YamlFields):
    """One helm release of fipop in a guest cluster, as the status of a floating IP shows it."""

    role: str = ""
    name: str = ""
    namespace: str = ""
    revision: int = 0
    digest: str = ""
    version: str = ""
    status: str = ""
    """What helm says; "" if there is no release yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestStatus(YamlFields):
    """The guest cluster of a floating IP; `reachable` is None while fipop has never tried to reach it."""

    cluster: str = ""
    id: str = ""
    reachable: bool | None = None
    releases: tuple[ReleaseStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesStatus(YamlFields):
    """The Services of the guest cluster that use a floating IP; `names` (namespace/name) can be fewer than `count`."""

    names: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingService(YamlFields):
    """A Service of the guest cluster, as namespace/name, and since when it waits for an address."""

    name: str = ""
    since: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStatus(YamlFields):
    """The Services that wait for a floating IP; `services` can be fewer than `count`."""

    services: tuple[WaitingService, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedStatus(YamlFields):
    """Since when no Service uses a floating IP that fipop made for Services, and when fipop deletes it."""

    since: Time
    until: Time

    def __str__(self) -> str:
        return (
            f"No Service has used it since {format_time(self.since)}: fipop deletes its FloatingIP at "
            f"{format_time(self.until)} or later, unless a Service uses it by then."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPStatus(YamlFields):
    """What a floating IP holds; `addresses` are canonical texts, IPv4 first."""

    addresses: tuple[str, ...] = ()
    range: str | None = None
    address_space: str | None = None
    guest: GuestStatus | None = None
    services: ServicesStatus | None = None
    """None if no Service uses it, or if its range has no `perGuest`."""
    waiting: WaitingStatus | None = None
    """None if `DemandMet` is not False; only the oldest floating IP of a guest cluster shows it."""
    unused: UnusedStatus | None = None
    """None if a Service uses it, or if fipop would not delete it."""
    last_announced: Time | None = None
    """When `Announced` last left True; None if it never did."""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIP(CheckedObject):
    """An address for the ingress of one guest."""

    spec: FloatingIPSpec = FloatingIPSpec()
    status: FloatingIPStatus = FloatingIPStatus()

    @property
    def cluster(self) -> str | None:
        """The cluster that it says it is for."""
        return self.metadata.annotations.get(names.ANNOTATION_CLUSTER) or None

    @property
    def range(self) -> str | None:
        """The range that it names; None if fipop chooses one."""
        return self.metadata.annotations.get(names.ANNOTATION_RANGE) or None

    @property
    def current_range(self) -> str:
        """The range that it has its addresses from, else the one that it names; "" if there is neither."""
        return self.status.range or self.range or ""

    @property
    def update_config_map(self) -> bool:
        """Whether foreign values of its keys in the guest cluster are overwritten."""
        return self.metadata.is_true(names.ANNOTATION_UPDATE_CONFIG_MAP)

    @property
    def paused(self) -> bool:
        """Whether fipop leaves its guest cluster alone."""
        return self.metadata.is_true(names.ANNOTATION_PAUSED)

    @property
    def is_waiting(self) -> bool:
        """Whether its status does not say that it has all that it asks for."""
        status = self.status
        if status.observed_generation != self.metadata.generation or not status.addresses:
            return True
        is_allocated = any(
            each.type == ConditionType.ALLOCATED and each.is_true for each in status.conditions
        )
        is_flexible = self.spec.ip_family_policy is ipam.FamilyPolicy.PREFER_DUAL_STACK
        return (is_flexible and len(status.addresses) == 1) or not is_allocated

    @property
    def is_made_for_services(self) -> bool:
        """Whether fipop made it for Services, and no other writer changed its spec since."""
        made = self.metadata.annotations.get(names.ANNOTATION_MADE)
        return made is not None and not self.problem and made == digest_spec(self.spec)

    @property
    def ignored_claims(self) -> frozenset[str]:
        """The ids of the guest clusters whose reports do not count for it."""
        parts = self.metadata.annotations.get(names.ANNOTATION_IGNORE_CLAIM, "").split(",")
        return frozenset(filter(None, map(str.strip, parts)))

    @property
    def spelling_warnings(self) -> tuple[str, ...]:
        """What of its annotations is probably not meant so, as sentences."""
        return find_spelling_warnings("annotation", self.metadata.annotations, FLOATING_IP_KEYS)


# FloatingIPReservation


class Requested(StrEnum):
    """Whether an address was requested by name or chosen by fipop."""

    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(YamlFields):
    """Who holds, or last held, an address: a floating IP, and the provisioning Cluster that it serves.

    `imported`: the guest cluster keeps running, with its address, after its removal from Rancher. `display_name`: what
    people call it, where Rancher names it by its id.
    """

    namespace: str
    name: str
    uid: str
    cluster: str = ""
    workspace: str = ""
    imported: bool = False
    display_name: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The floating IP's (namespace, name)."""
        return self.namespace, self.name

    @property
    def known_as(self) -> str:
        """What people call the cluster."""
        return self.display_name or self.cluster

    @property
    def lineage(self) -> tuple[str, str, str]:
        """What a floating IP has in common with the one that it replaces, whose cluster can have had another id.

        Those are the workspace, what people call the cluster, and the name of the floating IP without that of the
        cluster.
        """
        is_automatic = self.cluster and self.name.startswith(f"{self.cluster}{names.FLOATING_IP_SUFFIX}")
        own = self.name.removeprefix(self.cluster) if is_automatic else self.name
        return self.workspace, self.known_as, own


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOwner(YamlFields):
    """An entry of a reservation's history."""

    namespace: str
    name: str = ""
    cluster: str = ""
    released_at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationSpec(YamlFields):
    """Who has an address: it is held while `quarantined_until` is None, else in quarantine."""

    address: str
    space: str
    range: str
    owner: Owner
    requested: Requested
    since: Time
    quarantined_until: Time | None = None
    guest_gone_since: Time | None = None
    """When a leader found that the guest cluster, which lives on outside of Rancher, is gone there."""
    history: tuple[PastOwner, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPReservation(KubeObject):
    """Who has one address, or had it last."""

    spec: ReservationSpec

    @property
    def is_held(self) -> bool:
        """Whether the address is held, not in quarantine."""
        return self.spec.quarantined_until is None


# Reading and writing


def read_object(kind: type[K], item: JsonView) -> K:
    """Return an object of the API server as a value. Raises: UnreadableError.

    A status that does not fit counts as none: fipop writes a new one. A spec that people write counts as empty.
    """
    parts = {part: item[part] for part in ("metadata", "spec", "status") if part in item}
    try:
        return read(kind, parts)
    except UnreadableError as error:
        if not issubclass(kind, CheckedObject):
            raise
        fitting = {part: each for part, each in parts.items() if part not in error.parts}
        return read(kind, {**fitting, "problem": str(error) if "spec" in error.parts else ""})


def read_metadata(item: JsonView) -> Metadata:
    """Return the metadata of an object of any kind. Raises: UnreadableError."""
    return read(Metadata, item["metadata"])


def build_body(reservation: FloatingIPReservation) -> Json:
    """Return the whole object for the API server, with the resource version if it was read before."""
    metadata: Json = {"name": reservation.name}
    if reservation.uid:
        metadata |= reservation.precondition
    return {"metadata": metadata, "spec": write(reservation.spec)}


def build_capacity(usage: RangeUsage) -> Capacity:
    """Return the counts of a range as its status holds them, each at most INT64_MAX."""
    whole, ipv4, ipv6 = (
        {name: min(count, INT64_MAX) for name, count in each.counts().items()} for each in usage
    )
    free_ipv4, free_ipv6 = (
        f"{count_text(each.free)}/{count_text(each.total)}" if each.total else None
        for each in (usage.ipv4, usage.ipv6)
    )
    return Capacity(
        **whole,
        ipv4=AddressCounts(**ipv4),
        ipv6=AddressCounts(**ipv6),
        free_ipv4=free_ipv4,
        free_ipv6=free_ipv6,
    )
