"""FloatingIPRange, FloatingIP and FloatingIPReservation as values.

Times are aware datetimes, resource versions integers. `parsing` reads them from what the API server serves,
`rendering` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from fipop.api import names
from fipop.api.conditions import Condition
from fipop.ipam.addresses import FamilyPolicy
from fipop.jsons import Json

EPOCH = datetime.fromtimestamp(0, UTC)


class SearchOrder(StrEnum):
    """From which end of a pool addresses are assigned."""

    ASC = "asc"
    DESC = "desc"


class Requested(StrEnum):
    """Whether an address was requested by name or chosen by fipop."""

    STATIC = "static"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What every object has; `namespace` is "" for cluster-scoped ones."""

    namespace: str = ""
    name: str
    uid: str
    resource_version: int = field(compare=False)
    generation: int = 0
    created: datetime = EPOCH
    deleting: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The name within its kind: (namespace, name)."""
        return self.namespace, self.name


class Named:
    """What the store asks of every projection, answered from `meta`."""

    __slots__ = ()
    meta: Meta

    @property
    def namespace(self) -> str:
        """The namespace; "" if the kind is cluster scoped."""
        return self.meta.namespace

    @property
    def name(self) -> str:
        """The name within the namespace."""
        return self.meta.name

    @property
    def uid(self) -> str:
        """The identity of this very object, not of its name."""
        return self.meta.uid

    @property
    def resource_version(self) -> int:
        """The store's revision that wrote this object last."""
        return self.meta.resource_version


@dataclass(frozen=True, slots=True, order=True)
class Reported:
    """An address that a guest cluster, by its id, uses without a floating IP."""

    address: str
    guest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPRange(Named):
    """A pool of addresses that fipop assigns to guest clusters of one network."""

    meta: Meta
    iprange: str = ""
    exclude: tuple[str, ...] = ()
    search_order: SearchOrder = SearchOrder.ASC
    skip_end_ips: bool = True
    avoid_buggy_ips: bool = True
    address_space: str = names.DEFAULT_ADDRESS_SPACE
    match_labels: Mapping[str, str] | None = None
    quarantine_seconds: int = names.DEFAULT_QUARANTINE_SECONDS
    draining: bool = False
    restrict_to_matching: bool = False
    allowed_workspaces: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    max_per_guest: int | None = None
    harvester_cluster: str | None = None
    harvester_network: str | None = None
    status_capacity: Json | None = None
    """The present content of the status, to compare with what must be written."""
    reported: tuple[Reported, ...] = ()
    reported_count: int = 0
    oddities: tuple[str, ...] = ()
    """What of its annotations is probably not meant so, as sentences."""
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStatus:
    """One helm release of fipop in a guest cluster, as the status of a floating IP shows it."""

    role: str
    name: str
    namespace: str
    revision: int = 0
    digest: str = ""
    version: str = ""
    status: str = ""
    """What helm says; "" if there is no release yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestStatus:
    """The guest cluster of a floating IP; `reachable` is None while fipop has never tried to reach it."""

    cluster: str
    id: str
    reachable: bool | None
    releases: tuple[ReleaseStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPStatus:
    """What a floating IP holds; `addresses` are canonical texts, IPv4 first."""

    addresses: tuple[str, ...] = ()
    range: str | None = None
    address_space: str | None = None
    guest: GuestStatus | None = None
    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIP(Named):
    """An address for the ingress of one guest."""

    meta: Meta
    cluster: str | None = None
    range: str | None = None
    update_config_map: bool = False
    paused: bool = False
    ignored_claims: frozenset[str] = frozenset()
    ipaddress: str = ""
    ip_family_policy: FamilyPolicy | None = None
    ip_families: tuple[int, ...] = ()
    service_namespace: str | None = None
    allow_share: bool | None = None
    interface: str | None = None
    oddities: tuple[str, ...] = ()
    """What of its annotations is probably not meant so, as sentences."""
    status: FloatingIPStatus = field(default_factory=FloatingIPStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds, or last held, an address: a floating IP, and the provisioning Cluster that it serves.

    `imported`: the guest cluster keeps running, with its address, after its removal from Rancher.
    """

    namespace: str
    name: str
    uid: str
    cluster: str = ""
    workspace: str = ""
    imported: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The floating IP's (namespace, name)."""
        return self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOwner:
    """An entry of a reservation's history."""

    namespace: str
    name: str
    cluster: str
    released_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation(Named):
    """The ledger's entry of one address: held while `quarantined_until` is None, else in quarantine."""

    meta: Meta
    address: str
    space: str
    range: str
    owner: Owner
    requested: Requested = Requested.DYNAMIC
    since: datetime = EPOCH
    quarantined_until: datetime | None = None
    guest_gone_since: datetime | None = None
    """When a leader found that the guest cluster, which lives on outside of Rancher, is gone there."""
    history: tuple[PastOwner, ...] = ()

    @property
    def is_held(self) -> bool:
        """Whether the address is held, not in quarantine."""
        return self.quarantined_until is None
