"""The end of a reservation: without its floating IP it goes to quarantine, and is deleted when no guest carries it.

Time alone ends no quarantine. Our keys may be gone from a guest while a Service there still has the address, so the
guest is asked; only where the guest itself is gone, the clock decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fipop.api.models import FloatingIP, Reservation
from fipop.errors import ApiConflictError, FipopError, GuestUnreadableError
from fipop.ipam.addresses import Address, format_address
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IPS
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import address_of
from fipop.runtime.workqueue import RetryAfter
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

IMPORTED_HOURS = 24
"""An imported guest lives on after it left Rancher, and nobody can look into it: its addresses wait so long."""

LEAST_LOOK_SECONDS = 2.0
MOST_LOOK_SECONDS = 30.0
"""Between two looks at a guest that carries an address beyond its time; the longer it does, the rarer."""

GUARDED_RETRY_SECONDS = 30.0

MAX_NAMED = 3
"""So many guests that carry an address a message names."""

LEAST_SUSPICIOUS = 10
SUSPICIOUS_SHARE = 0.1
COUNT_SECONDS = 2.0


@dataclass(slots=True, kw_only=True)
class QuarantineReconciler:
    """Does one round over one reservation, by its name."""

    client: KubeClient
    cache: ClusterCache
    reservation_store: ReservationStore
    guests: GuestDirectory
    now: Callable[[], datetime]
    find_carrier: Callable[[str, Address], Awaitable[str | None]]
    """Asks a guest cluster what uses an address: returns a sentence. Raises FipopError if it cannot be asked."""
    find_other_carriers: Callable[[Reservation, Iterable[str]], Awaitable[Mapping[str, str]]]
    """Asks those that were seen to use it without right, and those of `waiting`; returns sentences by guest cluster."""
    waiting: Callable[[Address], Sequence[FloatingIP]]
    """Returns the floating IPs that wait for an address by name."""
    were_scanned: Callable[[], bool]
    """No quarantine ends before all guest clusters were scanned: until then it is unknown which uses what."""
    may_release: Callable[[Reservation], bool]
    """The guard against a mass release."""
    clean: Callable[[str], None]
    """Requests a visit of a guest cluster, which takes our keys out of it."""
    owner_changed: Callable[[tuple[str, str]], None]
    """Requests a reconciliation of a floating IP."""
    still_carried: Callable[[], None]
    """Requests reconciliations of all floating IPs that wait: their conditions name what uses the address."""
    _carriers: dict[str, str] = field(default_factory=dict)
    _gone_since: dict[str, datetime] = field(default_factory=dict)

    def carrier_of(self, name: str) -> str | None:
        """Say who still carries an address in quarantine, as the last look found."""
        return self._carriers.get(name)

    async def reconcile(self, name: str) -> RetryAfter | None:
        """Do one round."""
        reservation = self.cache.reservations.get("", name)
        if reservation is None:
            self._carriers.pop(name, None)
            return None
        try:
            if reservation.is_held:
                return await self._check_owner(reservation)
            return await self._end_quarantine(reservation)
        except ApiConflictError:
            return RetryAfter(0.0)

    async def _check_owner(self, reservation: Reservation) -> RetryAfter | None:
        """Quarantine a held address whose floating IP does not exist: the store suspects, the live read decides."""
        self._carriers.pop(reservation.name, None)
        owner = reservation.owner
        if self.cache.floating_ips.get(*owner.key) is not None:
            return None
        if not self.may_release(reservation):
            return RetryAfter(GUARDED_RETRY_SECONDS)
        live = await self.client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)
        if live is not None:
            self.cache.observe(FLOATING_IPS, live)
            self.owner_changed(owner.key)
            return None
        seconds = self.cache.quarantine_seconds(reservation.range)
        await self.reservation_store.quarantine(reservation, seconds=seconds)
        logger.info(
            "Moved address to quarantine",
            extra={"address": reservation.address, "range": reservation.range, "cluster": owner.cluster},
        )
        self.clean(owner.namespace)
        return RetryAfter(seconds)

    async def _end_quarantine(self, reservation: Reservation) -> RetryAfter | None:
        """Free the address when its time has passed and nobody carries it."""
        assert reservation.quarantined_until is not None
        rest = (self._until(reservation) - self.now()).total_seconds()
        if rest > 0:
            return RetryAfter(rest)
        if not self.were_scanned():
            return RetryAfter(LEAST_LOOK_SECONDS)
        if await self.look(reservation) is not None:
            return RetryAfter(min(MOST_LOOK_SECONDS, max(LEAST_LOOK_SECONDS, -rest)))
        self._carriers.pop(reservation.name, None)
        if not await self.reservation_store.free(reservation):
            return RetryAfter(0.0)
        logger.info("Freed address", extra={"address": reservation.address, "range": reservation.range})
        return None

    def _until(self, reservation: Reservation) -> datetime:
        """Return the earliest end: that written, or a day after an imported guest left and was released.

        A process that did not see it leave counts from when it found it gone: the release may be long ago.
        """
        assert reservation.quarantined_until is not None
        until, guest_id = reservation.quarantined_until, reservation.owner.namespace
        if self.guests.exists(guest_id):
            self._gone_since.pop(guest_id, None)
            return until
        if not reservation.owner.imported:
            return until
        released = reservation.history[0].released_at if reservation.history else reservation.since
        # What is noted of an earlier absence of the guest is older than the release.
        since = max(released, self._gone_since.setdefault(guest_id, self.now()))
        return max(until, since + timedelta(hours=IMPORTED_HOURS))

    async def look(self, reservation: Reservation) -> str | None:
        """Ask who may carry it: a guest that cannot be asked counts as carrying. Its own gets a pass that cleans it.

        It is offered to the only one that carries it and waits for it.
        """
        address, guest_id = address_of(reservation), reservation.owner.namespace
        waiting = self.waiting(address)
        carriers: dict[str, str] = {}
        try:
            if self.guests.exists(guest_id) and not await self._is_ours_again(reservation):
                own = await self.find_carrier(guest_id, address)
                carriers = {guest_id: own} if own is not None else {}
            others = dict.fromkeys(each.namespace for each in waiting if each.namespace != guest_id)
            carriers |= await self.find_other_carriers(reservation, others)
            carrier = "; ".join(sorted(carriers.values())[:MAX_NAMED])
        except FipopError as error:
            is_told = isinstance(error, GuestUnreadableError)
            carrier = str(error) if is_told else f"guest cluster {guest_id} could not be read: {error}"
            carriers = {}
        only = next(iter(carriers)) if len(carriers) == 1 else ""
        asking = [each.meta.key for each in waiting if each.namespace == only]
        self.reservation_store.offer(reservation, only if asking else "")
        for key in asking:
            self.owner_changed(key)
        if not carrier:
            return None
        if only:
            carrier += ". A FloatingIP of that guest cluster that names it gets it"
        if self._carriers.get(reservation.name) != carrier:
            self._carriers[reservation.name] = carrier
            logger.info(
                "Address stays in quarantine",
                extra={"address": format_address(address), "guest": guest_id, "reason": carrier},
            )
            self.clean(guest_id)
            self.still_carried()
        return carrier

    async def _is_ours_again(self, reservation: Reservation) -> bool:
        """Whether the former owner's guest holds the same address in another space, and so carries it by right.

        The API server is asked. Only a held reservation counts: two in quarantine would otherwise rely on each other,
        and both would end while the guest still carries the address.
        """
        for other in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, reservation.owner.namespace):
            if other.is_held and other.address == reservation.address and other.name != reservation.name:
                return await self.reservation_store.is_held_by(other.name, other.owner)
        return False


@dataclass(slots=True)
class ReleaseGuard:
    """Counts the held addresses whose floating IP vanished unseen while its cluster is still there.

    `confirmed` gives the number that an admin confirmed on kube-fip-config; `tell` brings the count to people.
    A confirmation holds for the loss that was told with that very number, and for no later one. Counting walks over
    all reservations, so a count serves for a while; `monotonic` is this process's clock, in seconds.
    """

    cache: ClusterCache
    guests: GuestDirectory
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    monotonic: Callable[[], float] = time.monotonic
    _told: int = 0
    _used: int = 0
    """The confirmation that served for a loss that is over; the same words for a later one are not meant for it."""
    _counted_at: float = float("-inf")
    _counted: tuple[int, int] = (0, 0)

    def may_release(self, reservation: Reservation) -> bool:
        """Whether the reservation, whose owner is not in the store, may be let go."""
        if not self._is_suspicious(reservation):
            return True
        suspicious, held = self._count()
        confirmed = self._confirmed()
        if are_few(suspicious, held):
            if self._told and self._told == confirmed:
                self._used = confirmed
            self._told = 0
            return True
        if self._told and suspicious <= self._told == confirmed:
            return True
        if suspicious != self._told:
            self._told = suspicious
            if suspicious != confirmed:
                logger.error(
                    "Release of many addresses is withheld", extra={"ownerless": suspicious, "held": held}
                )
                self.tell(suspicious)
        return suspicious == confirmed

    def count_again(self) -> None:
        """Forget the last count: a list has just shown that objects are gone."""
        self._counted_at = float("-inf")

    def withheld(self) -> int:
        """Give how many addresses wait for a confirmation; 0 where none do."""
        if not self._told:
            return 0
        suspicious, held = self._count()
        return 0 if are_few(suspicious, held) or suspicious == self._confirmed() else suspicious

    def _confirmed(self) -> int:
        """Give the number that people confirmed; 0 for one that has served already and was not taken away since."""
        number = self.confirmed()
        if number != self._used:
            self._used = 0
        return 0 if number == self._used else number

    def _count(self) -> tuple[int, int]:
        """Count the suspicious ones, and all that are held."""
        if self.monotonic() >= self._counted_at + COUNT_SECONDS:
            held = [each for each in self.cache.reservations.all() if each.is_held]
            self._counted = sum(1 for each in held if self._is_suspicious(each)), len(held)
            self._counted_at = self.monotonic()
        return self._counted

    def _is_suspicious(self, reservation: Reservation) -> bool:
        owner = reservation.owner
        return (
            reservation.is_held
            and not self.cache.was_deleted(owner.uid)
            and self.cache.floating_ips.get(*owner.key) is None
            and self.guests.exists(owner.namespace)
        )


def are_few(suspicious: int, held: int) -> bool:
    """Whether so many at once, of so many in all, are no reason to ask people: ten, or a tenth."""
    return suspicious <= max(LEAST_SUSPICIOUS, SUSPICIOUS_SHARE * held)
