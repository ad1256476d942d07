"""Held addresses that another guest carries: after a restored backup two guests may both have a claim to one.

The store says whose an address is; a guest may have got it after the backup was made. As long as that one carries it,
the owner's guest is not written: the address would be in use twice (I1).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from fipop.api.models import Reservation
from fipop.errors import CarriedElsewhereError
from fipop.guest.carried import CarriedAddresses
from fipop.ipam.addresses import Address, format_address, from_ip
from fipop.operator.allocation import address_of
from fipop.operator.standing import read_addresses
from fipop.operator.world import BY_OWNER_NAMESPACE, World

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Rivals:
    """Which guests were seen to carry what is held for another guest that does not carry it.

    `look` says who in a guest carries an address, None: nobody; it raises FipopError where the guest cannot be asked.
    `exists` tells whether a cluster object of the guest is left.
    """

    world: World
    exists: Callable[[str], bool]
    look: Callable[[str, Address], Awaitable[str | None]]
    _found: dict[tuple[str, str], str] = field(default_factory=dict)

    def learn(self, seen: Mapping[str, CarriedAddresses]) -> None:
        """Take in what a look at all guests found; a guest that did not answer is not among them."""
        addresses = {guest_id: {from_ip(ip) for ip in carried.single} for guest_id, carried in seen.items()}
        held: dict[Address, list[Reservation]] = {}
        for reservation in self.world.reservations.all():
            if reservation.is_held:
                held.setdefault(address_of(reservation), []).append(reservation)
        self._found.clear()
        for guest_id, carried in sorted(addresses.items()):
            foreign = {address for address in carried if address in held} - self._rightful(guest_id)
            for reservation in (each for address in sorted(foreign) for each in held[address]):
                owner, address = reservation.owner.namespace, address_of(reservation)
                if address in addresses.get(owner, ()):
                    continue  # both carry it: it cannot get worse, and the owner keeps what it has
                self._found[reservation.name, owner] = guest_id
                logger.warning(
                    "a guest carries an address that is held for another",
                    extra={"address": format_address(address), "guest": guest_id, "owner": owner},
                )

    async def check(self, reservation: Reservation) -> None:
        """Ask again whether a rival carries the address; CarriedElsewhereError, or why it cannot be asked."""
        key = reservation.name, reservation.owner.namespace
        rival = self._found.get(key)
        if rival is None:
            return
        if self.exists(rival):
            carrier = await self.look(rival, address_of(reservation))
            if carrier is not None:
                address = format_address(address_of(reservation))
                raise CarriedElsewhereError(address=address, carrier=carrier)
        self._found.pop(key, None)

    def _rightful(self, guest_id: str) -> frozenset[Address]:
        """Give what a guest carries by right, in whatever space, or carried by right until lately."""
        reserved = self.world.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        named = (each.status.addresses for each in self.world.floating_ips_of(guest_id))
        return frozenset(address_of(each) for each in reserved).union(*map(read_addresses, named))
