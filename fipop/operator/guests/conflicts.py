"""Which guests were seen to carry what is another's: after a restored backup two may have a claim to one address.

The store says whose an address is; a guest may have got it after the backup was made. As long as that one carries it,
and the owner's guest does not, the owner's guest is not written, and nobody else gets it: the address would be in use
twice (I1, I3). An owner whose guest carries its address is never in doubt: anybody can claim anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from fipop.api.models import Reservation
from fipop.errors import CarriedElsewhereError, GuestError
from fipop.ipam.addresses import Address, format_address
from fipop.operator.addresses.ownership import address_of, read_addresses
from fipop.operator.guests.reach import MAX_CLAIMS, Reach
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)


class Inspector(Protocol):
    """Who is asked what a guest carries; FipopError where the guest cannot be asked."""

    async def find_carrier(self, guest_id: str, address: Address) -> str | None:
        """Say who in a guest carries an address, or a pass may be about to write it; None where nobody does."""

    async def carries(self, guest_id: str, address: Address) -> bool:
        """Whether the guest itself does."""


@dataclass(slots=True)
class AddressConflicts:
    """Guests by the addresses that they carry without right, as the last look at each found.

    `reach` tells whether a guest's word counts about an address.
    """

    cache: ClusterCache
    guests: GuestDirectory
    inspector: Inspector
    reach: Reach
    _carriers: dict[Address, set[str]] = field(default_factory=dict)

    def learn(self, guest_id: str, carried: Iterable[Address]) -> None:
        """Take in what a guest was seen to carry; of others, what was found before stays."""
        before = {address for address, carriers in self._carriers.items() if guest_id in carriers}
        for address in before:
            self._carriers[address].discard(guest_id)
        rightful = self.rightful(guest_id)
        reserved = self.cache.allocations.ranges.reservations_of
        counting = (
            address
            for address in carried
            if address not in rightful
            and any(self.reach.reaches(guest_id, each) for each in reserved(address))
        )
        for address in islice(counting, MAX_CLAIMS):
            self._carriers.setdefault(address, set()).add(guest_id)
            if address not in before:
                logger.warning(
                    "a guest carries an address that is another's",
                    extra={"address": format_address(address), "guest": guest_id},
                )
        self._drop_empty()

    def forget(self, guest_id: str) -> None:
        """Forget a guest of which Rancher has nothing left: nobody would ask it any more, or write to it."""
        for carriers in self._carriers.values():
            carriers.discard(guest_id)
        self._drop_empty()

    def rightful(self, guest_id: str) -> frozenset[Address]:
        """Give what a guest carries by right, in whatever space, or carried by right until lately."""
        reserved = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        named = (each.status.addresses for each in self.cache.floating_ips_of(guest_id))
        return frozenset(address_of(each) for each in reserved).union(*map(read_addresses, named))

    def claimants(self, address: Address, *, but: str) -> tuple[str, ...]:
        """Give the guests that were seen to carry an address without right, beside one."""
        return tuple(sorted(self._carriers.get(address, set()) - {but}))

    async def check(self, reservation: Reservation, ignored: Collection[str] = ()) -> None:
        """Raise CarriedElsewhereError before an address is written that only another guest carries.

        The owner's guest is asked first: where it carries the address itself, what the store says stands, and no claim
        of another is in its way. Claims of `ignored` guests do not count: an administrator said so.
        """
        address, owner = address_of(reservation), reservation.owner.namespace
        if not self.claimants(address, but=owner):
            return
        if await self.inspector.carries(owner, address):
            return
        carrier = await self._find_carrier(address, but={owner, *ignored}, is_told=True)
        if carrier is not None:
            raise CarriedElsewhereError(address=format_address(address), carrier=carrier)

    async def carrier_of(self, address: Address, but: str) -> str | None:
        """Ask the claimants again, one after the other; the first that carries the address, None where none does.

        Raises FipopError where one cannot be asked.
        """
        return await self._find_carrier(address, but={but}, is_told=False)

    async def _find_carrier(self, address: Address, *, but: set[str], is_told: bool) -> str | None:
        for guest_id in sorted(self._carriers.get(address, set()) - but):
            if self.guests.exists(guest_id) and address not in self.rightful(guest_id):
                try:
                    carrier = await self.inspector.find_carrier(guest_id, address)
                except GuestError as error:
                    if not is_told:
                        raise
                    return f"guest {guest_id} was seen to carry it, and cannot be asked ({error})"
                if carrier is not None:
                    return carrier
            # Another look may have struck the address off meanwhile.
            self._carriers.get(address, set()).discard(guest_id)
        return None

    def _drop_empty(self) -> None:
        self._carriers = {address: carriers for address, carriers in self._carriers.items() if carriers}
