"""Which guests were seen to carry what is another's: after a restored backup two may have a claim to one address.

The store says whose an address is; a guest may have got it after the backup was made. As long as that one carries it,
and the owner's guest does not, the owner's guest is not written, and nobody else gets it: the address would be in use
twice (I1, I3). An owner whose guest carries its address is never in doubt: anybody can claim anything.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from fipop.api.models import Reservation
from fipop.errors import AddressConflictError, GuestError
from fipop.ipam.addresses import Address, format_address
from fipop.operator.addresses.values import address_of
from tests.unit.operator.guests.before.inspection import GuestInspector
from tests.unit.operator.guests.before.reach import MAX_CLAIMS, Reach
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

MAX_ASKING = 8
"""So many guests are asked whether they carry what their floating IPs ask for, before it is free."""


@dataclass(slots=True)
class AddressConflicts:
    """Guests by the reservations whose addresses they carry without right, as the last look at each found.

    `reach` tells whether a guest's word counts about a reservation: not about one of a space that could not serve it.
    """

    cache: ClusterCache
    guests: GuestDirectory
    inspector: GuestInspector
    reach: Reach
    _carriers: dict[str, set[str]] = field(default_factory=dict)
    """By the name of the reservation."""

    def learn(self, guest_id: str, carried: Iterable[Address]) -> None:
        """Take in what a guest was seen to carry; of others, what was found before stays."""
        before = {name for name, carriers in self._carriers.items() if guest_id in carriers}
        for name in before:
            self._carriers[name].discard(guest_id)
        rightful = self.reach.rightful(guest_id)
        counting = (
            reservation
            for address in carried
            if address not in rightful
            for reservation in self.cache.reservations_at(address)
            if self.reach.reaches(guest_id, reservation)
        )
        for reservation in islice(counting, MAX_CLAIMS):
            self._carriers.setdefault(reservation.name, set()).add(guest_id)
            if reservation.name not in before:
                logger.warning(
                    "Guest cluster uses an address of another owner",
                    extra={"address": format_address(address_of(reservation)), "guest": guest_id},
                )
        self._drop_empty()

    def forget(self, guest_id: str) -> None:
        """Forget a guest of which Rancher has nothing left: nobody would ask it any more, or write to it."""
        for carriers in self._carriers.values():
            carriers.discard(guest_id)
        self._drop_empty()

    def claimants(self, reservation: Reservation, *, but: str) -> tuple[str, ...]:
        """Return the guests that were seen to carry a reserved address without right, beside one."""
        return tuple(sorted(self._carriers.get(reservation.name, set()) - {but}))

    async def check(self, reservation: Reservation, ignored: Collection[str] = ()) -> None:
        """Raise AddressConflictError before an address is written that only another guest carries.

        The owner's guest is asked first: where it carries the address itself, what the store says stands, and no claim
        of another is in its way. Claims of `ignored` guests do not count: an administrator said so.
        """
        address, owner = address_of(reservation), reservation.owner.namespace
        if not self.claimants(reservation, but=owner):
            return
        if await self.inspector.carries(owner, address):
            return
        for guest_id in self.claimants(reservation, but=owner):
            if guest_id in ignored:
                continue
            try:
                carrier = await self._ask(guest_id, reservation, self.inspector)
            except GuestError as error:
                carrier = f"guest cluster {guest_id} used it before, and now fipop {error}"
            if carrier is not None:
                raise AddressConflictError(address=format_address(address), carrier=carrier)

    def is_contested(self, reservation: Reservation, floating_ip: tuple[str, str]) -> bool:
        """Return whether another guest than that of a floating IP was seen to carry an address, and its word counts."""
        found = self.cache.floating_ips.get(*floating_ip)
        ignored = found.ignored_claims if found is not None else frozenset()
        return not ignored.issuperset(self.claimants(reservation, but=floating_ip[0]))

    def begin_check(self) -> Callable[[Reservation, Iterable[str]], Awaitable[dict[str, str]]]:
        """Begin a check of several addresses, for which each guest cluster is asked once."""
        return partial(self._find_carriers, self.inspector.asking_once())

    async def _find_carriers(
        self, inspector: GuestInspector, reservation: Reservation, asking: Iterable[str]
    ) -> dict[str, str]:
        """Ask the owner's guest and the claimants of an address; return those that carry it, with a sentence each.

        Guests whose floating IPs ask for it (`asking`) may carry it since they were looked at, as when an application
        moved there. One of them that does not answer counts for nothing. Raises FipopError where one of the rest does
        not.
        """
        address, owner = address_of(reservation), reservation.owner.namespace
        own = await inspector.find_carrier(owner, address) if self.guests.exists(owner) else None
        counting = (each for each in asking if self.reach.reaches(each, reservation))
        for guest_id in islice(counting, MAX_ASKING):
            with suppress(GuestError):
                if await inspector.carries(guest_id, address):
                    self._carriers.setdefault(reservation.name, set()).add(guest_id)
        claimants = self.claimants(reservation, but=owner)
        found = {owner: own} | {each: await self._ask(each, reservation, inspector) for each in claimants}
        return {guest_id: carrier for guest_id, carrier in found.items() if carrier is not None}

    async def _ask(self, guest_id: str, reservation: Reservation, inspector: GuestInspector) -> str | None:
        """Ask a claimant again; one that does not carry the address, or does so by right, is none any more.

        Nor is one that no range with the address can serve any more: a range may be gone since it was looked at.
        """
        address = address_of(reservation)
        is_counting = self.guests.exists(guest_id) and self.reach.reaches(guest_id, reservation)
        if is_counting and address not in self.reach.rightful(guest_id):
            carrier = await inspector.find_carrier(guest_id, address)
            if carrier is not None:
                return carrier
        # Another look may have struck the address off meanwhile.
        self._carriers.get(reservation.name, set()).discard(guest_id)
        return None

    def _drop_empty(self) -> None:
        self._carriers = {name: carriers for name, carriers in self._carriers.items() if carriers}
