"""What the operator knows of the management cluster: one store for each kind, and the ledger of addresses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from fipop.addresses.claims import named_addresses
from fipop.addresses.inventory import BY_NAMED, BY_OWNER, BY_OWNER_NAMESPACE, Ledger
from fipop.api.conditions import ConditionType
from fipop.api.names import DEFAULT_QUARANTINE_SECONDS
from fipop.api.objects import (
    CheckedObject,
    FloatingIP,
    FloatingIPRange,
    FloatingIPReservation,
    GuestStatus,
    Owner,
    read_object,
)
from fipop.ipam.addresses import FamilyPolicy
from fipop.jsons import JsonView
from fipop.kube.client import KubeClient
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.rancher.objects import (
    ManagementCluster,
    NamespaceInfo,
    ProvisioningCluster,
    parse_management_cluster,
    parse_namespace,
    parse_provisioning_cluster,
)
from fipop.runtime.informer import Informer
from fipop.runtime.store import Change, Projection, Store

logger = logging.getLogger(__name__)


BY_NAMESPACE = "namespace"
BY_FORMER_OWNER = "former-owner"
BY_RANGE = "range"
"""Of floating IPs: the range that serves them, and the one that they name."""
BY_WAITING = "waiting"
"""Of floating IPs: whether they wait for something."""
BY_GUEST_ID = "guest-id"


def former_key(owner: Owner) -> tuple[str, str, str]:
    """Return what a floating IP has in common with the one that it replaces: workspace, cluster, name."""
    return owner.workspace, owner.cluster, owner.name


def _reservations() -> Store[FloatingIPReservation]:
    return Store(
        partial(read_object, FloatingIPReservation),
        kind="FloatingIPReservation",
        indexes={
            BY_OWNER: lambda reservation: reservation.spec.owner.key,
            BY_OWNER_NAMESPACE: lambda reservation: reservation.spec.owner.namespace,
            BY_FORMER_OWNER: lambda reservation: (
                None if reservation.is_held else former_key(reservation.spec.owner)
            ),
        },
    )


def is_waiting(floating_ip: FloatingIP) -> bool:
    """Return whether the status of a floating IP does not say that it has all that it asks for."""
    status = floating_ip.status
    if status.observed_generation != floating_ip.metadata.generation or not status.addresses:
        return True
    is_allocated = any(each.type == ConditionType.ALLOCATED and each.is_true for each in status.conditions)
    wants_second = (
        floating_ip.spec.ip_family_policy is FamilyPolicy.PREFER_DUAL_STACK and len(status.addresses) == 1
    )
    return wants_second or not is_allocated


class ClusterCache:
    """The stores, and the ledgers that follow them: every change of an object of ours is in the index at once.

    It is kept by a standby, too; its listener is whoever leads.
    """

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
                BY_WAITING: is_waiting,
                BY_NAMED: named_addresses,
            },
        )
        self.reservations = _reservations()
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
        self.ledger = Ledger(reservations=self.reservations, floating_ips=self.floating_ips)
        self.listener: Callable[[Resource, Change[Any]], None] | None = None
        """Is called with each change, after it is in the indexes, whatever brought it."""

    def store_of(self, resource: Resource) -> Store[Any]:
        """Return the store of a kind that is watched."""
        return self._stores[resource]

    def guest_clusters(self, guest_id: str) -> tuple[ProvisioningCluster, ...]:
        """Return the provisioning Clusters that say they are this guest: one, where all is well."""
        return self.clusters.by_index(BY_GUEST_ID, guest_id)

    def floating_ips_of(self, namespace: str) -> tuple[FloatingIP, ...]:
        """Return the floating IPs of a guest in their fixed order: creation, then name."""
        found = self.floating_ips.by_index(BY_NAMESPACE, namespace)
        return tuple(sorted(found, key=lambda fip: (fip.created, fip.name)))

    def guest_statuses(self, guest_id: str) -> tuple[GuestStatus, ...]:
        """Return what the statuses of a guest cluster's floating IPs say of it."""
        statuses = (each.status.guest for each in self.floating_ips_of(guest_id))
        return tuple(each for each in statuses if each is not None)

    def floating_ips_by_age(self) -> list[FloatingIP]:
        """Return all floating IPs, the oldest first."""
        return sorted(self.floating_ips.all(), key=lambda each: (each.created, each.key))

    def reservations_of(self, owner: tuple[str, str]) -> tuple[FloatingIPReservation, ...]:
        """Return the reservations that name a floating IP as their owner, held and in quarantine, by name."""
        return self.reservations.by_index(BY_OWNER, owner)

    def build_informer(self, client: KubeClient, resource: Resource) -> Informer[Any]:
        """Return the way by which events and lists of a kind come in."""
        return Informer(client, resource, self.store_of(resource), partial(self._take, resource))

    def take_reservation(self, answer: JsonView) -> FloatingIPReservation:
        """Take in the answer of our own read or write of a reservation, and give it as it was answered."""
        self.observe(FLOATING_IP_RESERVATIONS, answer)
        return read_object(FloatingIPReservation, answer)

    def observe(self, resource: Resource, obj: JsonView) -> None:
        """Take in the answer of our own read or write."""
        self._take(resource, self.store_of(resource).put(obj))

    def suppose(self, resource: Resource, projection: Projection) -> None:
        """Take in an object as it would be after a write that is not made."""
        self._take(resource, self.store_of(resource).take(projection))

    def forget(self, resource: Resource, gone: Projection) -> None:
        """Take in that the API server knows no object of that name."""
        metadata = {"name": gone.name, "resourceVersion": str(gone.resource_version)}
        if gone.namespace:
            metadata["namespace"] = gone.namespace
        self._take(resource, self.store_of(resource).delete({"metadata": metadata}))

    def quarantine_seconds(self, range_name: str) -> int:
        """Return how long addresses of a range wait; the default where the range is gone."""
        found = self.ranges.get("", range_name)
        return found.spec.quarantine_seconds if found is not None else DEFAULT_QUARANTINE_SECONDS

    def _take(self, resource: Resource, change: Change[Any] | None) -> None:
        if change is None:
            return
        if isinstance(change.new, CheckedObject) and change.new.problem:
            fields = {"resource": resource.plural, "object": "/".join(change.new.key).lstrip("/")}
            logger.warning("Could not read object", extra={**fields, "error": change.new.problem})
        if resource == FLOATING_IP_RESERVATIONS:
            self.ledger.reservation_changed(change.old, change.new)
        elif resource == FLOATING_IP_RANGES:
            self.ledger.range_changed(change.old, change.new)
        elif resource == FLOATING_IPS:
            self.ledger.floating_ip_changed(change.old, change.new)
        if self.listener is not None:
            self.listener(resource, change)


WATCHED: tuple[Resource, ...] = (
    # Reservations first, owners second: a list of owners that is younger than the reservations cannot miss one.
    FLOATING_IP_RESERVATIONS,
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
)
