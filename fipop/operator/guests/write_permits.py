"""Whether addresses may be written to a guest cluster, asked right before the write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fipop.api.models import Reservation
from fipop.errors import PASSING_ERRORS
from fipop.ipam.addresses import format_address
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import address_of
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePermits:
    """Permits writes.

    `leads` tells whether this replica leads for as long as a write may take; `gate` and `conflicts` what other guest
    clusters were seen to carry.
    """

    cache: ClusterCache
    reservation_store: ReservationStore
    gate: AllocationGate
    conflicts: AddressConflicts
    leads: Callable[[], bool]

    async def may_write(self, state: GuestState, held: Iterable[Reservation]) -> bool:
        """Return whether addresses are still their owners', and no other guest cluster carries them.

        Raises AddressConflictError.
        """
        held = tuple(held)
        if self.gate.is_shut or not all(map(self.gate.may_write, held)):
            state.is_held_up = True
            return False
        for reservation in held:
            floating_ip = self.cache.floating_ips.get(*reservation.owner.key)
            ignored = floating_ip.ignored_claims if floating_ip is not None else frozenset()
            await self.conflicts.check(reservation, ignored)
        try:
            for reservation in held:
                if not await self.reservation_store.is_held_by(reservation.name, reservation.owner):
                    return False
        except PASSING_ERRORS as error:
            # The guest has no part in that, and is not to wait as if it had.
            logger.debug("Could not confirm addresses", extra={"error": str(error)})
            return False
        return self.leads()

    def contested(self, guest_id: str) -> dict[str, tuple[str, ...]]:
        """Return the guest clusters that claim addresses which this one holds, by address."""
        return {
            format_address(address_of(each)): claimants
            for each in self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
            if each.is_held and (claimants := self.conflicts.claimants(each, but=guest_id))
        }
