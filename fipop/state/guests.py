"""Everything that is remembered about guest clusters: one record for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from fipop.guest.release_memory import ReleaseMemory
from fipop.ipam.addresses import Address
from fipop.kube.client import KubeClient
from fipop.rancher.discovery import (
    Discovery,
    Links,
    NotAGuest,
    choose_cluster,
    discover_guest,
    glimpse_guest,
    wait_for_provider,
)
from fipop.rancher.link_reader import LinkReader
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ManagementCluster, ProvisioningCluster
from fipop.state.cache import ClusterCache
from fipop.state.guest_health import GuestHealth
from fipop.state.observations import GuestObservation

RESOLVE_ATTEMPTS = 3
"""Links that change meanwhile are resolved up to 3 times; each attempt is two requests at most."""


UNKNOWN_AFTER = timedelta(seconds=60)
"""An imported cluster without a provider is of unknown kind after 60 s of Ready: Rancher detects others at once."""


async def _cannot_tell(_guest: Guest) -> bool:
    return True


@dataclass(slots=True)
class PassSchedule:
    """When passes over a guest cluster are due."""

    deep_at: float | None = None
    """The Unix time when its releases were last checked for deleted objects; None while it needs no passes."""
    failures: int = 0
    """How many passes failed in a row."""
    finished_at: float | None = None
    """The Unix time of the last whole pass; None before it."""


@dataclass(slots=True, eq=False)
class ReleaseRemoval:
    """What is known about the removal of the releases of a guest cluster that was opted out.

    Each removal has a record of its own, and equals no other: a confirmation is one of this record.
    """

    was_asked: bool = False
    """Whether a pass of this process tried to find out whether it has releases of ours."""
    has_ours: bool | None = None
    """Whether it has; None while that is unknown."""
    is_under_way: bool = False
    """Whether its releases may be uninstalled now."""


@dataclass(slots=True)
class GuestReport:
    """Which addresses a guest cluster reported that it uses."""

    addresses: tuple[Address, ...] = ()
    """What it reported last. That stays in force until it answers again."""
    is_fresh: bool = False
    """It answered since the last scan of all guest clusters began."""
    guest: Guest | None = None
    """The guest cluster as it was known, if its provisioning Cluster is gone: which ranges could serve it."""
    contested: frozenset[str] = frozenset()
    """The reservations of other owners whose addresses it reported."""
    ignored: int = 0
    """How many unowned addresses it reported beyond those that count."""


@dataclass(slots=True)
class GuestState:
    """All that this process remembers about one guest cluster.

    A reconciliation that is under way keeps the record that it began with. If the guest cluster is dropped meanwhile,
    what is written there goes with it.
    """

    guest: Guest | None = None
    """The guest cluster as its links were resolved last; None before that."""
    is_resolved: bool = False
    """Whether all links were resolved, those to its Harvester cluster and network too. If not, passes can serve it."""
    announced: Discovery | None = None
    """What was found when its floating IPs and passes were enqueued for it last."""
    failed_lookups: int = 0
    observation: GuestObservation | None = None
    """What the last pass found; None before the first one."""
    schedule: PassSchedule = field(default_factory=PassSchedule)
    release_memory: ReleaseMemory = field(default_factory=ReleaseMemory)
    removal: ReleaseRemoval = field(default_factory=ReleaseRemoval)
    health: GuestHealth | None = None
    """How its releases stand in a rollout; None before a pass of this process."""
    report: GuestReport = field(default_factory=GuestReport)
    is_dropped: bool = False


@dataclass(slots=True)
class GuestDirectory:
    """The records of guest clusters by id, which is also the namespace of their floating IPs.

    `is_harvester` asks an imported cluster of a kind that Rancher does not know: True also where that cannot be told.
    `on_drop` is called with each guest cluster that is dropped, as it was known.
    """

    cache: ClusterCache
    client: KubeClient
    is_harvester: Callable[[Guest], Awaitable[bool]] = _cannot_tell
    on_drop: Callable[[Guest], None] = lambda _guest: None
    _reader: LinkReader = field(init=False)
    _states: dict[str, GuestState] = field(default_factory=dict)
    _contesting: set[str] = field(default_factory=set)
    under_way: dict[str, frozenset[str]] = field(default_factory=dict)
    """The guest clusters that a pass goes on over, and the addresses that it may be about to write.

    These outlive a dropped record: the pass goes on all the same.
    """

    def __post_init__(self) -> None:
        self._reader = LinkReader(self.client, self.cache.monotonic)

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

    def reports(self) -> Iterator[tuple[str, GuestReport]]:
        """Yield what each guest cluster reported, with its id."""
        return ((guest_id, state.report) for guest_id, state in self._states.items())

    def contest(self, guest_id: str, report: GuestReport, reservations: frozenset[str]) -> None:
        """Note which reservations a guest cluster contests by a report of its own."""
        report.contested = reservations
        if reservations and self.state(guest_id).report is report:
            self._contesting.add(guest_id)

    def contesting(self, reservation: str) -> list[str]:
        """Return the guest clusters that contest a reservation, by id. Each visit asks, so not all reports are read."""
        self._contesting = {each for each in self._contesting if self.state(each).report.contested}
        return sorted(each for each in self._contesting if reservation in self.state(each).report.contested)

    def drop(self, guest_id: str) -> None:
        """Forget a guest cluster. If it comes back under this id, it counts as new.

        What it reported stays as long as Rancher has anything of it: it may still run, with its addresses.
        """
        state = self._states.pop(guest_id, None)
        if state is not None:
            state.is_dropped = True
            if self.exists(guest_id):
                state.report.guest = state.guest or state.report.guest
                self._states[guest_id] = GuestState(report=state.report)
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
        """Whether passes were made over a guest, by this process or a former one."""
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

    def known(self, guest_id: str) -> Guest | None:
        """Return a guest cluster as its links were resolved last; None if they never were.

        One whose network cannot be found out is known as well: passes can serve it all the same.
        """
        return self.state(guest_id).guest

    def is_resolved(self, guest_id: str) -> bool:
        """Whether all links of a guest were resolved once, those to its Harvester cluster and network too."""
        return self.state(guest_id).is_resolved

    def all(self) -> tuple[Guest, ...]:
        """Return all known guest clusters, by id."""
        return tuple(state.guest for _, state in self.states() if state.guest is not None)

    def exists(self, guest_id: str) -> bool:
        """Whether a cluster object of a guest is left: then it may still run, with its addresses."""
        return bool(self.cache.guest_clusters(guest_id)) or self._management(guest_id) is not None
