"""A leader's term: all that works while this replica leads, and all that it learns, built anew each time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import islice
from random import SystemRandom
from typing import Any

from fipop.api.conditions import format_time
from fipop.deadlines import GUEST_WRITE_SECONDS
from fipop.ipam.addresses import Address
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.addresses.facts import FactSource
from fipop.operator.addresses.quarantine import QuarantineReconciler, ReleaseGuard
from fipop.operator.addresses.ranges import RangeReconciler
from fipop.operator.addresses.reconciler import Callbacks, FloatingIPReconciler
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.adoption import Adoption
from fipop.operator.estate import Estate
from fipop.operator.first_rounds import FirstRounds
from fipop.operator.guests.discovery import GuestReconciler, WaitingGuests
from fipop.operator.guests.pass_triggers import PassTriggers
from fipop.operator.guests.passes import PassController
from fipop.operator.guests.reported import ClaimScope, GuestReader, ReportedAddresses
from fipop.operator.guests.scan import GuestScan
from fipop.operator.notices import Notices
from fipop.operator.queues import Concurrency, Key, Kind, WorkQueues
from fipop.operator.rollout_parts import build_departures, build_rollout
from fipop.operator.routing import Router, gives_out_more
from fipop.operator.tracing import IpamTracer
from fipop.rancher.matching import Guest
from fipop.runtime.store import Change
from fipop.runtime.workqueue import RetryAfter
from fipop.settings.options import Settings
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

MAX_WAITS = 100
"""The most ranges whose wait for a guest cluster the Lease shows."""
SETTLED_SECONDS = 5.0
"""So long what is as it should be waits for guests that hang."""


class LeaderTerm:
    """Works from `run` until cancelled, and hears of every change of the cache meanwhile."""

    def __init__(self, estate: Estate, queues: WorkQueues) -> None:
        self._estate = estate
        self._began: datetime | None = None
        self.queues = queues
        self.cache = estate.cache
        self._tracer = IpamTracer(self.cache, wanted=lambda: estate.configuration.settings.trace_ipam_data)
        self.guests = GuestDirectory(cache=self.cache, client=estate.client)
        scope = ClaimScope(cache=self.cache, guests=self.guests)
        self.gate = AllocationGate(scope.could_serve)
        self.waiting_guests = WaitingGuests()
        self.router = Router(cache=self.cache, queues=queues, waiting_guests=self.waiting_guests)
        self.notices = Notices(
            cache=self.cache,
            guests=self.guests,
            events=estate.events,
            configuration=estate.configuration,
            metrics=estate.metrics,
        )
        self.reservation_store = ReservationStore(
            client=estate.client,
            known=self.cache,
            now=estate.client.server_now,
            monotonic=self.cache.monotonic,
            look_again=lambda reservation: self.quarantine.look(reservation),
            lives=self.guests.exists,
            is_contested=lambda known, floating_ip: self.reported.is_contested(known, floating_ip),
            count_release=estate.metrics.count_release,
        )
        self.reported = ReportedAddresses(
            cache=self.cache,
            guests=self.guests,
            reader=GuestReader(client=estate.client, guests=self.guests, sessions=estate.sessions),
            reservation_store=self.reservation_store,
            scope=scope,
            over_limit=self.notices.tell_over_limit,
        )
        self.guests.is_harvester = self.reported.reader.is_harvester
        self.rollout = build_rollout(estate, cache=self.cache, guests=self.guests, router=self.router)
        self.departures = build_departures(estate, guests=self.guests, notices=self.notices)
        self._removal_turned_on = asyncio.Event()
        self._build_guests(estate)
        self._build_addresses(estate)
        self.adoption = Adoption(
            cache=self.cache,
            gate=self.gate,
            adopt=self.floating_ips.reconcile,
            discover=self.guests.discover,
        )
        self.first_rounds = FirstRounds(cache=self.cache, queues=queues, router=self.router)

    def _build_guests(self, estate: Estate) -> None:
        client = estate.client
        self.scan = GuestScan(
            cache=self.cache,
            gate=self.gate,
            guests=self.guests,
            reported=self.reported,
            opened=self._gate_opened,
        )
        self.pass_controller = self._build_pass_controller(estate)
        self.discovery = GuestReconciler(
            client=client,
            cache=self.cache,
            guests=self.guests,
            events=estate.events,
            now=client.server_now,
            creates=lambda: estate.configuration.settings.may_create_floating_ips,
            learned=self._guest_learned,
            lost=self._guest_lost,
            waiting=self.waiting_guests,
        )

    def _build_pass_controller(self, estate: Estate) -> PassController:
        return PassController(
            client=estate.client,
            cache=self.cache,
            guests=self.guests,
            sessions=estate.sessions,
            metrics=estate.metrics,
            settings=lambda: estate.configuration.settings,
            leads=lambda: estate.elector.still_leading_for(GUEST_WRITE_SECONDS),
            reservation_store=self.reservation_store,
            gate=self.gate,
            reported=self.reported,
            requests=self.router,
            rollout=self.rollout,
            departures=self.departures,
            now=estate.client.server_now,
            monotonic=time.monotonic,
            random=SystemRandom(),
        )

    def _build_addresses(self, estate: Estate) -> None:
        client, cache = estate.client, self.cache
        self.mass_release = ReleaseGuard(
            cache=cache,
            guests=self.guests,
            confirmed=self.notices.confirmed_releases,
            tell=self.notices.tell_mass_release,
            monotonic=cache.monotonic,
        )
        self.quarantine = QuarantineReconciler(
            client=client,
            cache=cache,
            reservation_store=self.reservation_store,
            guests=self.guests,
            now=client.server_now,
            begin_check=self.reported.begin_check,
            request_check=self.router.add_check,
            waiting=self.router.waiting_by_name,
            were_scanned=lambda: self.gate.looked,
            may_release=self.mass_release.may_release,
            clean=self.router.add_pass,
            owner_changed=self.router.add_floating_ip,
            still_carried=self.router.wake_waiting,
        )
        self.pass_triggers = PassTriggers(cache=cache, add_pass=self.router.add_pass)
        self.floating_ips = self._build_floating_ips(estate)
        self.ranges = RangeReconciler(client=client, cache=cache, monotonic=cache.monotonic)

    def _build_floating_ips(self, estate: Estate) -> FloatingIPReconciler:
        self.facts = FactSource(
            cache=self.cache,
            reservation_store=self.reservation_store,
            gate=self.gate,
            guests=self.guests,
            carrier_of=self.quarantine.carrier_of,
            removal_of=self.departures.next_record,
        )
        return FloatingIPReconciler(
            client=estate.client,
            cache=self.cache,
            reservation_store=self.reservation_store,
            facts=self.facts,
            callbacks=Callbacks(
                deciding=self.router.note_decided_on,
                settled=self.pass_triggers.note_settled,
                gone=self.router.add_reservation,
                waiting=self.router.note_waiting,
                allocated=self.notices.tell_allocated,
                recorded=self.notices.tell_removal,
                blocked=estate.metrics.count_allocation,
            ),
        )

    async def run(self, refresh: Callable[[], Awaitable[None]], concurrency: Concurrency) -> None:
        """Learn what is so (`refresh`), let what exists claim its own, the oldest first, then run everything."""
        tasks: list[asyncio.Task[None]] = []
        try:
            await refresh()
            # What changed until now causes no work by itself: all of it is looked at once, in its order.
            self.begin()
            await self.adoption.adopt_all()
            self.first_rounds.enqueue_unsettled()
            queues, passes = self.queues, self.pass_controller
            parts = (
                queues.objects.run(self.reconcile, concurrency=concurrency.objects),
                queues.checks.run(self.reconcile, concurrency=concurrency.checks),
                queues.passes.run(passes.visit, concurrency=concurrency.passes),
                queues.installs.run(passes.install, concurrency=concurrency.installs),
                self.scan.run(),
                self._begin_settled(),
                self.list_for_removal(refresh),
                self.rollout.run(),
                self._estate.configuration.keep(self._estate.client),
            )
            tasks = [asyncio.create_task(part) for part in parts]
            await asyncio.gather(*tasks)
        finally:
            self.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self) -> None:
        """Hear of changes from now on; nothing new is given out before the guests were looked at."""
        self.departures.is_listed = not self._removal_turned_on.is_set()
        self.cache.attach(self)
        self._began = self._estate.client.server_now()
        self.scan.require_rescan()

    def end(self) -> None:
        """Cause no more work."""
        self.cache.detach()

    async def reconcile(self, key: Key) -> RetryAfter | None:
        """Do one round over the object of a key."""
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
        finally:
            self._tracer.note_round()

    def describe_waits(self) -> str:
        """Return a line for each range, up to MAX_WAITS, that waits for a guest cluster."""
        monotonic, now = asyncio.get_running_loop().time(), self._estate.client.server_now()
        return "\n".join(
            f'Range "{name}" assigns no new addresses until '
            f"{format_time(now + timedelta(seconds=self.gate.awaited[guest_id] - monotonic))}, or until guest cluster "
            f"{guest_id} reports which addresses it uses."
            for name, guest_id in islice(self.gate.waits().items(), MAX_WAITS)
        )

    def check_owners(self) -> None:
        """Look at every reservation whose floating IP is not known; after a round of lists."""
        for reservation in self.cache.reservations.all():
            if reservation.is_held and self.cache.floating_ips.get(*reservation.owner.key) is None:
                self.router.add_reservation(reservation)

    def settings_changed(self, before: Settings, after: Settings) -> None:
        """Want a pass over every guest, and rounds where an option changed what they do."""
        if after.kubevip_guest_remove and not before.kubevip_guest_remove:
            self.departures.is_listed = False
            self._removal_turned_on.set()
        for guest in self.guests.all():
            self.router.add_routine_pass(guest.id)
            if before.kubevip_guest_remove or after.kubevip_guest_remove:
                self.router.add_guest_floating_ips(guest.id)
        if after.may_create_floating_ips and not before.may_create_floating_ips:
            self.first_rounds.enqueue_unserved()

    async def list_for_removal(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """List the clusters after the option to remove releases was turned on: who is opted in then is recorded."""
        while True:
            await self._removal_turned_on.wait()
            self._removal_turned_on.clear()
            await refresh()
            self.departures.is_listed = not self._removal_turned_on.is_set()
            for guest in self.guests.all():
                self.router.add_guest_floating_ips(guest.id)

    # What it hears

    def changed(self, resource: Resource, change: Change[Any]) -> None:
        """Forget what is remembered of what is gone, and route the change."""
        if resource == FLOATING_IP_RANGES and gives_out_more(change):
            self.scan.note_range(change.latest.name)
        if resource == FLOATING_IPS:
            if change.new is None:
                self.pass_triggers.forget(change.latest.meta.key)
            elif change.old is None or change.old.range != change.new.range:
                self.scan.note_guest(change.new.namespace)
        if resource in {PROVISIONING_CLUSTERS, MANAGEMENT_CLUSTERS} and change.old is not None:
            guest_id = change.old.name if resource == MANAGEMENT_CLUSTERS else change.old.cluster_name
            # Its own round is too late for a guest: it may be back by then, and would count as one that was looked at.
            self.scan.note_guest(guest_id)
        self.router.route(resource, change)

    def lost_unseen(self) -> None:
        """Distrust the ledger: an object is gone that no event said was deleted."""
        if self.gate.looked:
            logger.warning("Objects are gone without a delete event, scanning guest clusters again")
        self.mass_release.count_again()
        self.scan.require_rescan()

    def freed(self, space: str, address: Address, *, claim_failed: bool) -> None:
        """Wake who waits for an address."""
        self.router.address_freed(space, address, claim_failed=claim_failed)

    def _gate_opened(self) -> None:
        """Go on with what waited for the look at the guests, or at some of them."""
        self.router.wake_waiting()
        for guest_id in self.pass_controller.held_up():
            self.router.add_pass(guest_id)
        if self.gate.looked:
            self.first_rounds.enqueue_settled()

    async def _begin_settled(self) -> None:
        """Let passes begin though guests hang: what those might carry is not written."""
        await asyncio.sleep(SETTLED_SECONDS)
        self.first_rounds.enqueue_settled()

    def _guest_learned(self, guest: Guest) -> None:
        self.router.add_guest_floating_ips(guest.id)
        self.router.add_pass(guest.id)
        self.scan.note_guest(guest.id, may_carry=guest.connected and not self._is_newborn(guest))

    def _is_newborn(self, guest: Guest) -> bool:
        """Whether Rancher made a guest's machines in this term: they carry nothing yet. Imported ones may be older."""
        return not guest.imported and self._began is not None and guest.created > self._began

    def _guest_lost(self, guest: Guest) -> None:
        self._estate.metrics.forget_guest(guest.cluster_name)
        self.rollout.sightings.forget(guest.id)
        self.pass_controller.forget(guest.id)
