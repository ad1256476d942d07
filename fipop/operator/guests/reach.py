"""How far a guest's word reaches: which of the addresses that it says it carries count, and in which ranges.

Whoever may make a Service in a guest can have it say that it carries any address. Restored backups make it worth
believing, where it can be true: in ranges that could serve the guest, and for no more addresses than a guest has.
"""

from __future__ import annotations

from dataclasses import dataclass

from fipop.api.models import FloatingIPRange, Reservation
from fipop.ipam.addresses import Address
from fipop.operator.addresses.ownership import address_of
from fipop.operator.addresses.range_choice import as_match
from fipop.rancher.matching import fits_guest
from fipop.state.cache import BY_OWNER_NAMESPACE, BY_PAST_NAMESPACE, ClusterCache
from fipop.state.guests import GuestDirectory

MAX_CLAIMS = 64
"""So many addresses count that a guest says it carries and that are not its own; ConfigMaps first, then the lowest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Which ranges could have given a guest an address."""

    cache: ClusterCache
    guests: GuestDirectory

    def ranges_for(self, guest_id: str) -> tuple[FloatingIPRange, ...]:
        """Give the ranges that could serve a guest, of whatever network.

        Their harvesterClusterName and selector, where given, fit; or a floating IP of the guest names them; or the
        guest's reservations, or their history, come from them.
        """
        named = {
            name for each in self.cache.floating_ips_of(guest_id) for name in (each.range, each.status.range)
        }
        for index in (BY_OWNER_NAMESPACE, BY_PAST_NAMESPACE):
            named |= {each.range for each in self.cache.reservations.by_index(index, guest_id)}
        return tuple(
            each for each in self.cache.ranges.all() if each.name in named or self._fits(each, guest_id)
        )

    def _fits(self, each: FloatingIPRange, guest_id: str) -> bool:
        guest = self.guests.known(guest_id)
        if guest is None:
            return not each.harvester_cluster and each.match_labels is None
        # Which Harvester it is on may not be known (yet): then it may be any.
        anywhere = guest.on_harvester and not self.guests.is_resolved(guest_id)
        return fits_guest(as_match(each, full=False), guest, on_any_harvester=anywhere)

    def reaches(self, guest_id: str, reservation: Reservation) -> bool:
        """Whether it counts that a guest says it carries an address which is reserved for another.

        It does not where no range that could serve the guest gives out that address. Where the reservation's range is
        gone nobody can tell, so it counts.
        """
        if self.cache.ranges.get("", reservation.range) is None:
            return True
        return any(
            each.address_space == reservation.space
            and (each.name == reservation.range or self.has(each.name, address_of(reservation)))
            for each in self.ranges_for(guest_id)
        )

    def has(self, range_name: str, address: Address) -> bool:
        """Whether an address is of a range's pool."""
        return self.cache.allocations.ranges.may_get(range_name, address)

    def found_for(self, guest_id: str) -> int:
        """Count the addresses in quarantine because a guest was found to carry them: they never had an owner."""
        reservations = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        return sum(not each.is_held and not each.history for each in reservations)
