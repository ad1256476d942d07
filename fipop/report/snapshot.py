"""What was read of a management cluster for a report: the operator's inventory, and the operator itself as values.

What could not be read is named in `unread`, and is unknown to every report, never empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from fipop.addresses.claims import read_addresses
from fipop.addresses.inventory import Inventory
from fipop.api import names
from fipop.api.guest_problems import GuestProblem
from fipop.api.objects import FloatingIP
from fipop.ipam.addresses import Address, parse_addresses
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.rancher.links import is_guest
from fipop.rancher.objects import ProvisioningCluster, show_name
from fipop.rollout.parts import Parts
from fipop.rollout.plan import Phase, Rollout, count, describe_change
from fipop.settings.options import DEFAULTS, BadOption, Settings


class Kind(StrEnum):
    """What a snapshot has, as `Unread.what` names it: kinds of objects, and what belongs to the operator itself."""

    RANGES = "floating IP ranges"
    FLOATING_IPS = "floating IPs"
    RESERVATIONS = "reservations"
    CLUSTERS = "Rancher's clusters"
    MANAGEMENT = "Rancher's management clusters"
    DEPLOYMENT = "the operator's Deployment"
    LEASE = "the operator's Lease"
    OPTIONS = "the options"
    ROLLOUT = "the rollout"
    CRDS = "fipop's CRDs"
    PREDECESSOR = "kube-fip-operator"


SCHEMA_REVISIONS = {
    FLOATING_IP_RANGES.full_name: 10,
    FLOATING_IPS.full_name: 9,
    FLOATING_IP_RESERVATIONS.full_name: 4,
}
"""The revisions of our CRDs that this version knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What could not be read (a Kind, or a guest cluster), and why in a sentence."""

    what: str
    problem: str
    forbidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderLease:
    """The Lease of the operator; `holder` is "" if no replica holds it."""

    holder: str
    renewed: datetime | None
    duration_seconds: float
    waits: tuple[str, ...] = ()
    """A sentence for each range that waits for a guest cluster."""
    problems: tuple[GuestProblem, ...] = ()
    """What is wrong with the links of guest clusters."""

    def holds(self, now: datetime) -> bool:
        """Whether it was renewed in its time. Another machine wrote that time: a few seconds more are granted."""
        if not self.holder or self.renewed is None:
            return False
        return (now - self.renewed).total_seconds() < self.duration_seconds + _CLOCKS_APART_SECONDS


_CLOCKS_APART_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentState:
    """The Deployment of the operator: its image and ServiceAccount, and how many of its pods are ready."""

    image: str
    service_account: str
    wanted: int
    ready: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is known of the operator itself; None and empty where it could not be read, or is not there."""

    namespace: str
    leader_namespace: str = ""
    """The namespace of the installation that leads the management cluster; "" if it is not known."""
    leadership: LeaderLease | None = None
    workload: DeploymentState | None = None
    running_predecessor: str = ""
    """Namespace and name of a Deployment of kube-fip-operator that has replicas; "" if none has."""
    schemas: dict[str, int | None] = field(default_factory=dict)
    """The revision of each of our CRDs that was looked for; None for one that is not there."""
    has_settings: bool | None = None
    settings: Settings = DEFAULTS
    bad_options: tuple[BadOption, ...] = ()
    unwise_options: tuple[str, ...] = ()
    rollout: Rollout | None = None
    rollout_parts: Parts = field(default_factory=dict)
    """The part of each guest cluster in the rollout, as the operator wrote it last."""
    rollout_waits: str = ""
    """What the rollout waits for, as a sentence; "" if it has ended."""

    @property
    def rollout_guests(self) -> Mapping[str, int]:
        """How many guest clusters stand where in the rollout."""
        return count(each.status for each in self.rollout_parts.values())

    @property
    def rollout_paused(self) -> bool:
        """Whether the options pause a rollout that is going on."""
        is_active = self.rollout is not None and self.rollout.phase is Phase.PROGRESSING
        return is_active and self.settings.kubevip_rollout_paused

    def render_rollout(self) -> dict[str, object] | None:
        """Return the fields of the rollout in JSON; None if there is none."""
        state = self.rollout
        if state is None:
            return None
        return {
            "target": state.target.name,
            "change": describe_change(state),
            "began": state.began,
            "charts": {role.value: chart.version for role, chart in state.target.charts.items()},
            "stable": state.stable.name if state.stable is not None else "",
            "phase": state.phase,
            "paused": self.rollout_paused,
            "guests": self.rollout_guests,
            "reason": state.reason,
            "waits": self.rollout_waits,
        }


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """A management cluster as it was read once; `now` is its API server's time."""

    now: datetime
    inventory: Inventory
    installation: Installation = field(
        default_factory=lambda: Installation(namespace=names.OPERATOR_NAMESPACE)
    )
    unread: tuple[Unread, ...] = ()
    _cluster_names: dict[str, str] = field(init=False)
    _display_names: dict[str, str] = field(init=False)
    _requests: dict[tuple[str, Address], list[FloatingIP]] = field(init=False)

    def __post_init__(self) -> None:
        floating_ips = self.inventory.floating_ips.all()
        statuses = ((each.namespace, each.status.guest) for each in floating_ips)
        self._cluster_names = {guest: each.cluster for guest, each in statuses if each and each.cluster}
        self._cluster_names |= {each.cluster_name: each.name for each in self.inventory.clusters.all()}
        called = {
            each.cluster_name: (each.name, self.inventory.display_name(each))
            for each in self.inventory.clusters.all()
        }
        self._display_names = {
            guest: shown for guest, (name, shown) in called.items() if shown not in ("", name)
        }
        requests = defaultdict(list)
        for each in floating_ips:
            for address in read_addresses(each.spec.ipaddress.split(",")):
                requests[self.inventory.space_of(each), address].append(each)
        self._requests = dict(requests)

    def is_read(self, *kinds: Kind) -> bool:
        """Whether all of these kinds could be read; of the others nothing may be concluded from absence."""
        return not any(each.what in kinds for each in self.unread)

    @property
    def is_counted(self) -> bool:
        """Whether all that takes an address could be read."""
        return self.is_read(Kind.RESERVATIONS, Kind.FLOATING_IPS)

    def spaces(self) -> list[str]:
        """Return the names of all address spaces, in their order."""
        found = {each.spec.address_space for each in self.inventory.ranges.all()}
        found |= {each.spec.space for each in self.inventory.reservations.all()}
        found |= {self.inventory.space_of(each) for each in self.inventory.floating_ips.all()}
        return sorted(found) or [names.DEFAULT_ADDRESS_SPACE]

    def requests_for(self, space: str, address: Address) -> list[FloatingIP]:
        """Return the floating IPs whose spec names an address, whether they hold it or not."""
        return self._requests.get((space, address), [])

    def find_problem(self, guest_id: str) -> GuestProblem | None:
        """Return what the operator found wrong with the links of a guest cluster."""
        lease = self.installation.leadership
        problems = lease.problems if lease is not None and lease.holds(self.now) else ()
        return next((each for each in problems if guest_id in each.guests), None)

    def cluster_of(self, namespace: str, fallback: str = "") -> str:
        """Return the name of the cluster whose guest has this namespace, as Rancher or a status names it."""
        return self._cluster_names.get(namespace) or fallback

    def display_name_of(self, namespace: str) -> str:
        """Return what people call the guest cluster of a namespace, if that is not the name of its Cluster; else ""."""
        return self._display_names.get(namespace, "")

    def show_guest(self, guest_id: str, fallback: str = "?") -> str:
        """Return the name of a guest cluster, with what people call it; the fallback if it is not known."""
        return show_name(self.cluster_of(guest_id, fallback), self.display_name_of(guest_id))

    def show_cluster(self, cluster: ProvisioningCluster) -> str:
        """Return workspace and name of a Cluster, with what people call it."""
        return show_name("/".join(cluster.key), self.display_name_of(cluster.cluster_name))

    def find_clusters(self, name: str) -> list[ProvisioningCluster]:
        """Return the Clusters that a user can mean by a name: their own, also with workspace, id or display name.

        Workspace and name are those of one alone, even if another one is called so.
        """
        exact = [each for each in self.inventory.clusters.all() if name == "/".join(each.key)]
        return exact or [
            each
            for each in self.inventory.clusters.all()
            if name and (each.is_meant_by(name) or name == self.display_name_of(each.cluster_name))
        ]

    def list_guest_clusters(self) -> list[ProvisioningCluster]:
        """Return the Clusters that are neither Rancher's own nor Harvester clusters."""
        management = self.inventory.management
        return [
            each
            for each in self.inventory.clusters.all()
            if is_guest(each, management.get("", each.cluster_name))
        ]

    def list_cluster_names(self) -> list[str]:
        """Return the names of all Clusters, and what people call them."""
        return [*(each.name for each in self.inventory.clusters.all()), *self._display_names.values()]

    def describe_ambiguity(self, name: str) -> str:
        """Return that a name fits several guest clusters, as a sentence; "" if it does not."""
        found = [each for each in self.find_clusters(name) if each.cluster_name]
        if len(found) < 2:
            return ""
        shown = ", ".join(map(self.show_cluster, found))
        return f'The name "{name}" fits {len(found)} guest clusters: {shown}. Name one as workspace/cluster.'


def read_address(text: str) -> Address | None:
    """Read an address; None if the text is not one."""
    return next(iter(parse_addresses([text])), None)
