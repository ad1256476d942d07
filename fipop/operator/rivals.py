"""Which guests were seen to carry what is another's: after a restored backup two may have a claim to one address.

The store says whose an address is; a guest may have got it after the backup was made. As long as that one carries it,
the owner's guest is not written, and nobody else gets it: the address would be in use twice (I1, I3).
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
    """Guests by the addresses that they carry without right, as the last look at each found.

    `look` says who in a guest carries an address, None: nobody; it raises FipopError where the guest cannot be asked.
    `exists` tells whether a cluster object of the guest is left.
    """

    world: World
    exists: Callable[[str], bool]
    look: Callable[[str, Address], Awaitable[str | None]]
    _carriers: dict[Address, set[str]] = field(default_factory=dict)
    _carried: dict[str, frozenset[Address]] = field(default_factory=dict)

    def start_afresh(self) -> None:
        """Forget everything: another replica may have led meanwhile."""
        self._carriers.clear()
        self._carried.clear()

    def learn(self, seen: Mapping[str, CarriedAddresses]) -> None:
        """Take in what a look at these guests found; of others, what was found before stays."""
        for carriers in self._carriers.values():
            carriers.difference_update(seen)
        reserved = {address_of(each) for each in self.world.reservations.all()}
        for guest_id, carried in sorted(seen.items()):
            found = frozenset(from_ip(ip) for ip in carried.single) & reserved
            self._carried[guest_id] = found
            for address in sorted(found - self.rightful(guest_id)):
                self._carriers.setdefault(address, set()).add(guest_id)
                logger.warning(
                    "a guest carries an address that is another's",
                    extra={"address": format_address(address), "guest": guest_id},
                )
        self._carriers = {address: carriers for address, carriers in self._carriers.items() if carriers}

    def forget(self, guest_id: str) -> None:
        """Forget a guest of which Rancher has nothing left: nobody would ask it any more, or write to it."""
        self._carried.pop(guest_id, None)
        for carriers in self._carriers.values():
            carriers.discard(guest_id)
        self._carriers = {address: carriers for address, carriers in self._carriers.items() if carriers}

    def rightful(self, guest_id: str) -> frozenset[Address]:
        """Give what a guest carries by right, in whatever space, or carried by right until lately."""
        reserved = self.world.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        named = (each.status.addresses for each in self.world.floating_ips_of(guest_id))
        return frozenset(address_of(each) for each in reserved).union(*map(read_addresses, named))

    async def check(self, reservation: Reservation) -> None:
        """Raise CarriedElsewhereError before an address is written that a rival carries, or why it cannot be asked.

        What both carry the owner keeps: it cannot get worse.
        """
        address, owner = address_of(reservation), reservation.owner.namespace
        if address in self._carried.get(owner, ()):
            return
        carrier = await self.carrier_of(address, but=owner)
        if carrier is not None:
            raise CarriedElsewhereError(address=format_address(address), carrier=carrier)

    async def carrier_of(self, address: Address, *, but: str) -> str | None:
        """Ask the rivals again, one after the other; the first that carries the address, None where none does."""
        for guest_id in sorted(self._carriers.get(address, set()) - {but}):
            if self.exists(guest_id) and address not in self.rightful(guest_id):
                carrier = await self.look(guest_id, address)
                if carrier is not None:
                    return carrier
            # Another look may have struck the address off meanwhile.
            self._carriers.get(address, set()).discard(guest_id)
        return None
