"""The protocol of reservations: the only writes that give an address away or take it back.

A reservation's name is made of its space and address, so the API server's uniqueness of names decides every race,
also between two operators. Each method is one write with a precondition; its answer goes into the store at once.
After an unknown outcome (`ApiError.outcome_unknown`) the next round asks for the same name again.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fipop.api import names
from fipop.api.models import Meta, Owner, PastOwner, Reservation
from fipop.api.rendering import render_reservation
from fipop.deadlines import PERMIT_SECONDS
from fipop.errors import ApiAlreadyExistsError, ApiConflictError, ApiNotFoundError
from fipop.ipam.addresses import explode_address, format_address
from fipop.jsons import Json
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from fipop.operator.addresses.values import address_of
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim

logger = logging.getLogger(__name__)

MAX_HISTORY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The claim was granted; `is_new` tells that the address was nobody's or somebody else's before."""

    reservation: Reservation
    is_new: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Another owner holds the address, or it waits in quarantine after another."""

    reservation: Reservation


class ReservationStore:
    """Creates, swaps, quarantines and frees reservations.

    `now` is the API server's time, `monotonic` this process's clock in seconds; `lives` tells whether a guest exists,
    `is_contested` whether another guest than that of a floating IP was seen to carry an address. `look_again` looks
    who carries an address in quarantine, and renews or withdraws its offer.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        known: ClusterCache,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        look_again: Callable[[Reservation], Awaitable[object]],
        lives: Callable[[str], bool] = lambda _guest_id: False,
        is_contested: Callable[[Reservation, tuple[str, str]], bool] = lambda _known, _floating_ip: False,
        count_release: Callable[[str], None] = lambda _result: None,
    ) -> None:
        self._client = client
        self._count_release = count_release
        self._known = known
        self._now = now
        self._lives = lives
        self._is_contested = is_contested
        self._look_again = look_again
        self._offers: dict[str, tuple[int, str, float]] = {}
        self._written: dict[str, tuple[int, float]] = {}
        self._monotonic = monotonic

    def can_acquire(self, known: Reservation, claim: Claim) -> bool:
        """Tell whether a claim may have a reservation that exists: the claimant's own, or one that it had before.

        Or one that it names: if its guest had it and no other was seen to carry it, or if its guest was offered it.
        """
        former, owner = known.owner, claim.owner
        is_own = former.key == claim.owner.key
        if known.is_held or (is_own and known.history):
            return is_own
        is_near = former.namespace == owner.namespace or self._is_offered(known, owner.namespace)
        if is_own or (is_near and claim.insists):
            return not self._is_contested(known, owner.key)
        # A guest of the same name elsewhere, and an imported one that left Rancher and goes on, still carry it.
        is_gone = not (former.imported or self._lives(former.namespace))
        return is_gone and is_former_owner(known, owner, claim.range)

    def offer(self, quarantined: Reservation, guest_id: str) -> None:
        """Let the only guest that carries an address claim it, until a look finds otherwise; "" lets none.

        It is claimed by a swap, so that it is never free. Who names two addresses may have to wait for the other.
        """
        self._offers[quarantined.name] = quarantined.resource_version, guest_id, self._monotonic()

    def _is_offered(self, known: Reservation, guest_id: str) -> bool:
        return self._offers.get(known.name, ())[:2] == (known.resource_version, guest_id)

    def _is_offer_old(self, known: Reservation) -> bool:
        return self._monotonic() - self._offers[known.name][2] >= PERMIT_SECONDS

    async def claim(self, claim: Claim) -> Acquired | Taken | None:
        """Make the address the claimant's, or tell who has it.

        None where the reservation is gone by the live read: a floating IP whose status names the address may be about
        to claim it again, so the caller looks at all that is known before it asks again.

        Raises ApiError; where its outcome is unknown, ask for the very same claim again.
        """
        known = self._known.get_reservation(claim.name)
        if known is None:
            try:
                return self._acquire(await self._create(claim), is_new=True)
            except ApiAlreadyExistsError:
                known = await self._read(claim.name)
                if known is None:  # it went away between the two answers: the next round decides afresh
                    raise
        return await self._take(known, claim)

    async def _take(self, known: Reservation, claim: Claim) -> Acquired | Taken | None:
        """Decide on a reservation that exists, first by what the store knows, then by a swap tested on its version."""
        if not self.can_acquire(known, claim):
            # The store may lag behind a release: the API server has the last word before anybody is refused.
            live = await self._read(claim.name)
            if live is None:
                return None
            if not self.can_acquire(live, claim):
                return Taken(reservation=live)
            known = live
        if self._is_offered(known, claim.owner.namespace) and self._is_offer_old(known):
            await self._look_again(known)
            if not self.can_acquire(known, claim):
                return Taken(reservation=known)
        wanted = _granted(known, claim, self._now())
        if wanted == known:
            return Acquired(reservation=known, is_new=False)
        is_new = not (known.is_held and known.owner.key == claim.owner.key)
        return self._acquire(await self._replace(wanted), is_new=is_new)

    @staticmethod
    def _acquire(reservation: Reservation, *, is_new: bool) -> Acquired:
        if is_new:
            _log_history("assigned", reservation)
        return Acquired(reservation=reservation, is_new=is_new)

    async def confirm(self, reservation: Reservation) -> Reservation:
        """Write a held reservation anew as it is, before a status newly names its address.

        An operator that meant to release it tests the version that it read, and fails. ApiConflictError if it changed.
        """
        mark = {names.ANNOTATION_CONFIRMED: uuid.uuid4().hex}  # an update that changes nothing is no write
        return await self._replace(reservation, annotations=mark)

    def seconds_since_write(self, reservation: Reservation) -> float:
        """Give how long ago this process asked for the write that made a reservation what it is; inf: it did not."""
        version, asked_at = self._written.get(reservation.name, (-1, 0.0))
        return self._monotonic() - asked_at if version == reservation.resource_version else math.inf

    async def quarantine(self, reservation: Reservation, *, seconds: int) -> Reservation:
        """Release a held address: it waits before it is given to another. Raises ApiConflictError when it changed."""
        now = self._now()
        past = PastOwner(
            namespace=reservation.owner.namespace,
            name=reservation.owner.name,
            cluster=reservation.owner.cluster,
            released_at=now,
        )
        released = replace(
            reservation,
            quarantined_until=_quarantine_end(now, seconds),
            history=(past, *reservation.history)[:MAX_HISTORY],
        )
        quarantined = await self._replace(released)
        self._count_release("quarantined")
        _log_history("released", reservation)
        return quarantined

    async def quarantine_unowned(self, claim: Claim, *, seconds: int) -> Reservation | None:
        """Put an address that a guest carries and nobody owns in quarantine; None where it has a reservation by now."""
        now = self._now()
        found = replace(_new_reservation(claim, now), quarantined_until=_quarantine_end(now, seconds))
        try:
            return self._known.take_reservation(
                await self._client.create(FLOATING_IP_RESERVATIONS, render_reservation(found))
            )
        except ApiAlreadyExistsError:
            await self._read(claim.name)
            return None

    async def free(self, reservation: Reservation) -> bool:
        """Delete a reservation exactly as it was seen; False where it changed meanwhile."""
        try:
            await self._client.delete(
                FLOATING_IP_RESERVATIONS,
                reservation.name,
                uid=reservation.uid,
                resource_version=str(reservation.resource_version),
            )
        except ApiConflictError:
            await self._read(reservation.name)
            return False
        self._written.pop(reservation.name, None)
        self._offers.pop(reservation.name, None)
        self._known.forget_reservation(reservation)
        self._count_release("freed")
        return True

    async def is_held_by(self, name: str, owner: Owner) -> bool:
        """Ask the API server, right before a guest is written, whether the address is still this owner's.

        The answer to our own write of a moment ago says so as well.
        """
        known = self._known.get_reservation(name)
        is_fresh = known is not None and self.seconds_since_write(known) < PERMIT_SECONDS
        live = known if is_fresh else await self._read(name)
        return (
            live is not None and live.is_held and live.owner.key == owner.key and live.owner.uid == owner.uid
        )

    async def _create(self, claim: Claim) -> Reservation:
        body, asked_at = render_reservation(_new_reservation(claim, self._now())), self._monotonic()
        return self._note(await self._client.create(FLOATING_IP_RESERVATIONS, body), asked_at)

    async def _replace(
        self, reservation: Reservation, *, annotations: Mapping[str, str] | None = None
    ) -> Reservation:
        body = render_reservation(reservation)
        if annotations:
            body["metadata"]["annotations"] = dict(annotations)
        asked_at = self._monotonic()
        try:
            answer = await self._client.replace(FLOATING_IP_RESERVATIONS, body)
        except (ApiConflictError, ApiNotFoundError) as error:
            await self._read(reservation.name)  # so that the next round starts from the truth
            if isinstance(error, ApiConflictError):
                raise
            raise ApiConflictError(
                verb="replace", kind=FLOATING_IP_RESERVATIONS.kind, name=reservation.name, status=404
            ) from error
        return self._note(answer, asked_at)

    def _note(self, answer: Json, asked_at: float) -> Reservation:
        """Take in the answer of a write of ours."""
        written = self._known.take_reservation(answer)
        self._written[written.name] = written.resource_version, asked_at
        return written

    async def _read(self, name: str) -> Reservation | None:
        known = self._known.get_reservation(name)
        live = await self._client.get(FLOATING_IP_RESERVATIONS, name)
        if live is not None:
            return self._known.take_reservation(live)
        # Only what was known before the question: an event may have brought a younger one meanwhile.
        if known is not None and self._known.get_reservation(name) == known:
            self._known.forget_reservation(known)
        return None


def _quarantine_end(now: datetime, seconds: int) -> datetime:
    """Round up: it is written in whole seconds, and no address is to wait for less than its range says."""
    end = now + timedelta(seconds=seconds)
    return end if not end.microsecond else end.replace(microsecond=0) + timedelta(seconds=1)


def _granted(known: Reservation, claim: Claim, now: datetime) -> Reservation:
    kept = known.is_held and known.owner.key == claim.owner.key
    return replace(
        known,
        owner=claim.owner,
        range=claim.range,
        # An object that was created again under the name need not ask for what the dead one asked for.
        requested=known.requested
        if kept and known.owner.uid == claim.owner.uid and not claim.renames
        else claim.requested,
        since=known.since if kept else now,
        quarantined_until=None,
    )


def _new_reservation(claim: Claim, now: datetime) -> Reservation:
    return Reservation(
        meta=Meta(name=claim.name, uid="", resource_version=0),
        address=explode_address(claim.address),
        space=claim.space,
        range=claim.range,
        owner=claim.owner,
        requested=claim.requested,
        since=now,
    )


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
