"""The manager builds the controllers, registers each with its kind of keys, its queue and its watches, and runs them.

A process leads once: what it learns goes with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from fipop.addresses.gate import Gate, GateEvent
from fipop.addresses.guests import GuestRecords
from fipop.addresses.handover import MAX_WAITS, Handover
from fipop.addresses.inventory import Inventory, is_respecified
from fipop.addresses.quarantine import KIND as RESERVATION
from fipop.addresses.quarantine import QuarantineReconciler, request_reservation
from fipop.addresses.ranges import KIND as RANGES
from fipop.addresses.ranges import RangeReconciler, request_count
from fipop.addresses.reconciler import FloatingIPReconciler, request_users
from fipop.addresses.reports import News
from fipop.addresses.reservations import ReservationStore
from fipop.addresses.status import StatusBuilder
from fipop.api import names
from fipop.api.guest_problems import write_problems
from fipop.api.objects import KubeObject
from fipop.deadlines import GUEST_WRITE_SECONDS
from fipop.errors import WRITE_REFUSED, ApiError
from fipop.guests.access import GuestClients
from fipop.guests.demand import KIND as SERVICES
from fipop.guests.demand import DemandController
from fipop.guests.desired import OptedInGuests
from fipop.guests.discovery import GuestDirectory, GuestReconciler
from fipop.guests.record import GuestRecord
from fipop.guests.releases import KIND as INSTALL
from fipop.guests.releases import InstallController
from fipop.guests.visits import VisitController
from fipop.helm.chart_store import ChartStore
from fipop.helm.command import Helm
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference, reference_to
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.rollout.controller import RolloutController
from fipop.rollout.kept import RolloutStore
from fipop.runtime.configuration import Configuration
from fipop.runtime.queues import (
    FLOATING_IP,
    GUEST,
    OBJECT_CONCURRENCY,
    VISIT,
    WAITING,
    Event,
    Key,
    Request,
    WorkQueues,
    request_floating_ip,
    request_guest,
    request_routine_visit,
    request_visit,
    request_waiting,
)
from fipop.runtime.store import Change
from fipop.runtime.workqueue import Handler, Priority, RetryAfter, WorkQueue
from fipop.settings.options import Settings
from fipop.texts import list_some

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A controller as the manager knows it."""

    reconcile: Handler[Key]
    """Reconciles the object of a key."""
    watches: Callable[[Event], Iterable[Request]]
    """Returns a request for each object that an event may concern."""
    find_object: Callable[[Key], ObjectReference | None]
    """Returns what events about a key are recorded on; None if it has no object of its own."""


class Manager:
    """Works from `run` until cancelled, once, and takes every change of the cache meanwhile.

    `leads_for` returns whether no other replica can lead within so many seconds, `ours_since` since when our CRDs
    exist.
    """

    def __init__(  # noqa: PLR0913 - the root of the graph, which all else is built from
        self,
        *,
        client: KubeClient,
        inventory: Inventory,
        records: GuestRecords[GuestRecord],
        events: EventRecorder,
        configuration: Configuration,
        leads_for: Callable[[float], bool],
        clients: GuestClients,
        helm: Helm,
        charts: ChartStore,
        queues: WorkQueues,
        random: Random,
        namespace: str,
        ours_since: Callable[[], datetime | None],
    ) -> None:
        """Build everything, each object after those that it needs."""
        self._configuration = configuration
        self._client = client
        self._events = events
        self.inventory = inventory
        self.queues = queues
        self._began: datetime | None = None
        self._takes_changes = False
        """Whether a change of the inventory causes work; not any more once `run` ends."""
        inventory.subscribe(self._changed)

        self.guests = guests = GuestDirectory(inventory=inventory, records=records, client=client)
        self.gate = Gate(inventory=inventory)
        self.rollout = RolloutController(
            members=OptedInGuests(guests=guests, configuration=configuration),
            store=RolloutStore(client=client, namespace=namespace),
            charts=charts,
            configuration=configuration,
            queues=queues,
        )

        self.reservations = ReservationStore(client=client, inventory=inventory)
        self.floating_ips = FloatingIPReconciler(
            client=client,
            inventory=inventory,
            guests=guests,
            gate=self.gate,
            ours_since=ours_since,
            reservations=self.reservations,
            statuses=StatusBuilder(inventory=inventory, now=client.server_now),
            queues=queues,
            events=events,
        )
        self.quarantine = QuarantineReconciler(
            client=client, inventory=inventory, reservations=self.reservations, guests=guests, queues=queues
        )
        self.ranges = RangeReconciler(
            client=client,
            inventory=inventory,
            queues=queues,
            events=events,
            gate=self.gate,
            is_traced=lambda: configuration.settings.trace_ipam_data,
        )
        self.handover = Handover(
            inventory=inventory,
            gate=self.gate,
            find_note=lambda: self.ranges.note,
            now=client.server_now,
        )
        self.demand = DemandController(
            guests=guests,
            clients=clients,
            configuration=configuration,
            queues=queues,
            events=events,
            gate=self.gate,
            random=random,
        )
        self.visits = VisitController(
            guests=guests,
            clients=clients,
            configuration=configuration,
            reservations=self.reservations,
            leads=lambda: leads_for(GUEST_WRITE_SECONDS),
            queues=queues,
            rollout=self.rollout,
            demand=self.demand,
            gate=self.gate,
            random=random,
        )
        self.installs = InstallController(
            guests=guests,
            clients=clients,
            charts=charts,
            helm=helm,
            configuration=configuration,
            rollout=self.rollout,
            queues=queues,
            gate=self.gate,
            events=events,
        )
        self.discovery = GuestReconciler(
            guests=guests, events=events, configuration=configuration, queues=queues
        )
        self._registry: dict[str, Registration] = {}
        self._register(RANGES, queues.objects, lambda _: self.ranges.reconcile(), watches=self.ranges.watches)
        self._register(
            GUEST,
            queues.objects,
            lambda key: self.discovery.reconcile(key.name),
            watches=self.discovery.watches,
            find_object=self._find_cluster,
        )
        self._register(
            FLOATING_IP,
            queues.objects,
            lambda key: self.floating_ips.reconcile((key.namespace, key.name)),
            watches=self.floating_ips.watches,
            find_object=lambda key: _refer(FLOATING_IPS, inventory.floating_ips.get(key.namespace, key.name)),
        )
        self._register(WAITING, queues.objects, self._wake_waiting)
        self._register(
            RESERVATION,
            queues.objects,
            lambda key: self.quarantine.reconcile(key.name),
            watches=self.quarantine.watches,
            find_object=lambda key: _refer(
                FLOATING_IP_RESERVATIONS, inventory.reservations.get("", key.name)
            ),
        )
        self._register(
            VISIT, queues.visits, lambda key: self.visits.reconcile(key.name), watches=self.visits.watches
        )
        self._register(
            SERVICES,
            queues.visits,
            lambda key: self.demand.reconcile(key.name),
            watches=self.demand.watches,
            find_object=self._find_cluster,
        )
        self._register(INSTALL, queues.installs, lambda key: self.installs.reconcile(key.name))

    def _register(
        self,
        kind: str,
        queue: WorkQueue[Key],
        reconcile: Handler[Key],
        *,
        watches: Callable[[Event], Iterable[Request]] = lambda _: (),
        find_object: Callable[[Key], ObjectReference | None] = lambda _: None,
    ) -> None:
        """Register a controller for the keys of a kind, which go into a queue."""
        self.queues.of_kind[kind] = queue
        self._registry[kind] = Registration(reconcile=reconcile, watches=watches, find_object=find_object)

    async def run(self, refresh: Callable[[], Awaitable[None]], *, visits: int, installs: int) -> None:
        """List everything (`refresh`), enqueue everything, then work until cancelled.

        Up to `visits` guest clusters are visited at once, and helm runs in up to `installs`.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await refresh()
            # Changes until now were not enqueued: `_enqueue_all` enqueues each object once.
            self._begin()
            self._enqueue_all()
            parts = (
                self.queues.objects.run(self.reconcile, concurrency=OBJECT_CONCURRENCY),
                self.queues.visits.run(self.reconcile, concurrency=visits),
                self.queues.installs.run(self.reconcile, concurrency=installs),
                self._follow_gate(),
                self.rollout.run(),
            )
            tasks = [asyncio.create_task(part) for part in parts]
            # Not `gather`, which ends with the first that is cancelled: helm would be left alone while it ends.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            self._takes_changes = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def is_working(self) -> bool:
        """Whether this replica leads, and has listed everything."""
        return self._began is not None

    def _begin(self) -> None:
        """Take changes from now on, and begin with what the last leader knew."""
        self.handover.begin()
        found = self.handover.found
        self._began = found.at if found is not None else self._client.server_now()
        self.inventory.recall_reports(self.inventory.exists)
        self._takes_changes = True

    def _enqueue_all(self) -> None:
        """Enqueue everything, first what lacks something, and a visit of each guest cluster.

        Nothing new is assigned before those are read that are not known.
        """
        inventory = self.inventory
        self.queues.add(request_count(0.0), request_waiting())
        self.queues.add(*map(request_floating_ip, inventory.floating_ips_by_age()))
        guest_ids = {each.cluster_name for each in self.inventory.clusters.all() if each.cluster_name}
        readable = set(filter(self.guests.is_readable, guest_ids))
        known = set(filter(self.handover.knows, readable))
        logger.info(
            "Reading guest clusters before new addresses are assigned",
            extra={"awaited": len(readable - known), "known": len(known)},
        )
        self.gate.wait_for(readable - known, known=known)
        for guest_id in sorted(guest_ids):
            visit = request_routine_visit(guest_id) if guest_id in known else request_visit(guest_id)
            is_new = not inventory.floating_ips_of(guest_id)
            priority = Priority.NORMAL if is_new else Priority.BACKGROUND
            self.queues.add(visit, request_guest(guest_id)._replace(priority=priority))
        self.queues.add(*self.demand.request_new(guest_ids))
        for each in map(request_reservation, inventory.reservations.all()):
            self.queues.add(each._replace(priority=Priority.BACKGROUND))

    async def reconcile(self, key: Key) -> RetryAfter | None:
        """Have the controller of a key's kind reconcile it; what the API server refuses is reported at its object."""
        registered = self._registry[key.kind]
        try:
            return await registered.reconcile(key)
        except ApiError as error:
            about = registered.find_object(key) if error.is_refusal else None
            if about is not None:
                self._events.record(about, EventType.WARNING, WRITE_REFUSED, error.explain())
            raise

    async def _wake_waiting(self, _: Key) -> RetryAfter:
        return self.floating_ips.request_all_waiting()

    def _find_cluster(self, key: Key) -> ObjectReference | None:
        """Return the provisioning Cluster of the guest cluster that a key names."""
        return _refer(PROVISIONING_CLUSTERS, next(iter(self.inventory.guest_clusters(key.name)), None))

    def annotate_lease(self, found: Mapping[str, str], is_as_written: bool) -> dict[str, str]:
        """Return what the Lease has to say; `found` is what it says, as this process last wrote it or not."""
        note = self.handover.write(found.get(names.ANNOTATION_HANDOVER, ""), is_as_written=is_as_written)
        return {
            names.ANNOTATION_WAITS: self._describe_waits(),
            names.ANNOTATION_GUEST_PROBLEMS: write_problems(self.guests.list_problems()),
            names.ANNOTATION_HANDOVER: note,
        }

    def _describe_waits(self) -> str:
        """Return which guest clusters all new addresses wait for; "" if they do not."""
        found = sorted(self.gate.blocking)
        if not found:
            return ""
        return f"No new addresses are assigned until these report theirs: {list_some(found, MAX_WAITS)}."

    def settings_changed(self, before: Settings, after: Settings) -> None:
        """Request a visit of every guest cluster; and if floating IPs are created from now on, each of them."""
        self.queues.installs.resize(after.helm_concurrency)
        for guest in self.inventory.known_guests():
            self.queues.add(request_routine_visit(guest.id))
            if after.may_create_floating_ips and not before.may_create_floating_ips:
                self.queues.add(request_guest(guest.id), *self.demand.request_new([guest.id]))

    # What happens

    def _changed(self, resource: Resource, change: Change[Any], news: News) -> None:
        """Forget what is gone, and enqueue what the controllers have to reconcile."""
        if not self._takes_changes:
            return
        self.queues.add(*request_users(self.inventory, news))
        old = change.old
        if resource == FLOATING_IP_RANGES and is_respecified(old, change.new):
            self.gate.note_range_changed()
        if resource in {PROVISIONING_CLUSTERS, MANAGEMENT_CLUSTERS} and old is not None:
            guest_id = old.name if resource == MANAGEMENT_CLUSTERS else old.cluster_name
            # Its own reconciliation is too late: the guest may be back by then, and would count as visited.
            if not self.inventory.exists(guest_id):
                self.queues.add(*request_users(self.inventory, self.guests.drop(guest_id)))
                self.gate.note_left(guest_id)
        event = Event(resource, change, self.discovery.find_changed(resource, change))
        for guest_id in event.guest_ids:
            self._note_connection(guest_id)
        for registered in self._registry.values():
            self.queues.add(*registered.watches(event))

    def _note_connection(self, guest_id: str) -> None:
        """Report to the gate whether a guest cluster can be read, and whether it can have Services already."""
        if not self.guests.is_readable(guest_id):
            self.gate.note_gone(guest_id)
            return
        began = self._began
        clusters = self.inventory.guest_clusters(guest_id)
        can_have_services = began is None or any(
            each.is_imported or each.created < began for each in clusters
        )
        if can_have_services:
            self.gate.note_late(guest_id)
        if self.gate.waits_for(guest_id):
            self.queues.add(request_visit(guest_id))

    async def _follow_gate(self) -> None:
        """Continue what waited for the readings of guest clusters."""
        async for event in self.gate.events():
            self.queues.add(request_count(0.0))
            if event is GateEvent.RELEASED:
                self.queues.add(request_waiting())
                continue
            self.floating_ips.request_all_waiting()
            for each in self.inventory.clusters.all():
                if each.cluster_name:
                    self.queues.add(request_routine_visit(each.cluster_name))


def _refer(resource: Resource, found: KubeObject | None) -> ObjectReference | None:
    return reference_to(resource, found.metadata) if found is not None else None
