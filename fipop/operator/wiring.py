"""Puts the parts of the operator together: no part knows more of the others than the functions that it is given."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from random import SystemRandom
from typing import Any

from fipop.api import names
from fipop.api.models import FloatingIP, Reservation
from fipop.api.parsing import parse_reservation
from fipop.control.kopf.bridge import Callback
from fipop.control.kopf.bridge import EventType as EventKind
from fipop.control.leadership import Leadership
from fipop.control.store import Change
from fipop.control.workqueue import Backoff, Outcome, Priority, RetryAfter, Run, WorkQueue
from fipop.deadlines import GUEST_WRITE_SECONDS
from fipop.guest.guest_pass import GuestSessions
from fipop.ipam.addresses import Address
from fipop.kube.client import Json, KubeClient
from fipop.kube.events import EventRecorder, EventType, ObjectReference
from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.metrics import Metrics
from fipop.operator.addresses.guest_binding import bind_guest
from fipop.operator.addresses.mass_release import MassReleaseGuard
from fipop.operator.addresses.ownership import is_settled
from fipop.operator.addresses.quarantine import QuarantineReconciler, Surroundings
from fipop.operator.addresses.range_choice import describe_mismatch
from fipop.operator.addresses.ranges import RangeReconciler
from fipop.operator.addresses.reconciler import Callbacks, FloatingIPReconciler
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.view_building import ViewBuilder
from fipop.operator.adoption import Adoption
from fipop.operator.configuration import Configuration
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.operator.guests.discovery import GuestReconciler, reference_to_cluster
from fipop.operator.guests.passes import PassController, PassParts
from fipop.operator.guests.reach import MAX_CLAIMS, Reach
from fipop.operator.guests.scan import GuestScan
from fipop.operator.routing import Key, Kind, Router, gives_out_more
from fipop.operator.tracing import IpamTracer
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

Served = tuple[object, ...]


class Controllers:
    """All reconcilers over one world, and the two queues that feed them."""

    def __init__(
        self,
        *,
        client: KubeClient,
        events: EventRecorder,
        configuration: Configuration,
        leadership: Leadership,
        metrics: Metrics,
        sessions: GuestSessions,
    ) -> None:
        self._client = client
        self._events = events
        self._configuration = configuration
        self._metrics = metrics
        self.is_working = False
        self._served: dict[tuple[str, str], Served] = {}
        self._is_served_to_check = False
        random = SystemRandom()
        self.cache = ClusterCache()
        self._tracer = IpamTracer(self.cache, wanted=lambda: configuration.settings.trace_ipam_data)
        self.gate = AllocationGate()
        self.guests = GuestDirectory(cache=self.cache, client=client)
        self.cache.allocations.is_inherited = self.guests.is_inherited
        self.mass_release = MassReleaseGuard(
            cache=self.cache, guests=self.guests, confirmed=self._confirmed, tell=self._tell_mass_release
        )
        self.reservation_store = ReservationStore(
            client=client,
            lookup=lambda name: self.cache.reservations.get("", name),
            observe=self._observe_reservation,
            forget=lambda gone: self.cache.forget(FLOATING_IP_RESERVATIONS, gone),
            now=client.server_now,
            monotonic=lambda: self.cache.monotonic(),
            lives=self.guests.exists,
            count_release=metrics.count_release,
        )
        self.work: WorkQueue[Key] = WorkQueue(
            name="objects",
            random=random,
            backoff=Backoff(first_seconds=0.2, limit_seconds=30.0),
            observe=self._observe_run,
        )
        self.passes: WorkQueue[str] = WorkQueue(
            name="passes",
            random=random,
            backoff=Backoff(first_seconds=0.5, limit_seconds=30.0),
            observe=self._observe_pass,
        )
        self.router = Router(cache=self.cache, work=self.work, passes=self.passes)
        self.cache.on_change = self._changed
        self.cache.allocations.on_free = self._freed
        self.cache.on_loss = self._lost_unseen
        self.reach = Reach(cache=self.cache, guests=self.guests)
        self.conflicts = AddressConflicts(
            cache=self.cache,
            exists=self.guests.exists,
            look=lambda guest_id, address: self.pass_controller.look(guest_id, address),
            carries=lambda guest_id, address: self.pass_controller.carries(guest_id, address),
            reaches=self.reach.reaches,
        )
        self._pass_parts = PassParts(
            client=client,
            cache=self.cache,
            guests=self.guests,
            sessions=sessions,
            metrics=metrics,
            settings=lambda: configuration.settings,
            leads=lambda: leadership.still_leading_for(GUEST_WRITE_SECONDS),
            reservation_store=self.reservation_store,
            gate=self.gate,
            conflicts=self.conflicts,
            observed=self.router.add_guest_floating_ips,
            now=client.server_now,
            monotonic=time.monotonic,
            random=random,
        )
        self.pass_controller = PassController(self._pass_parts)
        self._build_reconcilers()

    def _build_reconcilers(self) -> None:
        client, cache = self._client, self.cache
        self.floating_ips = FloatingIPReconciler(
            client=client,
            cache=cache,
            reservation_store=self.reservation_store,
            views=ViewBuilder(
                cache=cache,
                reservation_store=self.reservation_store,
                gate=self.gate,
                guests=self.guests,
                carrier_of=lambda name: self.releaser.carrier_of(name),
            ),
            callbacks=Callbacks(
                settled=self._settled,
                gone=self.router.add_reservation,
                waiting=self.router.note_waiting,
                allocated=self._allocated,
                blocked=self._metrics.count_allocation,
            ),
        )
        self.ranges = RangeReconciler(client=client, cache=cache, monotonic=time.monotonic)
        self.clusters = GuestReconciler(
            client=client,
            cache=cache,
            guests=self.guests,
            events=self._events,
            now=client.server_now,
            learned=self._learned,
            lost=self._lost,
        )
        self.router.unserved = lambda: self.clusters.unserved
        self.router.waiting_for = self.clusters.waiting_for
        self.releaser = QuarantineReconciler(
            client=client,
            cache=cache,
            reservation_store=self.reservation_store,
            guests=self.guests,
            surroundings=Surroundings(
                look=self.pass_controller.look,
                look_at_conflicts=lambda address, owner: self.conflicts.carrier_of(address, but=owner),
                may_release=self.mass_release.may_release,
                clean=self.router.add_pass,
                owner_changed=self.router.add_floating_ip,
                still_carried=self.router.wake_waiting,
            ),
            now=client.server_now,
        )
        self.adoption = Adoption(
            cache=cache,
            gate=self.gate,
            adopt=self.floating_ips.reconcile,
            discover=self.guests.discover,
            note_inheritance=self.guests.note_inheritance,
        )
        self.scan = GuestScan(
            cache=cache,
            gate=self.gate,
            reservation_store=self.reservation_store,
            conflicts=self.conflicts,
            discover=self._can_be_looked_at,
            look=self.pass_controller.look_around,
            opened=self._opened,
            reach=self.reach,
            over_limit=self._tell_over_limit,
        )

    async def reconcile(self, key: Key) -> RetryAfter | None:
        """Do one round over the object of a key."""
        try:
            match key.kind:
                case Kind.FLOATING_IP:
                    return await self.floating_ips.reconcile((key.namespace, key.name))
                case Kind.RANGE:
                    return await self.ranges.reconcile(key.name)
                case Kind.GUEST:
                    return await self.clusters.reconcile(key.name)
                case Kind.RESERVATION:
                    return await self.releaser.reconcile(key.name)
        finally:
            self._tracer.note_round()

    def enqueue_all(self) -> None:
        """Look at everything once: what happened while nobody looked causes no event.

        What is as it should be waits until the gate opens, so that it does not come before what is new. So do passes:
        no guest is written before.
        """
        for each in self.cache.ranges.all():
            self.work.add(Key(Kind.RANGE, "", each.name))
        for floating_ip in self.cache.floating_ips.all():
            if not is_settled(floating_ip, self.cache.reservations_of(floating_ip.meta.key)):
                self.router.add_floating_ip(floating_ip.meta.key)
        for owner in self.cache.allocations.claimants():
            # A claim of before whose floating IP is gone by now: nobody else would give its address free.
            self.router.add_floating_ip(owner)
        for reservation in self.cache.reservations.all():
            self.router.add_reservation(reservation)
        for cluster in self.cache.clusters.all():
            if cluster.cluster_name and not self.cache.floating_ips_of(cluster.cluster_name):
                self.work.add(Key(Kind.GUEST, "", cluster.cluster_name))
        self._is_served_to_check = True

    def _check_served(self) -> None:
        """Look at what `enqueue_all` left for later."""
        for floating_ip in self.cache.floating_ips.all():
            if is_settled(floating_ip, self.cache.reservations_of(floating_ip.meta.key)):
                self.router.add_floating_ip(floating_ip.meta.key)
        for cluster in self.cache.clusters.all():
            if not cluster.cluster_name:
                continue
            if self.cache.floating_ips_of(cluster.cluster_name):
                self.work.add(Key(Kind.GUEST, "", cluster.cluster_name), priority=Priority.BACKGROUND)
            self.router.add_routine_pass(cluster.cluster_name)

    def start_afresh(self) -> None:
        """Forget what an earlier time of leading found: another replica may have led meanwhile."""
        self.guests.start_afresh()
        self.clusters.start_afresh()
        self._served.clear()
        self.gate.adopted = False
        self.conflicts.start_afresh()
        self.releaser.start_afresh()
        self.scan.require_rescan()
        self.is_working = True

    def stop_working(self) -> None:
        """Cause no more work: a replica that stands by only keeps its stores."""
        self.is_working = False

    def take_event(self, resource: Resource) -> Callback:
        """Give the callback for the events of a kind."""
        feed = self.cache.feed(resource)
        if resource != FLOATING_IPS:
            return feed.take_event

        def take(kind: EventKind, obj: Mapping[str, Any]) -> None:
            # Whatever learned of it first: a DELETED event is the proof that somebody wanted it gone.
            if kind is EventKind.DELETED:
                self.mass_release.note_deleted(str(obj["metadata"].get("uid", "")))
            feed.take_event(kind, obj)

        return take

    def _changed(self, resource: Resource, change: Change[Any]) -> None:
        if not self.is_working:
            return
        if resource == FLOATING_IP_RANGES and gives_out_more(change):
            self.scan.note_ranges()
        self._forget_gone(resource, change)
        self.router.route(resource, change)

    def _forget_gone(self, resource: Resource, change: Change[Any]) -> None:
        """Forget what is remembered of a floating IP that is gone, and what was seen of a guest whose last object is.

        Its own round is too late for a guest: it may be back by then, and would count as one that was looked at.
        """
        if resource == FLOATING_IPS and change.new is None:
            self._served.pop(change.latest.meta.key, None)
        if resource not in {PROVISIONING_CLUSTERS, MANAGEMENT_CLUSTERS} or change.old is None:
            return
        guest_id = change.old.name if resource == MANAGEMENT_CLUSTERS else change.old.cluster_name
        if not self.guests.exists(guest_id):
            self.scan.forget(guest_id)

    def _freed(self, space: str, address: Address, claim_failed: bool) -> None:
        if self.is_working:
            self.router.address_freed(space, address, claim_failed=claim_failed)

    def _opened(self) -> None:
        """Go on with what waited for the look at the guests."""
        self.router.wake_waiting()
        for guest_id in self.pass_controller.held_up():
            self.router.add_pass(guest_id)
        if self._is_served_to_check:
            self._is_served_to_check = False
            self._check_served()

    def _lost_unseen(self) -> None:
        """Distrust the ledger: an object is gone that no event said was deleted."""
        if self.is_working and self.gate.looked:
            logger.warning("objects are gone that nobody was seen to delete: the guests are looked at again")
        self.mass_release.count_again()
        self.scan.require_rescan()

    def _observe_reservation(self, answer: Json) -> Reservation:
        self.cache.observe(FLOATING_IP_RESERVATIONS, answer)
        return parse_reservation(answer)

    def _settled(self, floating_ip: FloatingIP) -> None:
        """Want a pass over the guest where it has to be told something new."""
        if self.cache.floating_ips.get(*floating_ip.meta.key) is None:
            return  # it went during its round, and that brought a pass about
        served = (
            floating_ip.uid,
            floating_ip.status.addresses,
            floating_ip.service_namespace,
            floating_ip.allow_share,
            floating_ip.interface,
            floating_ip.update_config_map,
            floating_ip.paused,
            floating_ip.ignored_claims,
            floating_ip.cluster,
        )
        if self._served.get(floating_ip.meta.key) != served:
            self._served[floating_ip.meta.key] = served
            self.router.add_pass(floating_ip.namespace)

    def _learned(self, guest: Guest) -> None:
        self.router.add_guest_floating_ips(guest.id)
        self.router.add_pass(guest.id)
        if guest.connected:
            self.scan.note_guest(guest.id)

    def _lost(self, guest: Guest) -> None:
        self._metrics.forget_guest(guest.cluster_name)
        self.pass_controller.forget(guest.id)

    def _allocated(self, floating_ip: FloatingIP, reservation: Reservation) -> None:
        """Count it; a range of another network than the guest's serves it, and people should know."""
        self._metrics.count_allocation("allocated")
        is_bound = bind_guest(self.cache, floating_ip).blocker is None
        guest = self.guests.known(floating_ip.namespace) if is_bound else None
        message = describe_mismatch(self.cache, guest, reservation.range)
        if message is None:
            return
        about = ObjectReference(
            api_version=FLOATING_IPS.api_version,
            kind=FLOATING_IPS.kind,
            name=floating_ip.name,
            namespace=floating_ip.namespace,
            uid=floating_ip.uid,
        )
        self._events.record(about, EventType.WARNING, "NetworkMismatch", message)

    def _tell_over_limit(self, guest_id: str, count: int) -> None:
        guest = self.guests.known(guest_id)
        if guest is None:
            return
        message = (
            f"guest {guest_id} says that it carries {count} more addresses of the ranges that nobody owns; "
            f"only {MAX_CLAIMS} of one guest are kept from others"
        )
        logger.warning("a guest claims too many addresses", extra={"guest": guest_id, "ignored": count})
        self._events.record(reference_to_cluster(guest), EventType.WARNING, "TooManyClaims", message)

    async def _can_be_looked_at(self, guest_id: str) -> bool:
        await self.guests.discover(guest_id)
        guest = self.guests.known(guest_id)
        return guest is not None and guest.connected

    def _confirmed(self) -> int:
        text = self._configuration.annotations.get(names.ANNOTATION_CONFIRM_RELEASE, "")
        return int(text) if text.isascii() and text.isdigit() else 0

    def _tell_mass_release(self, count: int) -> None:
        message = (
            f"{count} held addresses have lost their floating IPs unseen, their clusters are still there; "
            f'to release them set annotation {names.ANNOTATION_CONFIRM_RELEASE}: "{count}" here'
        )
        if self._confirmed() == count:
            message += ", after taking away the one that served for an earlier loss"
        self._configuration.complain("MassReleaseWithheld", message)

    def _observe_run(self, run: Run[Key]) -> None:
        success = run.outcome not in {Outcome.FAILED, Outcome.CRASHED}
        self._metrics.observe_queue_wait("objects", run.waited_seconds)
        self._metrics.observe_reconcile(run.key.kind.value, run.worked_seconds, success=success)

    def _observe_pass(self, run: Run[str]) -> None:
        self._metrics.observe_queue_wait("passes", run.waited_seconds)
