"""Everything that is remembered about guest clusters: one record for each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from fipop.addresses.claims import address_of
from fipop.addresses.stores import ClusterCache
from fipop.api.codec import format_time
from fipop.api.objects import FloatingIPReservation
from fipop.guests.demand_record import DemandRecord
from fipop.guests.record import VisitRecord
from fipop.ipam.addresses import Address
from fipop.kube.client import KubeClient
from fipop.rancher.discovery import (
    Discovery,
    Links,
    NotAGuest,
    choose_cluster,
    discover_guest,
    glimpse_guest,
)
from fipop.rancher.link_reader import LinkReader
from fipop.rancher.matching import Guest, fits_guest
from fipop.rancher.objects import ManagementCluster, ProvisioningCluster

logger = logging.getLogger(__name__)

RESOLVE_ATTEMPTS = 3
"""Links that change meanwhile are resolved up to 3 times; each attempt is two requests at most."""


UNKNOWN_AFTER = timedelta(seconds=60)
"""An imported cluster without a provider is of unknown kind after 60 s of Ready: Rancher detects others at once."""


@dataclass(slots=True)
class GuestState:
    """All that this process remembers about one guest cluster.

    A reconciliation that is under way keeps the record that it began with. If the guest cluster is dropped meanwhile,
    what is written there goes with it.
    """

    guest: Guest | None = None
    """The guest cluster as its links were resolved last; None before that."""
    is_resolved: bool = False
    """Whether all links were resolved, those to its Harvester cluster and network too. If not, visits can serve it."""
    announced: Discovery | None = None
    """What was found when its floating IPs and a visit were enqueued for it last."""
    failed_lookups: int = 0
    visits: VisitRecord = field(default_factory=VisitRecord)
    demand: DemandRecord = field(default_factory=DemandRecord)
    is_dropped: bool = False


@dataclass(slots=True)
class GuestDirectory:
    """The records of guest clusters by id, which is also the namespace of their floating IPs.

    `on_drop` is called with each guest cluster that is dropped, as it was known.
    """

    cache: ClusterCache
    client: KubeClient
    on_drop: Callable[[Guest], None] = lambda _guest: None
    _reader: LinkReader = field(init=False)
    _states: dict[str, GuestState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache.ledger.reports.could_serve = self.could_serve
        self._reader = LinkReader(self.client)

    def state(self, guest_id: str) -> GuestState:
        """Return the record of a guest cluster; of one that does not exist, a new one that nothing keeps."""
        state = self._states.get(guest_id)
        if state is None:
            state = GuestState()
            if self.exists(guest_id):
                self._states[guest_id] = state
        return state

    def states(self) -> list[tuple[str, GuestState]]:
        """Return the records of all guest clusters with their ids, by id."""
        return sorted(self._states.items())

    def describe_user(self, guest_id: str, address: Address) -> str:
        """Return what uses an address in a guest cluster, as a sentence; "" if the last visit found nothing."""
        carrier = self.cache.ledger.reports.find_carrier(guest_id, address)
        return f"{carrier} in guest cluster {guest_id} uses it." if carrier is not None else ""

    def describe_wait(self, reservation: FloatingIPReservation) -> str:
        """Return what a quarantine waits for in its guest cluster, as a sentence; "" if nothing is known of that."""
        guest_id, until = reservation.spec.owner.namespace, reservation.spec.quarantined_until
        read_since = self.cache.ledger.reports.read_since(guest_id)
        unread_since = self.state(guest_id).visits.unread_since
        if unread_since is not None:
            return f"Guest cluster {guest_id} could not be read since {format_time(unread_since)}."
        if read_since is None or until is None or read_since < until:
            return ""
        return self.describe_user(guest_id, address_of(reservation))

    def has_nothing(self, guest_id: str) -> bool:
        """Return whether a guest cluster has no addresses, without a visit: it is gone, Harvester, or not made yet."""
        management = self._management(guest_id)
        if not self.exists(guest_id) or isinstance(self.glimpse_kind(guest_id), NotAGuest):
            return True
        return management is not None and not (management.provisioned or management.connected)

    def is_readable(self, guest_id: str) -> bool:
        """Return whether Rancher has a way to a guest cluster."""
        management = self._management(guest_id)
        is_open = management is not None and management.connected and management.provisioned
        return is_open and bool(self.cache.guest_clusters(guest_id)) and not self.has_nothing(guest_id)

    def is_leaving(self, guest_id: str) -> bool:
        """Return whether Rancher is removing a guest cluster."""
        management, namespace = self._management(guest_id), self.cache.namespaces.get("", guest_id)
        is_deleted = management is not None and management.is_deleting
        return is_deleted or (namespace is not None and namespace.terminating)

    def could_serve(self, range_name: str, guest_id: str) -> bool:
        """Return whether a range could serve a guest cluster: it fits, or a floating IP there names it."""
        found, guest = self.cache.ranges.get("", range_name), self.known(guest_id) or self.glimpse(guest_id)
        if found is None or guest is None:
            return True
        floating_ips = self.cache.floating_ips_of(guest_id)
        if any(range_name in (each.range, each.status.range) for each in floating_ips):
            return True
        # Which Harvester it is on may not be known (yet): then it may be any.
        return fits_guest(
            found, guest, on_any_harvester=guest.on_harvester and not guest.harvester_cluster_name
        )

    def drop(self, guest_id: str) -> None:
        """Forget a guest cluster. If it comes back under this id, it counts as new.

        What it reported stays as long as Rancher has anything of it: it may still run, with its addresses.
        """
        if self.has_nothing(guest_id):
            self.cache.ledger.reports.drop(guest_id)
        state = self._states.pop(guest_id, None)
        if state is None:
            return
        state.is_dropped = True
        if state.guest is not None:
            self.on_drop(state.guest)

    async def discover(self, guest_id: str) -> Discovery | None:
        """Resolve the links of a guest again; None where no provisioning Cluster names it (any more).

        The result is noted only if nothing changed meanwhile, also by another discovery: a slow answer must not undo a
        younger one. After the last attempt, the event of the last change causes another discovery.
        """
        found: Discovery | None = None
        for _ in range(RESOLVE_ATTEMPTS):
            links = self._links(guest_id)
            if links is None:
                self.drop(guest_id)
                return None
            found = await discover_guest(self._reader, links)
            if self._links(guest_id) == links:
                self._note(guest_id, found)
                break
        return found

    def glimpse(self, guest_id: str, *, of_any_kind: bool = False) -> Guest | None:
        """Return a guest as far as it is known without a request; None if no guest can be asked.

        `of_any_kind`: also an imported cluster of which Rancher does not know (yet) what it is. It may carry addresses.
        """
        links = self._links(guest_id)
        if links is not None and of_any_kind:
            links = replace(links, is_unknown_kind=True)
        found = glimpse_guest(links) if links is not None else None
        return found if isinstance(found, Guest) else None

    def glimpse_kind(self, guest_id: str) -> Discovery | None:
        """Return what is known of a guest cluster without a request; None if Rancher does not have it."""
        links = self._links(guest_id)
        return glimpse_guest(links) if links is not None else None

    def _links(self, guest_id: str) -> Links | None:
        management = self._management(guest_id)
        cluster = choose_cluster(self.cache.guest_clusters(guest_id), management)
        if cluster is None:
            return None
        return Links(
            cluster=cluster,
            management=management,
            namespace=self.cache.namespaces.get("", guest_id),
            find_management=self._management,
            known=self.known(guest_id) if self.is_resolved(guest_id) else None,
            is_unknown_kind=self._is_unknown_kind(cluster, management),
        )

    def _is_unknown_kind(self, cluster: ProvisioningCluster, management: ManagementCluster | None) -> bool:
        """Whether an imported cluster was served as one of no known kind, or could be by now."""
        if management is None or management.provider or not cluster.is_imported:
            return False
        if self._was_served(cluster.cluster_name):
            return True
        ready = management.ready_since
        return ready is not None and self.client.server_now() - ready >= UNKNOWN_AFTER

    def _was_served(self, guest_id: str) -> bool:
        """Whether a guest cluster was visited, by this process or a former one."""
        was_tried = any(each.reachable is not None for each in self.cache.guest_statuses(guest_id))
        return was_tried or self.is_resolved(guest_id)

    def _management(self, name: str) -> ManagementCluster | None:
        return self.cache.management.get("", name)

    def _note(self, guest_id: str, found: Discovery) -> None:
        if isinstance(found, NotAGuest):
            self.drop(guest_id)
            return
        state = self.state(guest_id)
        if isinstance(found, Guest):
            state.guest, state.is_resolved = found, True
        elif found.guest is not None or not state.is_resolved:
            state.guest, state.is_resolved = found.guest, found.is_resolved
        self.cache.ledger.reports.guest_changed(guest_id)

    def known(self, guest_id: str) -> Guest | None:
        """Return a guest cluster as its links were resolved last; None if they never were.

        One whose network cannot be found out is known as well: visits can serve it all the same.
        """
        return self.state(guest_id).guest

    def is_resolved(self, guest_id: str) -> bool:
        """Whether all links of a guest were resolved once, those to its Harvester cluster and network too."""
        return self.state(guest_id).is_resolved

    def is_pending(self, guest_id: str) -> bool:
        """Whether a guest cluster exists of which nothing was resolved yet."""
        return self.known(guest_id) is None and self.glimpse(guest_id) is not None

    def all(self) -> tuple[Guest, ...]:
        """Return all known guest clusters, by id."""
        return tuple(state.guest for _, state in self.states() if state.guest is not None)

    def exists(self, guest_id: str) -> bool:
        """Whether a cluster object of a guest is left: then it may still run, with its addresses."""
        return bool(self.cache.guest_clusters(guest_id)) or self._management(guest_id) is not None
