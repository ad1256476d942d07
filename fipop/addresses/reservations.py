"""The protocol of reservations: the only writes that give an address away or take it back.

A reservation is absent, held, or in quarantine, and goes from one to the next by one write:

    absent --claim--> held --release--> in quarantine --free--> absent
                        ^---------claim (its own)---------'

The API server decides every race, also between two operators: names are unique, and each other write tests the version.
Three rules keep an address from having two owners:

1. A status names an address only right after its reservation was written or read, and a guest cluster is written only
   right after that (`are_held`).
2. What a status names is not released: the floating IP is read right before.
3. A quarantine lasts longer than any write that was begun before it (MIN_QUARANTINE_SECONDS), and ends only when its
   guest cluster was visited after it and does not use the address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fipop.addresses.claims import Claim, address_of, reservation_name
from fipop.addresses.holders import can_take
from fipop.addresses.inventory import Inventory
from fipop.api.objects import (
    FloatingIPReservation,
    Metadata,
    PastOwner,
    ReservationSpec,
    build_body,
)
from fipop.deadlines import MIN_QUARANTINE_SECONDS
from fipop.errors import ConflictError, FipopError, NotFoundError
from fipop.ipam.addresses import Address, explode_address, format_address
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RESERVATIONS
from fipop.metrics.counters import RELEASES

logger = logging.getLogger(__name__)

MAX_HISTORY = 5
READS_AT_ONCE = 32
"""How many reservations are read at once before a guest cluster is written: the answers must be fresh together."""


class TakenError(FipopError):
    """Another owner has the address, or its reservation changed: the cache knows it by now, so decide again."""

    def __init__(self, *, name: str) -> None:
        super().__init__(f"reservation {name} changed meanwhile")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationStore:
    """Claims, releases and frees addresses. The answer of each request goes into the cache."""

    client: KubeClient
    inventory: Inventory

    async def claim(self, claim: Claim) -> bool:
        """Make an address the claimant's, or confirm that it is; return whether it was assigned to it just now.

        Raises: TakenError, ApiError.
        """
        known = self.inventory.reservation(claim.space, claim.address)
        if known is not None and not can_take(self.inventory, known, claim):
            raise TakenError(name=claim.name)
        wanted = build_held(known, claim, self.client.server_now())
        with self.inventory.claiming(claim):
            if known is None:
                await self._create(wanted)
            elif known != wanted:
                await self.write(wanted)
            else:
                await self.check(claim.space, claim.address)
        if known is not None and known.is_held:
            return False
        log_history("assigned", wanted)
        return True

    async def release(self, reservation: FloatingIPReservation, *, seconds: int) -> None:
        """Put a held address into quarantine. Raises: TakenError if it changed, ApiError."""
        await self.write(build_quarantined(reservation, self.client.server_now(), seconds))
        RELEASES.labels("quarantined").inc()
        log_history("released", reservation)

    async def free(self, reservation: FloatingIPReservation) -> None:
        """Delete a reservation exactly as it was seen. Raises: TakenError if it changed, ApiError."""
        try:
            await self.client.delete(
                FLOATING_IP_RESERVATIONS,
                reservation.name,
                uid=reservation.uid,
                resource_version=str(reservation.resource_version),
            )
        except ConflictError as error:
            await self.read(reservation.name)
            raise TakenError(name=reservation.name) from error
        self.inventory.forget(FLOATING_IP_RESERVATIONS, reservation)
        RELEASES.labels("freed").inc()
        logger.info(
            "Freed address", extra={"address": reservation.spec.address, "range": reservation.spec.range}
        )

    async def are_held(self, reservations: Iterable[FloatingIPReservation]) -> bool:
        """Ask the API server, right before a guest cluster is written, whether addresses are still their owners'.

        Raises: ApiError.
        """
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def is_held(each: FloatingIPReservation) -> bool:
            async with slots:
                live = await self.read(each.name)
            owner = each.spec.owner
            return (
                live is not None
                and live.is_held
                and (live.spec.owner.key, live.spec.owner.uid) == (owner.key, owner.uid)
            )

        return all(await asyncio.gather(*map(is_held, reservations)))

    async def check(self, space: str, address: Address) -> None:
        """Read the reservation of an address. Raises: TakenError if it is not as the cache knew it."""
        known = self.inventory.reservation(space, address)
        if await self.read(reservation_name(space, address)) != known:
            raise TakenError(name=reservation_name(space, address))

    async def read(self, name: str) -> FloatingIPReservation | None:
        """Read a reservation."""
        known = self.inventory.reservations.get("", name)
        live = await self.client.get(FLOATING_IP_RESERVATIONS, name)
        if live is not None:
            return self.inventory.observe_reservation(live)
        # Only what was known before the question: an event may have brought a younger one meanwhile.
        if known is not None and self.inventory.reservations.get("", name) == known:
            self.inventory.forget(FLOATING_IP_RESERVATIONS, known)
        return None

    async def _create(self, wanted: FloatingIPReservation) -> None:
        try:
            answer = await self.client.create(FLOATING_IP_RESERVATIONS, build_body(wanted))
        except ConflictError as error:
            await self.read(wanted.name)
            raise TakenError(name=wanted.name) from error
        self.inventory.observe_reservation(answer)

    async def write(self, wanted: FloatingIPReservation) -> None:
        """Replace a reservation at the version that it has. Raises: TakenError if it changed, ApiError."""
        try:
            answer = await self.client.replace(FLOATING_IP_RESERVATIONS, build_body(wanted))
        except (ConflictError, NotFoundError) as error:
            await self.read(wanted.name)
            raise TakenError(name=wanted.name) from error
        self.inventory.observe_reservation(answer)


def build_held(known: FloatingIPReservation | None, claim: Claim, now: datetime) -> FloatingIPReservation:
    """Build the reservation of a claim, from the one that exists."""
    if known is None:
        return FloatingIPReservation(
            metadata=Metadata(name=claim.name),
            spec=ReservationSpec(
                address=explode_address(claim.address),
                space=claim.space,
                range=claim.range,
                owner=claim.owner,
                requested=claim.requested,
                since=now,
            ),
        )
    is_kept = known.is_held and known.spec.owner.key == claim.owner.key
    spec = replace(
        known.spec,
        owner=claim.owner,
        range=claim.range,
        requested=claim.requested,
        since=known.spec.since if is_kept else now,
        quarantined_until=None,
        guest_gone_since=None,
    )
    return replace(known, spec=spec)


def build_quarantined(held: FloatingIPReservation, now: datetime, seconds: int) -> FloatingIPReservation:
    """Build the reservation of a released address."""
    until = (now + timedelta(seconds=max(seconds, MIN_QUARANTINE_SECONDS) + 1)).replace(microsecond=0)
    owner = held.spec.owner
    past = PastOwner(namespace=owner.namespace, name=owner.name, cluster=owner.cluster, released_at=now)
    history = (past, *held.spec.history)[:MAX_HISTORY]
    return replace(held, spec=replace(held.spec, quarantined_until=until, history=history))


def log_history(event: str, reservation: FloatingIPReservation) -> None:
    """Log who had an address when, for longer than a reservation remembers: a public contract."""
    owner = reservation.spec.owner
    logger.info(
        "Address history",
        extra={
            "event": event,
            "address": format_address(address_of(reservation)),
            "space": reservation.spec.space,
            "range": reservation.spec.range,
            "namespace": owner.namespace,
            "floating_ip": owner.name,
            "cluster": owner.cluster,
        },
    )
