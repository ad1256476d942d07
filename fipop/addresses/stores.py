"""What the operator knows of the management cluster: a store for each kind that it watches."""

from __future__ import annotations

from functools import partial
from typing import Any

from fipop.addresses.claims import named_addresses
from fipop.api.names import DEFAULT_QUARANTINE_SECONDS
from fipop.api.objects import (
    FloatingIP,
    FloatingIPRange,
    FloatingIPReservation,
    GuestStatus,
    read_object,
)
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.rancher.links import choose_cluster
from fipop.rancher.objects import (
    ManagementCluster,
    NamespaceInfo,
    ProvisioningCluster,
    parse_management_cluster,
    parse_namespace,
    parse_provisioning_cluster,
    show_name,
)
from fipop.runtime.store import Store

BY_NAMESPACE = "namespace"
BY_NAMED = "named"
"""Of floating IPs: the addresses that they name."""
BY_RANGE = "range"
"""Of floating IPs: the range that serves them, and the one that they name."""
BY_WAITING = "waiting"
"""Of floating IPs: whether they wait for something."""
BY_OWNER = "owner"
BY_OWNER_NAMESPACE = "owner-namespace"
BY_FORMER_OWNER = "former-owner"
"""Of reservations in quarantine: the lineage of who had them."""
BY_GUEST_ID = "guest-id"

WATCHED: tuple[Resource, ...] = (
    # Reservations first, owners second: a list of owners that is younger than the reservations cannot miss one.
    FLOATING_IP_RESERVATIONS,
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
)


class Stores:
    """The stores, by kind."""

    def __init__(self) -> None:
        self.ranges: Store[FloatingIPRange] = Store(
            partial(read_object, FloatingIPRange), kind="FloatingIPRange"
        )
        self.floating_ips: Store[FloatingIP] = Store(
            partial(read_object, FloatingIP),
            kind="FloatingIP",
            indexes={
                BY_NAMESPACE: lambda fip: fip.namespace,
                BY_RANGE: lambda fip: frozenset(filter(None, (fip.status.range, fip.range))),
                BY_WAITING: lambda fip: fip.is_waiting,
                BY_NAMED: named_addresses,
            },
        )
        self.reservations: Store[FloatingIPReservation] = Store(
            partial(read_object, FloatingIPReservation),
            kind="FloatingIPReservation",
            indexes={
                BY_OWNER: lambda reservation: reservation.spec.owner.key,
                BY_OWNER_NAMESPACE: lambda reservation: reservation.spec.owner.namespace,
                BY_FORMER_OWNER: lambda reservation: (
                    None if reservation.is_held else reservation.spec.owner.lineage
                ),
            },
        )
        self.clusters: Store[ProvisioningCluster] = Store(
            parse_provisioning_cluster,
            kind="provisioning Cluster",
            indexes={BY_GUEST_ID: lambda cluster: cluster.cluster_name or None},
        )
        self.management: Store[ManagementCluster] = Store(parse_management_cluster, kind="management Cluster")
        self.namespaces: Store[NamespaceInfo] = Store(parse_namespace, kind="Namespace")
        self._stores: dict[Resource, Store[Any]] = {
            FLOATING_IP_RANGES: self.ranges,
            FLOATING_IPS: self.floating_ips,
            FLOATING_IP_RESERVATIONS: self.reservations,
            PROVISIONING_CLUSTERS: self.clusters,
            MANAGEMENT_CLUSTERS: self.management,
            NAMESPACES: self.namespaces,
        }

    def store_of(self, resource: Resource) -> Store[Any]:
        """Return the store of a kind that is watched."""
        return self._stores[resource]

    def guest_clusters(self, guest_id: str) -> tuple[ProvisioningCluster, ...]:
        """Return the provisioning Clusters that say they are this guest: one, where all is well."""
        return self.clusters.by_index(BY_GUEST_ID, guest_id)

    def find_management(self, name: str) -> ManagementCluster | None:
        """Return a management Cluster."""
        return self.management.get("", name)

    def cluster_of(self, guest_id: str) -> ProvisioningCluster | None:
        """Return the provisioning Cluster of a guest cluster; None if none says that it is this guest."""
        return choose_cluster(self.guest_clusters(guest_id), self.find_management(guest_id))

    def exists(self, guest_id: str) -> bool:
        """Return whether a cluster object of a guest is left: then it may still run, with its addresses."""
        return bool(self.guest_clusters(guest_id)) or self.management.get("", guest_id) is not None

    def display_name(self, cluster: ProvisioningCluster) -> str:
        """Return what people call a cluster; "" if that is not known."""
        management = self.management.get("", cluster.cluster_name)
        return (management.display_name if management is not None else "") or cluster.display_name

    def show_guest(self, guest_id: str) -> str:
        """Return the id of a guest cluster, with what people call it if that is not the name of its Cluster."""
        for each in self.guest_clusters(guest_id):
            display_name = self.display_name(each)
            return show_name(guest_id, display_name if display_name != each.name else "")
        return guest_id

    def find_known_as(self, workspace: str, name: str) -> list[ProvisioningCluster]:
        """Return the Clusters of a workspace that have a name as their own, or as what people call them."""
        return [
            each
            for each in self.clusters.all()
            if each.namespace == workspace and name in (each.name, self.display_name(each))
        ]

    def is_leaving(self, guest_id: str) -> bool:
        """Return whether Rancher is removing a guest cluster."""
        management, namespace = self.management.get("", guest_id), self.namespaces.get("", guest_id)
        is_deleted = management is not None and management.is_deleting
        return is_deleted or (namespace is not None and namespace.terminating)

    def floating_ips_of(self, namespace: str) -> tuple[FloatingIP, ...]:
        """Return the floating IPs of a guest in their fixed order: creation, then name."""
        found = self.floating_ips.by_index(BY_NAMESPACE, namespace)
        return tuple(sorted(found, key=lambda fip: (fip.created, fip.name)))

    def guest_statuses(self, guest_id: str) -> tuple[GuestStatus, ...]:
        """Return what the statuses of a guest cluster's floating IPs say of it."""
        statuses = (each.status.guest for each in self.floating_ips_of(guest_id))
        return tuple(each for each in statuses if each is not None)

    def was_tried(self, guest_id: str) -> bool:
        """Return whether a guest cluster was visited, by this process or a former one, and answered or failed."""
        return any(each.reachable is not None for each in self.guest_statuses(guest_id))

    def floating_ips_by_age(self) -> list[FloatingIP]:
        """Return all floating IPs, the oldest first."""
        return sorted(self.floating_ips.all(), key=lambda each: (each.created, each.key))

    def reservations_of(self, owner: tuple[str, str]) -> tuple[FloatingIPReservation, ...]:
        """Return the reservations that name a floating IP as their owner, held and in quarantine, by name."""
        return self.reservations.by_index(BY_OWNER, owner)

    def find_quarantined(self, guest_id: str) -> tuple[FloatingIPReservation, ...]:
        """Return the addresses that a guest cluster had and that are in quarantine, by name."""
        found = self.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        return tuple(each for each in found if not each.is_held)

    def quarantine_seconds(self, range_name: str) -> int:
        """Return how long addresses of a range wait; the default where the range is gone."""
        found = self.ranges.get("", range_name)
        return found.spec.quarantine_seconds if found is not None else DEFAULT_QUARANTINE_SECONDS
