"""Everything that is remembered about guest clusters: one record for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from fipop.addresses.guests import GuestObservation
from fipop.addresses.inventory import Inventory, KnownGuest
from fipop.addresses.reports import News
from fipop.api.conditions import Condition, ConditionType
from fipop.api.objects import FloatingIP, ServicesStatus, WaitingStatus
from fipop.guests.demand_record import DemandRecord
from fipop.guests.record import VisitRecord
from fipop.kube.client import KubeClient
from fipop.metrics.counters import forget_guest
from fipop.rancher.discovery import discover_guest
from fipop.rancher.link_reader import LinkReader
from fipop.rancher.links import Discovery, Links, NotAGuest, choose_cluster, glimpse_guest
from fipop.rancher.matching import Guest
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

    announced: Discovery | None = None
    """What was found when its floating IPs and a visit were enqueued for it last."""
    failed_lookups: int = 0
    visits: VisitRecord = field(default_factory=VisitRecord)
    demand: DemandRecord = field(default_factory=DemandRecord)
    is_dropped: bool = False


@dataclass(slots=True)
class GuestDirectory:
    """The records of guest clusters by id, which is also the namespace of their floating IPs."""

    inventory: Inventory
    client: KubeClient
    _reader: LinkReader = field(init=False)
    _states: dict[str, GuestState] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = LinkReader(self.client)

    def state(self, guest_id: str) -> GuestState:
        """Return the record of a guest cluster; of one that does not exist, a new one that nothing keeps."""
        state = self._states.get(guest_id)
        if state is None:
            state = GuestState()
            if self.inventory.exists(guest_id):
                self._states[guest_id] = state
        return state

    def states(self) -> list[tuple[str, GuestState]]:
        """Return the records of all guest clusters with their ids, by id."""
        return sorted(self._states.items())

    def has_nothing(self, guest_id: str) -> bool:
        """Return whether a guest cluster has no addresses, without a visit: it is gone, Harvester, or not made yet."""
        management = self._management(guest_id)
        if not self.inventory.exists(guest_id) or isinstance(self.glimpse_kind(guest_id), NotAGuest):
            return True
        return management is not None and not (management.provisioned or management.connected)

    def is_readable(self, guest_id: str) -> bool:
        """Return whether Rancher has a way to a guest cluster."""
        management = self._management(guest_id)
        is_open = management is not None and management.connected and management.provisioned
        return is_open and bool(self.inventory.guest_clusters(guest_id)) and not self.has_nothing(guest_id)

    def drop(self, guest_id: str) -> News:
        """Forget a guest cluster. If it comes back under this id, it counts as new.

        What it reported stays as long as Rancher has anything of it: it may still run, with its addresses.
        """
        state, guest = self._states.pop(guest_id, None), self.inventory.known(guest_id)
        if state is not None:
            state.is_dropped = True
        if guest is not None:
            forget_guest(guest.cluster_name)
        news = self.inventory.note_guest(guest_id, None)
        return {**news, **self.inventory.reports.drop(guest_id)} if self.has_nothing(guest_id) else news

    async def discover(self, guest_id: str) -> tuple[Discovery | None, News]:
        """Resolve the links of a guest again; None where no provisioning Cluster names it (any more).

        The result is noted only if nothing changed meanwhile, also by another discovery: a slow answer must not undo a
        younger one. After the last attempt, the event of the last change causes another discovery.
        """
        found: Discovery | None = None
        for _ in range(RESOLVE_ATTEMPTS):
            links = self._links(guest_id)
            if links is None:
                return None, self.drop(guest_id)
            found = await discover_guest(self._reader, links)
            if self._links(guest_id) == links:
                return found, self._note(guest_id, found)
        return found, {}

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
        cluster = choose_cluster(self.inventory.guest_clusters(guest_id), management)
        if cluster is None:
            return None
        return Links(
            cluster=cluster,
            management=management,
            namespace=self.inventory.namespaces.get("", guest_id),
            find_management=self._management,
            known=self.inventory.known(guest_id) if self.inventory.is_resolved(guest_id) else None,
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
        was_tried = any(each.reachable is not None for each in self.inventory.guest_statuses(guest_id))
        return was_tried or self.inventory.is_resolved(guest_id)

    def _management(self, name: str) -> ManagementCluster | None:
        return self.inventory.management.get("", name)

    def _note(self, guest_id: str, found: Discovery) -> News:
        if isinstance(found, NotAGuest):
            return self.drop(guest_id)
        known = self.inventory.guests.get(guest_id)
        if isinstance(found, Guest):
            known = KnownGuest(guest=found, is_resolved=True)
        elif found.guest is not None:
            known = KnownGuest(guest=found.guest, is_resolved=found.is_resolved)
        elif known is None or not known.is_resolved:
            known = None
        return self.inventory.note_guest(guest_id, known)

    def is_pending(self, guest_id: str) -> bool:
        """Return whether a guest cluster exists of which nothing was resolved yet."""
        return self.inventory.known(guest_id) is None and self.glimpse(guest_id) is not None

    def observation(self, guest_id: str) -> GuestObservation | None:
        """Return what the last visit found; None before the first one of this process."""
        return self.state(guest_id).visits.observation

    def services_of(
        self, floating_ip: FloatingIP
    ) -> tuple[ServicesStatus | None, WaitingStatus | None, Sequence[Condition]]:
        """Return which Services use it, which of its guest cluster wait, and whether these have what they wait for."""
        record = self.state(floating_ip.namespace).demand
        if not record.is_followed:
            return None, None, ()
        if record.report is None or floating_ip.name not in record.unshown:
            of_demand = (
                each for each in floating_ip.status.conditions if each.type == ConditionType.DEMAND_MET
            )
            return floating_ip.status.services, floating_ip.status.waiting, tuple(of_demand)
        report, services = record.report, record.report.services.get(floating_ip.name)
        if report.oldest != floating_ip.name:
            return services, None, ()
        return services, report.waiting, (report.finding.to_condition(ConditionType.DEMAND_MET),)

    def note_stored(self, floating_ip: FloatingIP) -> None:
        """Note that a status is stored as it was built: what is said of its Services is said."""
        self.state(floating_ip.namespace).demand.unshown.discard(floating_ip.name)

    def all(self) -> tuple[Guest, ...]:
        """Return all known guest clusters, by id."""
        return tuple(self.inventory.guests[each].guest for each in sorted(self.inventory.guests))
