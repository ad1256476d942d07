"""What is known of the guests: their links as resolved last, and what the last pass over each found."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from fipop.kube.client import KubeClient
from fipop.rancher.discovery import (
    Discovery,
    Links,
    Waiting,
    choose_cluster,
    discover_guest,
    glimpse_guest,
    wait_for_provider,
)
from fipop.rancher.link_reader import LinkReader
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ManagementCluster, ProvisioningCluster
from fipop.state.cache import ClusterCache
from fipop.state.observations import GuestObservation

RESOLVE_ATTEMPTS = 3
"""So often links are resolved that change meanwhile; each attempt is two requests at most."""


UNKNOWN_AFTER = timedelta(seconds=60)
"""So long an imported cluster has been Ready if Rancher does not know its kind: of others it knows at once."""


async def _cannot_tell(_guest: Guest) -> bool:
    return True


@dataclass(slots=True)
class GuestDirectory:
    """Guests by id, which is also the namespace of their floating IPs.

    `is_harvester` asks an imported cluster of a kind that Rancher does not know: True also where that cannot be told.
    """

    cache: ClusterCache
    client: KubeClient
    is_harvester: Callable[[Guest], Awaitable[bool]] = _cannot_tell
    _reader: LinkReader = field(init=False)
    _known: dict[str, Guest] = field(default_factory=dict)
    _partly_known: dict[str, Guest] = field(default_factory=dict)
    _observations: dict[str, GuestObservation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._reader = LinkReader(self.client)

    async def discover(self, guest_id: str) -> Discovery | None:
        """Resolve the links of a guest again; None where no provisioning Cluster names it (any more).

        What is found is noted only where nothing changed meanwhile, be it that somebody else found out more: a slow
        answer must not undo a younger one. After the last attempt the event of the last change brings about another.
        """
        found: Discovery | None = None
        for _ in range(RESOLVE_ATTEMPTS):
            links = self._links(guest_id)
            if links is None:
                self._known.pop(guest_id, None)
                self._partly_known.pop(guest_id, None)
                return None
            found = await discover_guest(self._reader, links)
            if links.is_unknown_kind and isinstance(found, Guest) and not self._was_served(guest_id):
                found = wait_for_provider(links) if await self.is_harvester(found) else found
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
            known=self._known.get(guest_id),
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
        """Whether passes were made over a guest, by this process or a former one."""
        floating_ips = self.cache.floating_ips_of(guest_id)
        return guest_id in self._known or any(each.status.guest is not None for each in floating_ips)

    def _management(self, name: str) -> ManagementCluster | None:
        return self.cache.management.get("", name)

    def _note(self, guest_id: str, found: Discovery) -> None:
        if isinstance(found, Guest):
            self._known[guest_id] = found
        self._partly_known.pop(guest_id, None)
        if isinstance(found, Waiting) and found.guest is not None:
            self._partly_known[guest_id] = found.guest

    def known(self, guest_id: str) -> Guest | None:
        """Give a guest as its links were resolved last; None where they never were.

        One whose network cannot be found out is known as well: passes can serve it all the same.
        """
        return self._known.get(guest_id) or self._partly_known.get(guest_id)

    def is_resolved(self, guest_id: str) -> bool:
        """Whether all links of a guest were resolved once, those to its Harvester cluster and network too."""
        return guest_id in self._known

    def all(self) -> tuple[Guest, ...]:
        """Give all known guests, by id."""
        known = self._partly_known | self._known
        return tuple(known[guest_id] for guest_id in sorted(known))

    def observation(self, guest_id: str) -> GuestObservation | None:
        """Give what the last pass found; None before the first pass of this process."""
        return self._observations.get(guest_id)

    def observe(self, guest_id: str, observation: GuestObservation) -> bool:
        """Note what a pass found; whether that is anything new."""
        if self._observations.get(guest_id) == observation:
            return False
        self._observations[guest_id] = observation
        return True

    def forget_observation(self, guest_id: str) -> None:
        """Forget what the last pass found of a guest that no pass is made over any more."""
        self._observations.pop(guest_id, None)

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone."""
        self._known.pop(guest_id, None)
        self._partly_known.pop(guest_id, None)
        self._observations.pop(guest_id, None)

    def exists(self, guest_id: str) -> bool:
        """Whether a cluster object of a guest is left: then it may still run, with its addresses."""
        return (
            bool(self.cache.guest_clusters(guest_id)) or self.cache.management.get("", guest_id) is not None
        )
