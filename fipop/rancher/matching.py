"""A guest cluster as one value, and which ranges serve it. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fipop.api.objects import FloatingIPRange
from fipop.rancher.objects import ProvisioningCluster, show_name
from fipop.texts import LONGEST_WORD, clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A guest cluster: its provisioning Cluster, and what its links say."""

    cluster: ProvisioningCluster
    connected: bool
    """Whether Rancher is connected to it."""
    deleting: bool
    """Whether one of its objects in Rancher is being deleted, or is gone."""
    provisioned: bool = True
    """False while Rancher makes its machines."""
    harvester_cluster_name: str | None = None
    """The display name of the Harvester cluster under it; None if there is none, or Rancher does not know it."""
    networks: tuple[str, ...] = ()
    """The networks of its control-plane machines."""
    display_name: str = ""
    """What people call it; "" if that is not known."""
    warning: str = ""
    """What is wrong with the cloud credential of its machines, as a sentence, though it was resolved."""

    @property
    def id(self) -> str:
        """The name of its management Cluster, and of the namespace of its floating IPs."""
        return self.cluster.cluster_name

    @property
    def cluster_name(self) -> str:
        """The name of its provisioning Cluster, by which it is shown."""
        return self.cluster.name

    @property
    def shown(self) -> str:
        """The name of its provisioning Cluster as messages have it: in quotes, with what people call it."""
        return show_name(f'"{self.cluster_name}"', self.display_name if self.has_other_name else "")

    @property
    def has_other_name(self) -> bool:
        """Whether people call it by another name than that of its provisioning Cluster."""
        return self.display_name not in ("", self.cluster_name)

    @property
    def on_harvester(self) -> bool:
        """Whether its machines are Harvester's."""
        return self.cluster.harvester_pool is not None


class NoRange(StrEnum):
    """Why a range that is meant for a guest gives it no address."""

    OTHER_NETWORK = "NetworkMismatch"
    DRAINING = "RangeDraining"
    FULL = "RangeFull"


def match_ranges(
    guest: Guest, ranges: Sequence[FloatingIPRange], *, is_full: Callable[[str], bool]
) -> list[tuple[FloatingIPRange, NoRange | None]]:
    """Order the ranges that are meant for a guest: network named, then selector, then oldest, then name.

    With each, why it gives no address; None if it does. `is_full`: whether the range of a name has no address for a new
    guest.
    """
    matching = sorted((each for each in ranges if is_meant_for(each, guest)), key=_rank)
    return [(each, _blocker(each, guest, is_full)) for each in matching]


def is_meant_for(each: FloatingIPRange, guest: Guest) -> bool:
    """Whether a range's Harvester cluster and selector, where given, both match; one must be given.

    An empty selector selects every guest, as selectors do.
    """
    if not each.harvester_cluster and each.match_labels is None:
        return False
    return fits_guest(each, guest)


def fits_guest(each: FloatingIPRange, guest: Guest, *, on_any_harvester: bool = False) -> bool:
    """Whether nothing that a range names speaks against a guest; one that names nothing fits every guest.

    `on_any_harvester`: which Harvester cluster the guest is on is not known.
    """
    if (
        each.harvester_cluster
        and each.harvester_cluster != guest.harvester_cluster_name
        and not on_any_harvester
    ):
        return False
    wanted = each.match_labels or {}
    return is_allowed(each, guest) and all(
        guest.cluster.labels.get(label) == value for label, value in wanted.items()
    )


def is_allowed(each: FloatingIPRange, guest: Guest) -> bool:
    """Whether the admin lets a range serve a guest, also where it is named."""
    workspaces, clusters = each.spec.allowed_workspaces, each.spec.allowed_clusters
    names = (workspaces, guest.cluster.namespace), (clusters, guest.cluster_name)
    return all(not allowed or name in allowed for allowed, name in names)


def find_name_hint(guest: Guest, names: Collection[str]) -> str:
    """Return, after a colon, that a list has the display name of a guest cluster in place of its name; else ""."""
    if not guest.has_other_name or guest.display_name not in names or guest.cluster_name in names:
        return ""
    return f': "{clean(guest.display_name, LONGEST_WORD)}" is only its display name, write "{guest.cluster_name}"'


def would_be_chosen(each: FloatingIPRange, guest: Guest) -> bool:
    """Whether a range, were it not full or draining, would be chosen for a guest without being named."""
    on_network = not each.harvester_network or is_on_network(guest, each.harvester_network)
    return is_meant_for(each, guest) and on_network


def describe_misfit(each: FloatingIPRange, guest: Guest) -> str:
    """Return what keeps a range from being chosen for a guest, as it follows the range's name; "" if nothing does."""
    own_labels, wanted = guest.cluster.labels, each.match_labels or {}
    lacking = [f"{label}={value}" for label, value in wanted.items() if own_labels.get(label) != value]
    if not each.harvester_cluster and each.match_labels is None:
        return "has neither harvesterClusterName nor clusterSelector"
    if each.harvester_cluster and each.harvester_cluster != guest.harvester_cluster_name:
        own = guest.harvester_cluster_name or "none that Rancher knows"
        return f"is of Harvester cluster {each.harvester_cluster}, and the guest cluster is on {own}"
    if lacking:
        return f"selects {', '.join(lacking)}, which the guest cluster does not have"
    if not is_allowed(each, guest):
        hint = find_name_hint(guest, each.spec.allowed_clusters)
        return f"does not list the guest cluster in allowedWorkspaces or allowedClusters{hint}"
    if would_be_chosen(each, guest):
        return ""
    own = ", ".join(guest.networks) or "none that is known"
    return f"is of network {each.harvester_network}, and the guest cluster is on {own}"


def is_on_network(guest: Guest, network: str) -> bool:
    """Whether a machine network is the one that a range names.

    A range says `vlan10`, which is compared with what follows the `/` of a machine's network name, or
    `default/vlan10`, which is compared with the whole.
    """
    return any(is_same_network(network, each) for each in guest.networks)


def is_same_network(network: str, name: str) -> bool:
    """Whether what a range says is the name of a network, as `is_on_network` compares them."""
    return network == (name if "/" in network else name.rpartition("/")[2])


def _blocker(each: FloatingIPRange, guest: Guest, is_full: Callable[[str], bool]) -> NoRange | None:
    if each.harvester_network and not is_on_network(guest, each.harvester_network):
        return NoRange.OTHER_NETWORK
    if each.spec.draining:
        return NoRange.DRAINING
    return NoRange.FULL if is_full(each.name) else None


def _rank(each: FloatingIPRange) -> tuple[bool, bool, datetime, str]:
    # A range that names another network sorts as one that names the guest's: it never becomes a candidate.
    return not each.harvester_network, each.match_labels is None, each.created, each.name
