"""What is known of the guests: their links as resolved last, and what the last pass over each found."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from fipop.api.conditions import ConditionType
from fipop.api.models import FloatingIP
from fipop.kube.client import KubeClient
from fipop.rancher.discovery import Discovery, Links, Waiting, choose_cluster, discover_guest
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ManagementCluster
from fipop.state.cache import ClusterCache
from fipop.state.observations import GuestObservation

NOT_IN_RANGE = "AddressOutOfRange"
"""The reason of a refusal that an inherited address never gets."""

RESOLVE_ATTEMPTS = 3
"""So often links are resolved that change meanwhile; each attempt is two requests at most."""


@dataclass(slots=True)
class GuestDirectory:
    """Guests by id, which is also the namespace of their floating IPs.

    `ours_since` is the time when fipop came to this cluster: floating IPs without a status that are older were made
    for the predecessor. `inheritance` is what their specs named when they were adopted; None before that.
    """

    cache: ClusterCache
    client: KubeClient
    ours_since: datetime | None = None
    inheritance: dict[tuple[str, str], str] | None = None
    _known: dict[str, Guest] = field(default_factory=dict)
    _partly_known: dict[str, Guest] = field(default_factory=dict)
    _observations: dict[str, GuestObservation] = field(default_factory=dict)

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
            found = await discover_guest(self.client, links)
            if self._links(guest_id) == links:
                self._note(guest_id, found)
                break
        return found

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
        )

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

    def start_afresh(self) -> None:
        """Forget everything: another replica may have led meanwhile."""
        self._known.clear()
        self._partly_known.clear()
        self._observations.clear()
        self.inheritance = None

    def note_inheritance(self) -> None:
        """Note what is inherited: what a spec names later is a wish like any other."""
        self.inheritance = None
        adopted = [each for each in self.cache.floating_ips.all() if self.is_inherited(each)]
        self.inheritance = {each.meta.key: each.ipaddress for each in adopted}

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

    def is_inherited(self, floating_ip: FloatingIP) -> bool:
        """Whether a floating IP was made for the predecessor: older than fipop here, and never served by it.

        Not one whose address was refused already as none of its range, nor one that names another since.
        """
        allocated = (each for each in floating_ip.status.conditions if each.type is ConditionType.ALLOCATED)
        return (
            self.ours_since is not None
            and floating_ip.meta.created < self.ours_since
            and not floating_ip.status.addresses
            and all(each.reason != NOT_IN_RANGE for each in allocated)
            and (
                self.inheritance is None
                or self.inheritance.get(floating_ip.meta.key) == floating_ip.ipaddress
            )
        )
