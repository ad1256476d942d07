"""The manager of a leader's term: it builds the controllers, asks each what a change concerns, and runs the queues.

All that a term learns is built again for each term.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any

from fipop.api import names
from fipop.api.conditions import format_time
from fipop.deadlines import GUEST_WRITE_SECONDS
from fipop.guest.guest_pass import GuestSessions
from fipop.kube.client import KubeClient
from fipop.kube.events import EventRecorder
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.metrics.exposition import Metrics
from fipop.operator.addresses.facts import FactSource
from fipop.operator.addresses.quarantine import QuarantineReconciler, ReleaseGuard
from fipop.operator.addresses.ranges import RangeReconciler, is_respecified
from fipop.operator.addresses.reconciler import FloatingIPReconciler
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.waiting import find_waiting, request_floating_ip, request_floating_ips_of
from fipop.operator.configuration import Configuration
from fipop.operator.confirmation import Confirmation
from fipop.operator.guests.departures import Departures
from fipop.operator.guests.discovery import GuestReconciler
from fipop.operator.guests.passes import PassController
from fipop.operator.guests.reported import ClaimScope, GuestReader, ReportedAddresses
from fipop.operator.guests.scan import GuestScan
from fipop.operator.guests.tasks import WritePermits, find_fleet
from fipop.operator.queues import (
    OBJECT_CONCURRENCY,
    VISITS,
    Controller,
    Event,
    Key,
    Kind,
    WorkQueues,
    request_routine_visit,
    request_visit,
)
from fipop.operator.reporting import EventReporter
from fipop.operator.rollout.controller import RolloutController
from fipop.operator.rollout.store import RolloutStore
from fipop.operator.startup import adopt_all, find_all, find_unserved
from fipop.operator.tracing import IpamTracer
from fipop.rancher.matching import Guest
from fipop.runtime.leader_election import LeaderElector
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter
from fipop.settings.options import Settings
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

MAX_WAITS = 100
"""The most ranges whose wait for a guest cluster the Lease shows."""


class Manager:
    """Works from `run` until cancelled, and takes every change of the cache meanwhile."""

    def __init__(  # noqa: PLR0913 - the root of the graph, which all else is built from
        self,
        *,
        client: KubeClient,
        cache: ClusterCache,
        events: EventRecorder,
        configuration: Configuration,
        elector: LeaderElector,
        metrics: Metrics,
        sessions: GuestSessions,
        queues: WorkQueues,
        random: Random,
        namespace: str = names.OPERATOR_NAMESPACE,
    ) -> None:
        """Build everything, from what stands alone to what stands on the rest."""
        self._client = client
        self._configuration = configuration
        self.cache = cache
        self.queues = queues
        self._began: datetime | None = None
        self._removal_turned_on = asyncio.Event()
        self._tracer = IpamTracer(cache, wanted=lambda: configuration.settings.trace_ipam_data)

        # What is known of guests and addresses
        self.guests = guests = GuestDirectory(
            cache=cache, client=client, on_drop=lambda guest: metrics.forget_guest(guest.cluster_name)
        )
        self.reporter = EventReporter(guests=guests, events=events, metrics=metrics)
        scope = ClaimScope(guests)
        self.gate = AllocationGate(scope.could_serve)
        reader = GuestReader(guests=guests, sessions=sessions)
        guests.is_harvester = reader.is_harvester
        self.reservation_store = ReservationStore(
            client=client,
            known=cache,
            now=client.server_now,
            # The one knot: both work by the store, which asks them about an old offer, and about other users.
            look_again=lambda reservation: self.quarantine.look(reservation),
            lives=guests.exists,
            is_contested=lambda known, floating_ip: self.reported.is_contested(known, floating_ip),
            count_release=metrics.count_release,
            random=random,
        )
        self.reported = ReportedAddresses(
            guests=guests,
            reader=reader,
            reservation_store=self.reservation_store,
            scope=scope,
            over_limit=self.reporter.report_over_limit,
        )

        # Releases in guests
        self.departures = Departures(
            configuration=configuration,
            guests=guests,
            confirmation=Confirmation(
                configuration=configuration,
                annotation=names.ANNOTATION_CONFIRM_REMOVE,
                reason="MassRemovalWithheld",
                message="Removal of releases from {count} guest clusters is withheld: they were opted out at the same "
                "time.",
            ),
        )
        self.rollout = RolloutController(
            store=RolloutStore(client=client, namespace=namespace),
            guests=guests,
            sessions=sessions,
            configuration=configuration,
            queues=queues,
            fleet=lambda: find_fleet(guests, configuration.settings),
            now=lambda: client.server_now().timestamp(),
        )

        # Controllers
        self.mass_release = ReleaseGuard(
            cache=cache,
            guests=guests,
            confirmation=Confirmation(
                configuration=configuration,
                annotation=names.ANNOTATION_CONFIRM_RELEASE,
                reason="MassReleaseWithheld",
                message="Release of {count} held addresses is withheld: their FloatingIPs are gone, their clusters are "
                "not.",
            ),
        )
        self.quarantine = QuarantineReconciler(
            cache=cache,
            reservation_store=self.reservation_store,
            guests=guests,
            gate=self.gate,
            guard=self.mass_release,
            begin_check=self.reported.begin_check,
            queues=queues,
        )
        self.floating_ips = FloatingIPReconciler(
            client=client,
            cache=cache,
            reservation_store=self.reservation_store,
            facts=FactSource(
                cache=cache,
                reservation_store=self.reservation_store,
                gate=self.gate,
                guests=guests,
                carrier_of=self.quarantine.carrier_of,
                removal_of=self.departures.next_record,
            ),
            queues=queues,
            reporter=self.reporter,
        )
        self.ranges = RangeReconciler(client=client, cache=cache, queues=queues)
        self.passes = PassController(
            guests=guests,
            sessions=sessions,
            metrics=metrics,
            configuration=configuration,
            permits=WritePermits(
                gate=self.gate,
                reported=self.reported,
                leads=lambda: elector.still_leading_for(GUEST_WRITE_SECONDS),
            ),
            queues=queues,
            rollout=self.rollout,
            departures=self.departures,
            random=random,
        )
        self.discovery = GuestReconciler(
            guests=guests, events=events, configuration=configuration, learned=self._guest_learned
        )
        self.controllers: tuple[Controller, ...] = (
            self.ranges,
            self.discovery,
            self.floating_ips,
            self.quarantine,
            self.passes,
        )

        # What goes on beside them
        self.scan = GuestScan(gate=self.gate, guests=guests, reported=self.reported, opened=self._gate_opened)

    async def run(self, refresh: Callable[[], Awaitable[None]], *, passes: int, installs: int) -> None:
        """List everything (`refresh`), let what exists claim its own, the oldest first, then run everything.

        Up to `passes` passes go on at once, and up to `installs` that may run helm.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            await refresh()
            # Changes until now were not enqueued: `enqueue_all` enqueues each object once.
            self.begin()
            await adopt_all(self.guests, self.gate, self.floating_ips.reconcile)
            self.enqueue_all()
            queues = self.queues
            parts = (
                queues.objects.run(self.reconcile, concurrency=OBJECT_CONCURRENCY),
                queues.checks.run(self.reconcile, concurrency=OBJECT_CONCURRENCY),
                queues.passes.run(self.reconcile, concurrency=passes),
                queues.installs.run(self.reconcile, concurrency=installs),
                self.scan.run(),
                self.list_for_removal(refresh),
                self.rollout.run(),
                self._configuration.keep(self._client),
            )
            tasks = [asyncio.create_task(part) for part in parts]
            await asyncio.gather(*tasks)
        finally:
            self.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self) -> None:
        """Take changes from now on; nothing new is assigned before the guests were scanned."""
        self.departures.is_listed = not self._removal_turned_on.is_set()
        self.cache.listener = self
        # A range that assigns again is compared with the reports first. Then the gate wakes who waits for it.
        self.cache.allocations.ranges.opened = self.scan.note_range
        self._began = self._client.server_now()
        self.scan.require_rescan()

    def enqueue_all(self) -> None:
        """Enqueue everything: what may need something now, the rest for later."""
        self.queues.add(*find_all(self.cache))

    def end(self) -> None:
        """Cause no more work."""
        self.cache.listener = None

    async def reconcile(self, key: Key) -> RetryAfter | None:
        """Reconcile the object of a key, or visit its guest cluster."""
        try:
            match key.kind:
                case Kind.FLOATING_IP:
                    return await self.floating_ips.reconcile((key.namespace, key.name))
                case Kind.RANGE:
                    return await self.ranges.reconcile(key.name)
                case Kind.GUEST:
                    return await self.discovery.reconcile(key.name)
                case Kind.RESERVATION:
                    return await self.quarantine.reconcile(key.name)
                case Kind.QUARANTINE:
                    return await self.quarantine.check(key.name)
                case Kind.VISIT:
                    return await self.passes.visit(key.name)
                case Kind.INSTALL:
                    return await self.passes.install(key.name)
        finally:
            if key.kind not in VISITS:
                self._tracer.note_round()

    def describe_waits(self) -> str:
        """Return a line for each range, up to MAX_WAITS, that waits for a guest cluster."""
        monotonic, now = asyncio.get_running_loop().time(), self._client.server_now()
        return "\n".join(
            f'Range "{name}" assigns no new addresses until '
            f"{format_time(now + timedelta(seconds=self.gate.awaited[guest_id] - monotonic))}, or until guest cluster "
            f"{guest_id} reports which addresses it uses."
            for name, guest_id in islice(self.gate.waits().items(), MAX_WAITS)
        )

    def check_owners(self) -> None:
        """Enqueue every held reservation whose floating IP is not known; after a round of lists."""
        self.queues.add(*self.quarantine.find_ownerless())

    def settings_changed(self, before: Settings, after: Settings) -> None:
        """Request a visit of every guest, and reconciliations of what an option changes."""
        if after.kubevip_guest_remove and not before.kubevip_guest_remove:
            self.departures.is_listed = False
            self._removal_turned_on.set()
        for guest in self.guests.all():
            self.queues.add(request_routine_visit(guest.id))
            if before.kubevip_guest_remove or after.kubevip_guest_remove:
                self.queues.add(*request_floating_ips_of(self.cache, guest.id))
        if after.may_create_floating_ips and not before.may_create_floating_ips:
            self.queues.add(*find_unserved(self.cache))

    async def list_for_removal(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """List the clusters after the option to remove releases was turned on: what is opted in then is recorded."""
        while True:
            await self._removal_turned_on.wait()
            self._removal_turned_on.clear()
            await refresh()
            self.departures.is_listed = not self._removal_turned_on.is_set()
            for guest in self.guests.all():
                self.queues.add(*request_floating_ips_of(self.cache, guest.id))

    # Changes of the cache

    def changed(self, resource: Resource, change: Change[Any]) -> None:
        """Forget what is gone, and enqueue what the controllers have to reconcile."""
        old, new = change.old, change.new
        if resource in {PROVISIONING_CLUSTERS, MANAGEMENT_CLUSTERS} and old is not None:
            guest_id = old.name if resource == MANAGEMENT_CLUSTERS else old.cluster_name
            # Its own reconciliation is too late: the guest may be back by then, and would count as scanned.
            if not self.guests.exists(guest_id):
                self.guests.drop(guest_id)
            self.scan.note_guest(guest_id)
        if resource == FLOATING_IP_RANGES and new is not None and is_respecified(change):
            self.scan.note_range(new.name)
        if resource == FLOATING_IPS and new is not None and (old is None or old.range != new.range):
            self.scan.note_guest(new.namespace)
        event = Event(resource, change, self.discovery.find_changed(resource, change))
        for controller in self.controllers:
            self.queues.add(*controller.watches(event))

    def lost_unseen(self) -> None:
        """Distrust the ledger: an object is gone that no event said was deleted."""
        if self.gate.looked:
            logger.warning("Objects are gone without a delete event, scanning guest clusters again")
        self.mass_release.count_again()
        self.scan.require_rescan()

    # Scans and discovery

    def _gate_opened(self) -> None:
        """Continue what waited for the scan of the guests, or of some of them."""
        self.queues.add(
            *(request_floating_ip(self.cache, each.meta.key) for each in find_waiting(self.cache))
        )

    def _guest_learned(self, guest: Guest) -> None:
        self.queues.add(*request_floating_ips_of(self.cache, guest.id), request_visit(guest.id))
        self.scan.note_guest(guest.id, may_carry=guest.connected and not self._is_newborn(guest))

    def _is_newborn(self, guest: Guest) -> bool:
        """Whether Rancher made a guest's machines in this term: they use nothing yet. Imported ones may be older."""
        cluster, began = guest.cluster, self._began
        return not cluster.is_imported and began is not None and cluster.meta.created > began
