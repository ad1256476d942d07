"""The end of a reservation: without its floating IP it goes to quarantine, and is freed if its guest cluster is clean.

Time alone ends no quarantine while Rancher has its guest cluster: the keys of fipop may be gone from there while a
Service has the address.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from fipop.addresses.claims import address_of, names_address
from fipop.addresses.guests import GuestLookup
from fipop.addresses.inventory import Inventory
from fipop.addresses.request import describe_user
from fipop.addresses.reservations import ReservationStore, TakenError
from fipop.addresses.stores import BY_OWNER_NAMESPACE
from fipop.api.objects import FloatingIP, FloatingIPReservation, read_object
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, MANAGEMENT_CLUSTERS
from fipop.runtime.queues import FLOATING_IP, Event, Key, Request, WorkQueues, request_visit
from fipop.runtime.workqueue import Priority, RetryAfter

logger = logging.getLogger(__name__)

KIND = "reservation"
"""The kind of keys: a reservation, by its name."""
IMPORTED_SECONDS = 24 * 3600.0
"""An imported or custom guest cluster runs on after it left Rancher, and fipop cannot read it."""
TAKEN_SECONDS = 1.0
"""After a restore the cache may know younger versions than there are, until the next list: each write conflicts."""
RECHECK_SECONDS = 60.0
"""How soon a quarantine is checked again that a guest cluster keeps from its end."""


def request_reservation(reservation: FloatingIPReservation) -> Request:
    """Request a reservation: it may be ownerless, or its quarantine may end."""
    return Request(Key(KIND, "", reservation.name), Priority.BACKGROUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReconciler:
    """Puts ownerless addresses into quarantine, and ends it."""

    client: KubeClient
    inventory: Inventory
    reservations: ReservationStore
    guests: GuestLookup
    queues: WorkQueues

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the reservations that an event may make ownerless, or whose quarantine it may end."""
        if event.resource == FLOATING_IP_RESERVATIONS and event.change.new is not None:
            yield request_reservation(event.change.new)
        elif event.resource == FLOATING_IPS and event.change.new is None:
            yield from map(request_reservation, self.inventory.reservations_of(event.change.latest.key))
        for guest_id in event.guest_ids:
            yield from map(request_reservation, self.inventory.find_quarantined(guest_id))

    async def reconcile(self, name: str) -> RetryAfter | None:
        """Put a reservation into quarantine, or end its quarantine; or return when to check again."""
        reservation = self.inventory.reservations.get("", name)
        if reservation is None:
            return None
        try:
            if reservation.is_held:
                return await self._check_owner(reservation)
            return await self._check_guest(reservation)
        except TakenError:
            return RetryAfter(TAKEN_SECONDS)

    async def _check_owner(self, reservation: FloatingIPReservation) -> RetryAfter | None:
        """Quarantine a held address whose floating IP does not exist: the cache suspects, the API server decides."""
        owner = reservation.spec.owner
        if self.inventory.floating_ips.get(*owner.key) is not None or await self._find_owner(reservation):
            return None
        seconds = self.inventory.quarantine_seconds(reservation.spec.range)
        await self.reservations.release(reservation, seconds=seconds)
        self.queues.add(request_visit(owner.namespace))  # it takes our keys out of the guest cluster
        return None

    async def _check_guest(self, reservation: FloatingIPReservation) -> RetryAfter | None:
        until, guest_id = reservation.spec.quarantined_until, reservation.spec.owner.namespace
        assert until is not None, "it is in quarantine"
        completed = self._complete(reservation)
        if completed != reservation:
            await self.reservations.write(completed)
            # A CRD of an earlier fipop does not keep it: that holds nothing up.
            reservation = self.inventory.reservations.get("", reservation.name) or completed
        if self.inventory.exists(guest_id) and reservation.spec.guest_gone_since is not None:
            # It is back: if it leaves again, it has its day again. Until then visits tell.
            now = self.client.server_now().replace(microsecond=0)
            spec = replace(reservation.spec, guest_gone_since=None, quarantined_until=min(until, now))
            await self.reservations.write(replace(reservation, spec=spec))
            return None
        seconds = (until - self.client.server_now()).total_seconds()
        if seconds > 0:
            return RetryAfter(seconds)
        if self.guests.has_nothing(guest_id):
            again = await self._check_gone(reservation)
        else:
            again = self._check_reports(reservation)
        if again is None and await self._find_owner(reservation):
            again = RetryAfter(RECHECK_SECONDS)
        if again is None:
            await self.reservations.free(reservation)
        return again

    def _complete(self, reservation: FloatingIPReservation) -> FloatingIPReservation:
        """Return a reservation with what people call its guest cluster, as long as that is there to be asked."""
        owner = reservation.spec.owner
        for each in self.inventory.guest_clusters(owner.namespace):
            display_name = self.inventory.display_name(each)
            if (
                each.is_named_by_id
                and (each.namespace, each.name) == (owner.workspace, owner.cluster)
                and display_name
            ):
                owner = replace(owner, display_name=display_name)
        return replace(reservation, spec=replace(reservation.spec, owner=owner))

    async def _check_gone(self, reservation: FloatingIPReservation) -> RetryAfter | None:
        """Return when to check again a guest cluster of which Rancher has nothing; None if it is over."""
        guest_id = reservation.spec.owner.namespace
        if self.inventory.exists(guest_id):
            return None
        live = await self.client.get(MANAGEMENT_CLUSTERS, guest_id)
        if live is not None:  # the cache is behind
            self.inventory.observe(MANAGEMENT_CLUSTERS, live)
            return RetryAfter(RECHECK_SECONDS)
        if not reservation.spec.owner.imported or reservation.spec.guest_gone_since is not None:
            return None
        now = self.client.server_now().replace(microsecond=0)
        until = now + timedelta(seconds=IMPORTED_SECONDS)
        spec = replace(reservation.spec, guest_gone_since=now, quarantined_until=until)
        await self.reservations.write(replace(reservation, spec=spec))
        return RetryAfter(IMPORTED_SECONDS)

    def _check_reports(self, reservation: FloatingIPReservation) -> RetryAfter | None:
        """Return when to check again what visits found; None if one that began after the quarantine found it clean."""
        guest_id = reservation.spec.owner.namespace
        if not self.inventory.was_read_after(reservation):
            self.queues.add(request_visit(guest_id))
            return RetryAfter(RECHECK_SECONDS)
        user = describe_user(self.inventory, guest_id, address_of(reservation))
        if not user or self._is_held_elsewhere(reservation):  # it moved there with its address
            return None
        fields = {"address": reservation.spec.address, "reason": user}
        logger.debug("Address stays in quarantine", extra=fields)
        return RetryAfter(RECHECK_SECONDS)

    def _is_held_elsewhere(self, reservation: FloatingIPReservation) -> bool:
        """Return whether the guest cluster holds the same address in another address space."""
        found = self.inventory.reservations.by_index(BY_OWNER_NAMESPACE, reservation.spec.owner.namespace)
        return any(each.is_held and each.spec.address == reservation.spec.address for each in found)

    async def _find_owner(self, reservation: FloatingIPReservation) -> bool:
        """Ask the API server whether the floating IP of a reservation exists and has, or can have, its address."""
        owner = reservation.spec.owner
        live = await self.client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)
        if live is None:
            return False
        self.inventory.observe(FLOATING_IPS, live)
        self.queues.add(Request(Key(FLOATING_IP, *owner.key)))
        found = read_object(FloatingIP, live)
        return reservation.is_held or names_address(found, reservation.spec.space, address_of(reservation))
