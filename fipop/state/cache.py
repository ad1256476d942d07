"""What the operator knows of the management cluster: one store per kind, and the allocation index kept from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.api.names import DEFAULT_QUARANTINE_SECONDS
from fipop.api.parsing import parse_floating_ip, parse_range, parse_reservation
from fipop.control.resync import Feed, Source
from fipop.control.store import Change, Projection, Store
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
from fipop.state.allocations import AllocationIndex

Json = Mapping[str, Any]
P = TypeVar("P", bound=Projection)

BY_NAMESPACE = "namespace"
BY_OWNER = "owner"
BY_OWNER_NAMESPACE = "owner-namespace"
BY_FORMER_OWNER = "former-owner"
BY_PAST_NAMESPACE = "past-namespace"
BY_RANGE = "range"
BY_GUEST_ID = "guest-id"


def _reservations() -> Store[Reservation]:
    return Store(
        parse_reservation,
        kind="FloatingIPReservation",
        indexes={
            BY_OWNER: lambda reservation: reservation.owner.key,
            BY_OWNER_NAMESPACE: lambda reservation: reservation.owner.namespace,
            BY_PAST_NAMESPACE: lambda reservation: frozenset(past.namespace for past in reservation.history),
            BY_FORMER_OWNER: lambda reservation: (
                None
                if reservation.is_held
                else (reservation.owner.cluster, reservation.owner.name, reservation.range)
            ),
        },
    )


@dataclass(slots=True)
class ClusterCache:
    """The stores, and the ledgers that follow them: every change of an object of ours is in the index at once."""

    ranges: Store[FloatingIPRange] = field(default_factory=lambda: Store(parse_range, kind="FloatingIPRange"))
    floating_ips: Store[FloatingIP] = field(
        default_factory=lambda: Store(
            parse_floating_ip,
            kind="FloatingIP",
            indexes={
                BY_NAMESPACE: lambda fip: fip.namespace,
                BY_RANGE: lambda fip: frozenset(filter(None, (fip.status.range, fip.range))),
            },
        )
    )
    reservations: Store[Reservation] = field(default_factory=_reservations)
    clusters: Store[ProvisioningCluster] = field(
        default_factory=lambda: Store(
            parse_provisioning_cluster,
            kind="provisioning Cluster",
            indexes={BY_GUEST_ID: lambda cluster: cluster.cluster_name or None},
        )
    )
    management: Store[ManagementCluster] = field(
        default_factory=lambda: Store(parse_management_cluster, kind="management Cluster")
    )
    namespaces: Store[NamespaceInfo] = field(default_factory=lambda: Store(parse_namespace, kind="Namespace"))
    allocations: AllocationIndex = field(default_factory=AllocationIndex)
    on_change: Callable[[Resource, Change[Any]], None] = lambda _resource, _change: None
    """Told of every change after it is in the index, whether an event, a list or the answer of our write brought it."""
    on_loss: Callable[[], None] = lambda: None
    """Told, before it is in the index, that a list lacks what holds an address and no event said was deleted."""
    monotonic: Callable[[], float] = time.monotonic
    _as_it_is: dict[str, tuple[int, float]] = field(default_factory=dict)

    def store_of(self, resource: Resource) -> Store[Any]:
        """Give the store of a kind that is watched."""
        stores: dict[Resource, Store[Any]] = {
            FLOATING_IP_RANGES: self.ranges,
            FLOATING_IPS: self.floating_ips,
            FLOATING_IP_RESERVATIONS: self.reservations,
            PROVISIONING_CLUSTERS: self.clusters,
            MANAGEMENT_CLUSTERS: self.management,
            NAMESPACES: self.namespaces,
        }
        return stores[resource]

    def guest_clusters(self, guest_id: str) -> tuple[ProvisioningCluster, ...]:
        """Give the provisioning Clusters that say they are this guest: one, where all is well."""
        return self.clusters.by_index(BY_GUEST_ID, guest_id)

    def floating_ips_of(self, namespace: str) -> tuple[FloatingIP, ...]:
        """Give the floating IPs of a guest in their fixed order: creation, then name."""
        found = self.floating_ips.by_index(BY_NAMESPACE, namespace)
        return tuple(sorted(found, key=lambda fip: (fip.meta.created, fip.name)))

    def floating_ips_of_range(self, name: str) -> tuple[FloatingIP, ...]:
        """Give the floating IPs that are served from a range, or name it."""
        return self.floating_ips.by_index(BY_RANGE, name)

    def reservations_of(self, owner: tuple[str, str]) -> tuple[Reservation, ...]:
        """Give the reservations that name a floating IP as their owner, held and in quarantine, by name."""
        return self.reservations.by_index(BY_OWNER, owner)

    def feed(self, resource: Resource) -> Feed[Any]:
        """Give the way by which events and lists of a kind come in."""
        return Feed(
            resource=resource,
            store=self.store_of(resource),
            on_change=lambda change, source: self._take_from_feed(resource, change, source),
        )

    def observe(self, resource: Resource, obj: Json) -> None:
        """Take in the answer of our own read or write."""
        change = self.store_of(resource).put(obj)
        if change is not None:
            self._take(resource, change)

    def forget(self, resource: Resource, gone: Projection) -> None:
        """Take in that the API server knows no object of that name."""
        metadata = {"name": gone.name, "resourceVersion": str(gone.resource_version)}
        if gone.namespace:
            metadata["namespace"] = gone.namespace
        change = self.store_of(resource).delete({"metadata": metadata})
        if change is not None:
            self._take(resource, change)

    def age_of(self, reservation: Reservation) -> float:
        """Give for how many seconds, at least, a reservation has been as it is: since this process saw it so."""
        version, since = self._as_it_is.get(reservation.name, (-1, 0.0))
        if version != reservation.resource_version:
            since = self.monotonic()
            self._as_it_is[reservation.name] = reservation.resource_version, since
        return self.monotonic() - since

    def quarantine_seconds(self, range_name: str) -> int:
        """Give how long addresses of a range wait; the default where the range is gone."""
        found = self.ranges.get("", range_name)
        return found.quarantine_seconds if found is not None else DEFAULT_QUARANTINE_SECONDS

    def _take_from_feed(self, resource: Resource, change: Change[Any], source: Source) -> None:
        if resource in _HOLDING and source is Source.LIST and change.new is None:
            self.on_loss()
        self._take(resource, change)

    def _take(self, resource: Resource, change: Change[Any]) -> None:
        if resource == FLOATING_IP_RESERVATIONS:
            if change.new is not None:
                self.age_of(change.new)
            else:
                self._as_it_is.pop(change.latest.name, None)
            self.allocations.reservation_changed(change.old, change.new)
        elif resource == FLOATING_IPS:
            self.allocations.floating_ip_changed(change.old, change.new)
        elif resource == FLOATING_IP_RANGES:
            self.allocations.range_changed(change.old, change.new)
        self.on_change(resource, change)


_HOLDING = frozenset({FLOATING_IP_RESERVATIONS, FLOATING_IPS})

WATCHED: tuple[Resource, ...] = (
    # Reservations first, owners second: a list of owners that is younger than the reservations cannot miss one.
    FLOATING_IP_RESERVATIONS,
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    PROVISIONING_CLUSTERS,
    MANAGEMENT_CLUSTERS,
    NAMESPACES,
)
