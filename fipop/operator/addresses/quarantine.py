"""The end of a reservation: without its floating IP it goes to quarantine, and is deleted when no guest carries it.

Time alone ends no quarantine. Our keys may be gone from a guest while a Service there still has the address, so the
guest is asked; only where the guest itself is gone, the clock decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fipop.api.models import Reservation
from fipop.errors import ConflictError, FipopError
from fipop.guest.errors import GuestUnreadableError
from fipop.ipam.addresses import format_address
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import FindCarriers, address_of, format_time
from fipop.operator.addresses.waiting import (
    find_asking,
    request_floating_ip,
    request_lacking,
    request_reservation,
)
from fipop.operator.confirmation import Confirmation
from fipop.operator.queues import Event, Key, Kind, Request, WorkQueues, request_visit
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.claims import read_addresses
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

IMPORTED_HOURS = 24
"""An imported guest cluster runs on after it left Rancher, and fipop cannot read it: its addresses wait for 24 h."""

MIN_CHECK_SECONDS = 2.0
MAX_CHECK_SECONDS = 300.0
MAX_AWAITED_CHECK_SECONDS = 30.0
"""Between two checks of a guest cluster that uses addresses beyond their time; the longer it does, the rarer.

If a floating IP waits for one of them by name, the last bound counts.
"""

GUARDED_RETRY_SECONDS = 30.0

MAX_NAMED = 3
"""A message names up to 3 guest clusters that carry an address."""

LEAST_SUSPICIOUS = 10
"""The most addresses lost unseen that are released without a confirmation, or a tenth of those held if more."""

COUNT_SECONDS = 2.0


@dataclass(slots=True, kw_only=True)
class QuarantineReconciler:
    """Puts ownerless addresses into quarantine, and ends it by one check of a guest cluster for all its addresses."""

    cache: ClusterCache
    reservation_store: ReservationStore
    guests: GuestDirectory
    gate: AllocationGate
    guard: ReleaseGuard
    begin_check: Callable[[], FindCarriers]
    """Begins a check: it asks each guest cluster once, for all addresses. Raises FipopError if one cannot be asked."""
    queues: WorkQueues
    _carriers: dict[str, str] = field(default_factory=dict)
    _gone_since: dict[str, datetime] = field(default_factory=dict)

    def carrier_of(self, name: str) -> str | None:
        """Return what still uses an address in quarantine, as the last check found; None if nothing does."""
        return self._carriers.get(name)

    def watches(self, event: Event) -> Iterator[Request]:
        """Yield the reservations that an event may make ownerless, whose quarantine it may end, or that it names."""
        old, new = event.change.old, event.change.new
        if event.resource == FLOATING_IP_RESERVATIONS:
            latest: Reservation = event.change.latest
            has_owner = latest.is_held and self.cache.floating_ips.get(*latest.owner.key) is not None
            is_noted = latest.name in self._carriers or latest.name in self._gone_since
            if is_noted or (new is not None and not has_owner):
                yield request_reservation(latest)
        if (
            event.resource == FLOATING_IPS
            and new is not None
            and (old is None or old.ipaddress != new.ipaddress)
        ):
            for address in read_addresses(new.ipaddress.split(",")):
                for reservation in self.cache.reservations_at(address):
                    if not reservation.is_held:
                        yield request_reservation(reservation)  # it may be offered
        for guest_id in event.guest_ids:
            # A guest that is gone uses nothing, one that is back can be asked.
            for reservation in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id):
                if not reservation.is_held:
                    yield request_reservation(reservation)

    def find_ownerless(self) -> Iterator[Request]:
        """Yield every held reservation whose floating IP is not known."""
        for reservation in self.cache.reservations.all():
            if reservation.is_held and self.cache.floating_ips.get(*reservation.owner.key) is None:
                yield request_reservation(reservation)

    async def reconcile(self, name: str) -> RetryAfter | None:
        """Put a reservation into quarantine, or request the check that ends its quarantine."""
        reservation = self.cache.reservations.get("", name)
        if reservation is None or reservation.is_held:
            self._carriers.pop(name, None)
            self._gone_since.pop(name, None)
        if reservation is None:
            return None
        try:
            if reservation.is_held:
                return await self._check_owner(reservation)
        except ConflictError:
            return RetryAfter(0.0)
        left, overdue = self._describe_left(reservation), self._overdue_seconds(reservation)
        if left is not None:
            self._note_carrier(reservation, left)
        elif overdue < 0:
            self._carriers.pop(name, None)  # it is back
        if overdue < 0:
            return RetryAfter(-overdue)
        # Workers of their own: a guest that drips its answers delays no other work.
        self.queues.add(Request(Key(Kind.QUARANTINE, "", reservation.owner.namespace)))
        return None

    async def check(self, guest_id: str) -> RetryAfter | None:
        """Free the addresses of a guest cluster whose quarantine is over, if no guest cluster uses them."""
        own = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        due = [each for each in own if not each.is_held and self._overdue_seconds(each) >= 0]
        if due and not self.gate.looked:  # until then it is unknown which guest uses what
            return RetryAfter(MIN_CHECK_SECONDS)
        # What changes from here on is not freed: the reservation is deleted as it is now.
        find_carriers = self.begin_check()
        left = [each for each in due if not await self._free(each, find_carriers)]
        if not left:
            return None
        is_awaited = any(find_asking(self.cache, address_of(each)) for each in left)
        most = MAX_AWAITED_CHECK_SECONDS if is_awaited else MAX_CHECK_SECONDS
        overdue = min(self._overdue_seconds(each) for each in left)
        return RetryAfter(min(most, max(MIN_CHECK_SECONDS, overdue)))

    async def _check_owner(self, reservation: Reservation) -> RetryAfter | None:
        """Quarantine a held address whose floating IP does not exist: the store suspects, the live read decides."""
        owner = reservation.owner
        if self.cache.floating_ips.get(*owner.key) is not None:
            return None
        if not self.guard.may_release(reservation):
            return RetryAfter(GUARDED_RETRY_SECONDS)
        if await self.reservation_store.find_owner(reservation):
            self.queues.add(request_floating_ip(self.cache, owner.key))
            return None
        seconds = self.cache.quarantine_seconds(reservation.range)
        await self.reservation_store.quarantine(reservation, seconds=seconds)
        logger.info(
            "Moved address to quarantine",
            extra={"address": reservation.address, "range": reservation.range, "cluster": owner.cluster},
        )
        self.queues.add(request_visit(owner.namespace))  # it takes our keys out of the guest
        return RetryAfter(seconds)

    async def _free(self, reservation: Reservation, find_carriers: FindCarriers) -> bool:
        """Free an address that no guest cluster uses; return whether it is free."""
        if await self._find_carrier(reservation, find_carriers) is not None:
            return False
        self._carriers.pop(reservation.name, None)
        if not await self.reservation_store.free(reservation):
            return False
        logger.info("Freed address", extra={"address": reservation.address, "range": reservation.range})
        return True

    def _overdue_seconds(self, reservation: Reservation) -> float:
        return (self.reservation_store.now() - self._until(reservation)).total_seconds()

    def _until(self, reservation: Reservation) -> datetime:
        """Return the earliest end: that written, or a day after an imported guest left and was released.

        A process that did not see it leave counts from when it found it gone: the release may be long ago.
        """
        assert reservation.quarantined_until is not None
        until, owner = reservation.quarantined_until, reservation.owner
        if self.guests.exists(owner.namespace) or not owner.imported:
            self._gone_since.pop(reservation.name, None)
            return until
        released = reservation.history[0].released_at if reservation.history else reservation.since
        # What is noted of an earlier absence of the guest is older than the release.
        since = max(released, self._gone_since.setdefault(reservation.name, self.reservation_store.now()))
        return max(until, since + timedelta(hours=IMPORTED_HOURS))

    def _describe_left(self, reservation: Reservation) -> str | None:
        """Return that its guest cluster left Rancher and still counts as using it; None if it does not."""
        until, guest_id = self._until(reservation), reservation.owner.namespace
        if until == reservation.quarantined_until or until <= self.reservation_store.now():
            return None
        return f"guest cluster {guest_id} left Rancher and counts as using it until {format_time(until)}"

    async def look(self, reservation: Reservation) -> None:
        """Check again, for this address alone, what uses it, and offer it accordingly."""
        await self._find_carrier(reservation, self.begin_check())

    async def _find_carrier(self, reservation: Reservation, find_carriers: FindCarriers) -> str | None:
        """Ask who may carry it: a guest that cannot be asked counts as carrying. Its own gets a pass that cleans it.

        It is offered to the only one that carries it and waits for it.
        """
        address, guest_id = address_of(reservation), reservation.owner.namespace
        waiting = find_asking(self.cache, address)
        try:
            others = dict.fromkeys(each.namespace for each in waiting if each.namespace != guest_id)
            carriers = dict(await find_carriers(reservation, others))
            if guest_id in carriers and await self._is_ours_again(reservation):
                del carriers[guest_id]
            left = self._describe_left(reservation)  # it may have left while it was asked
            carriers |= {guest_id: left} if left is not None else {}
            carrier = "; ".join(sorted(carriers.values())[:MAX_NAMED])
        except FipopError as error:
            is_told = isinstance(error, GuestUnreadableError)
            carrier = str(error) if is_told else f"guest cluster {guest_id} could not be read: {error}"
            carriers = {}
        only = next(iter(carriers)) if len(carriers) == 1 else ""
        asking = [each.meta.key for each in waiting if each.namespace == only]
        self.reservation_store.offer(reservation, only if asking else "")
        self.queues.add(*(request_floating_ip(self.cache, key) for key in asking))
        if not carrier:
            return None
        if only:
            carrier += ". A FloatingIP of that guest cluster that names it gets it"
        self._note_carrier(reservation, carrier)
        return carrier

    def _note_carrier(self, reservation: Reservation, carrier: str) -> None:
        """Note what uses an address beyond its time; the conditions of those that wait name it."""
        if self._carriers.get(reservation.name) != carrier:
            address, guest_id = format_address(address_of(reservation)), reservation.owner.namespace
            self._carriers[reservation.name] = carrier
            logger.info(
                "Address stays in quarantine",
                extra={"address": address, "guest": guest_id, "reason": carrier},
            )
            self.queues.add(request_visit(guest_id), *request_lacking(self.cache))

    async def _is_ours_again(self, reservation: Reservation) -> bool:
        """Whether the former owner's guest holds the same address in another space, and so carries it by right.

        The API server is asked. Only a held reservation counts: two in quarantine would otherwise rely on each other,
        and both would end while the guest still carries the address.
        """
        for other in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, reservation.owner.namespace):
            if other.is_held and other.address == reservation.address and other.name != reservation.name:
                return await self.reservation_store.is_held_by(other.name, other.owner)
        return False


@dataclass(slots=True, kw_only=True)
class ReleaseGuard:
    """Finds the held addresses whose floating IP vanished unseen while its cluster is still there.

    It permits the release of a few of them, and of those that an administrator confirmed. An address that is held
    again is another object, as its reservation says since when. Finding them walks over all reservations, so what was
    found serves for a while.
    """

    cache: ClusterCache
    guests: GuestDirectory
    confirmation: Confirmation
    _counted_at: float = float("-inf")
    _lost: frozenset[Reservation] = frozenset()
    _permitted: frozenset[Hashable] = frozenset()

    def may_release(self, reservation: Reservation) -> bool:
        """Return whether a reservation whose owner is not in the store can be released."""
        if not self._is_lost(reservation):
            return True
        if reservation not in self._lost:
            self.count_again()
        self._count()
        return reservation in self._permitted

    def count_again(self) -> None:
        """Forget the last count: a list has just shown that objects are gone."""
        self._counted_at = float("-inf")

    def withheld(self) -> int:
        """Return how many addresses wait for a confirmation."""
        if self._lost:
            self._count()
        return len(self._lost) - len(self._permitted)

    def _count(self) -> None:
        """Find all addresses that were lost unseen, and which of them can be released."""
        if self.cache.monotonic() < self._counted_at + COUNT_SECONDS:
            return
        held = [each for each in self.cache.reservations.all() if each.is_held]
        self._lost = frozenset(each for each in held if self._is_lost(each))
        most = max(LEAST_SUSPICIOUS, len(held) // 10)
        self._permitted = self.confirmation.permitted(self._lost, most=most)
        self._counted_at = self.cache.monotonic()

    def _is_lost(self, reservation: Reservation) -> bool:
        owner = reservation.owner
        return (
            reservation.is_held
            and not self.cache.floating_ips.was_deleted(owner.uid)
            and self.cache.floating_ips.get(*owner.key) is None
            and self.guests.exists(owner.namespace)
        )
