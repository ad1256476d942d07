"""The protocol of reservations: the only writes that give an address away or take it back.

A reservation's name is made of its space and address, so the API server's uniqueness of names decides every race,
also between two operators. Each method is one write with a precondition; its answer goes into the store at once.
After an unknown outcome (UnavailableError) the next round asks for the same name again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random, SystemRandom

from fipop.api import names
from fipop.api.models import Meta, Owner, PastOwner, Requested, Reservation
from fipop.api.rendering import render_reservation
from fipop.deadlines import PERMIT_SECONDS
from fipop.errors import ConflictError, NotFoundError
from fipop.ipam.addresses import explode_address, format_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.operator.addresses.values import address_of
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim

logger = logging.getLogger(__name__)

MAX_HISTORY = 5


@dataclass(slots=True, kw_only=True)
class ReservationStore:
    """Creates, swaps, quarantines and frees reservations."""

    client: KubeClient
    known: ClusterCache
    now: Callable[[], datetime]
    """Returns the API server's time."""
    look_again: Callable[[Reservation], Awaitable[object]]
    """Checks what carries an address in quarantine, and renews or withdraws its offer."""
    lives: Callable[[str], bool] = lambda _guest_id: False
    """Returns whether a guest cluster exists."""
    is_contested: Callable[[Reservation, tuple[str, str]], bool] = lambda _known, _floating_ip: False
    """Returns whether another guest cluster than that of a floating IP was seen to carry an address."""
    count_release: Callable[[str], None] = lambda _result: None
    random: Random = field(default_factory=SystemRandom)
    _offers: dict[str, tuple[int, str, float]] = field(default_factory=dict)
    _written: dict[str, tuple[int, float]] = field(default_factory=dict)

    def can_acquire(self, known: Reservation, owner: Owner, range_name: str) -> bool:
        """Return whether an owner can have a reservation that exists: its own, or one that it had before.

        Or, if no other guest was seen to carry it, one that its guest had or was offered, or that it had in a guest
        of the same name that is gone. `range_name`: the range that would count it.
        """
        former = known.owner
        is_own = former.key == owner.key
        if known.is_held or (is_own and known.history):
            return is_own
        is_near = is_own or former.namespace == owner.namespace or self._is_offered(known, owner.namespace)
        # A guest of the same name elsewhere, and an imported one that left Rancher and goes on, still carry it.
        is_gone = not (former.imported or self.lives(former.namespace))
        is_theirs = is_near or (is_gone and is_former_owner(known, owner, range_name))
        return is_theirs and not self.is_contested(known, owner.key)

    def offer(self, quarantined: Reservation, guest_id: str) -> None:
        """Let the only guest that carries an address claim it, until a look finds otherwise; "" lets none.

        It is claimed by a swap, so that it is never free. Who names two addresses may have to wait for the other.
        """
        self._offers[quarantined.name] = quarantined.resource_version, guest_id, self.known.monotonic()

    def _is_offered(self, known: Reservation, guest_id: str) -> bool:
        return self._offers.get(known.name, ())[:2] == (known.resource_version, guest_id)

    def _is_offer_old(self, known: Reservation) -> bool:
        return self.known.monotonic() - self._offers[known.name][2] >= PERMIT_SECONDS

    async def claim(self, claim: Claim) -> Reservation | None:
        """Make the address the claimant's; return its reservation if it is newly assigned.

        None if the claimant has it already, or if another does: the cache knows either by now, so decide again.

        Raises ApiError; where its outcome is unknown, ask for the very same claim again. ConflictError if the
        reservation changed meanwhile.
        """
        known = self.known.get_reservation(claim.name)
        if known is None:
            made = await self._create(build_acquired(None, claim, self.now()))
        else:
            if self._is_offered(known, claim.owner.namespace) and self._is_offer_old(known):
                await self.look_again(known)
            wanted = build_acquired(known, claim, self.now())
            if wanted == known or not self.can_acquire(known, claim.owner, claim.range):
                return None
            made = await self._replace(wanted)
        if made is None or (known is not None and known.is_held):
            return None
        _log_history("assigned", made)
        return made

    async def confirm(self, reservation: Reservation) -> Reservation:
        """Write a held reservation anew as it is, before a status newly names its address.

        An operator that meant to release it tests the version that it read, and fails. ConflictError if it changed.
        """
        mark = {
            names.ANNOTATION_CONFIRMED: f"{self.random.getrandbits(128):032x}"
        }  # an update that changes nothing is no write
        return await self._replace(reservation, annotations=mark)

    def seconds_since_write(self, reservation: Reservation) -> float:
        """Return the seconds since this process asked for the last write of a reservation; inf if it did not."""
        version, asked_at = self._written.get(reservation.name, (-1, 0.0))
        return self.known.monotonic() - asked_at if version == reservation.resource_version else math.inf

    async def quarantine(self, reservation: Reservation, *, seconds: int) -> Reservation:
        """Release a held address: it waits before it is given to another. Raises ConflictError when it changed."""
        # If the answer is lost, the release may have been written all the same: no longer count on the write before it.
        self._written.pop(reservation.name, None)
        quarantined = await self._replace(build_quarantined(reservation, self.now(), seconds))
        self.count_release("quarantined")
        _log_history("released", reservation)
        return quarantined

    async def quarantine_unowned(self, claim: Claim, *, seconds: int) -> Reservation | None:
        """Quarantine an unowned address that a guest cluster uses. Return None if it has a reservation by now."""
        return await self._create(build_unowned(claim, self.now(), seconds))

    async def free(self, reservation: Reservation) -> bool:
        """Delete a reservation exactly as it was seen; False where it changed meanwhile."""
        try:
            await self.client.delete(
                FLOATING_IP_RESERVATIONS,
                reservation.name,
                uid=reservation.uid,
                resource_version=str(reservation.resource_version),
            )
        except ConflictError:
            await self._read(reservation.name)
            return False
        self._written.pop(reservation.name, None)
        self._offers.pop(reservation.name, None)
        self.known.forget(FLOATING_IP_RESERVATIONS, reservation)
        self.count_release("freed")
        return True

    async def find_owner(self, reservation: Reservation) -> bool:
        """Ask the API server whether the floating IP exists that a reservation names as its owner."""
        owner = reservation.owner
        live = await self.client.get(FLOATING_IPS, owner.name, namespace=owner.namespace)
        if live is not None:
            self.known.observe(FLOATING_IPS, live)
        return live is not None

    async def is_held_by(self, name: str, owner: Owner) -> bool:
        """Ask the API server, right before a guest is written, whether the address is still this owner's.

        The answer to our own write of a moment ago says so as well.
        """
        known = self.known.get_reservation(name)
        is_fresh = known is not None and self.seconds_since_write(known) < PERMIT_SECONDS
        live = known if is_fresh else await self._read(name)
        return (
            live is not None and live.is_held and live.owner.key == owner.key and live.owner.uid == owner.uid
        )

    async def _create(self, wanted: Reservation) -> Reservation | None:
        """Create a reservation; None if there is one by now, which was read."""
        asked_at = self.known.monotonic()
        try:
            answer = await self.client.create(FLOATING_IP_RESERVATIONS, render_reservation(wanted))
        except ConflictError:
            await self._read(wanted.name)
            return None
        return self._note(answer, asked_at)

    async def _replace(
        self, reservation: Reservation, *, annotations: Mapping[str, str] | None = None
    ) -> Reservation:
        body = render_reservation(reservation)
        if annotations:
            body["metadata"]["annotations"] = dict(annotations)
        asked_at = self.known.monotonic()
        try:
            answer = await self.client.replace(FLOATING_IP_RESERVATIONS, body)
        except (ConflictError, NotFoundError) as error:
            await self._read(reservation.name)  # so that the next round starts from the truth
            if isinstance(error, ConflictError):
                raise
            raise ConflictError(f"replace FloatingIPReservation {reservation.name}", status=404) from error
        return self._note(answer, asked_at)

    def _note(self, answer: Json, asked_at: float) -> Reservation:
        """Take in the answer of a write of ours."""
        written = self.known.take_reservation(answer)
        self._written[written.name] = written.resource_version, asked_at
        return written

    async def _read(self, name: str) -> Reservation | None:
        known = self.known.get_reservation(name)
        live = await self.client.get(FLOATING_IP_RESERVATIONS, name)
        if live is not None:
            return self.known.take_reservation(live)
        # Only what was known before the question: an event may have brought a younger one meanwhile.
        if known is not None and self.known.get_reservation(name) == known:
            self.known.forget(FLOATING_IP_RESERVATIONS, known)
        return None


def _quarantine_end(now: datetime, seconds: int) -> datetime:
    """Round up: it is written in whole seconds, and no address is to wait for less than its range says."""
    end = now + timedelta(seconds=seconds)
    return end if not end.microsecond else end.replace(microsecond=0) + timedelta(seconds=1)


def build_acquired(known: Reservation | None, claim: Claim, now: datetime) -> Reservation:
    """Build the reservation of a claim, from the one that exists."""
    if known is None:
        return Reservation(
            meta=Meta(name=claim.name, uid="", resource_version=0),
            address=explode_address(claim.address),
            space=claim.space,
            range=claim.range,
            owner=claim.owner,
            requested=claim.requested,
            since=now,
        )
    kept = known.is_held and known.owner.key == claim.owner.key
    # An object that was created again under the name need not ask for what the dead one asked for.
    # And what was chosen is asked for by name, if a user moved back to it before its release.
    stays = kept and known.owner.uid == claim.owner.uid and claim.requested is not Requested.STATIC
    return replace(
        known,
        owner=claim.owner,
        range=claim.range,
        requested=known.requested if stays else claim.requested,
        since=known.since if kept else now,
        quarantined_until=None,
    )


def build_quarantined(held: Reservation, now: datetime, seconds: int) -> Reservation:
    """Build the reservation of a released address."""
    owner = held.owner
    past = PastOwner(namespace=owner.namespace, name=owner.name, cluster=owner.cluster, released_at=now)
    history = (past, *held.history)[:MAX_HISTORY]
    return replace(held, quarantined_until=_quarantine_end(now, seconds), history=history)


def build_unowned(claim: Claim, now: datetime, seconds: int) -> Reservation:
    """Build the reservation of an address that a guest cluster carries and no floating IP owns."""
    return replace(build_acquired(None, claim, now), quarantined_until=_quarantine_end(now, seconds))


def _log_history(event: str, reservation: Reservation) -> None:
    """Log who had an address when, for longer than a reservation remembers: a public contract."""
    owner = reservation.owner
    logger.info(
        "Address history",
        extra={
            "event": event,
            "address": format_address(address_of(reservation)),
            "space": reservation.space,
            "range": reservation.range,
            "namespace": owner.namespace,
            "floating_ip": owner.name,
            "cluster": owner.cluster,
        },
    )


def is_former_owner(reservation: Reservation, owner: Owner, range_name: str) -> bool:
    """Return whether a quarantined address goes back to this owner at once: same cluster, floating IP and range.

    The namespace may differ: a guest cluster that is created again gets another one.
    """
    former = reservation.owner
    return (
        bool(former.cluster)
        and former.cluster == owner.cluster
        and former.name == owner.name
        and reservation.range == range_name
    )
