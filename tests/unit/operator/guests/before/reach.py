"""How far a guest's word reaches: which of the addresses that it says it carries count, and in which ranges.

Whoever may make a Service in a guest can have it say that it carries any address. Restored backups make it worth
believing, where it can be true: in ranges that could serve the guest, and for no more addresses than a guest has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fipop.api.models import FloatingIPRange, Reservation
from fipop.ipam.addresses import Address
from fipop.operator.addresses.values import address_of, read_addresses
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
        return tuple(self._serving(guest_id, self.cache.ranges.all()))

    def could_serve(self, range_name: str, guest_id: str) -> bool:
        """Whether a range, or one that shares addresses with it, could serve a guest; True where the range is gone."""
        if self.cache.ranges.get("", range_name) is None:
            return True
        return any(self._serving(guest_id, self.cache.allocations.ranges.sharing(range_name)))

    def _serving(self, guest_id: str, ranges: Iterable[FloatingIPRange]) -> Iterator[FloatingIPRange]:
        named = {
            name for each in self.cache.floating_ips_of(guest_id) for name in (each.range, each.status.range)
        }
        for index in (BY_OWNER_NAMESPACE, BY_PAST_NAMESPACE):
            named |= {each.range for each in self.cache.reservations.by_index(index, guest_id)}
        # Before its first round its links are not resolved, but its labels are known.
        guest = self.guests.known(guest_id) or self.guests.glimpse(guest_id, of_any_kind=True)
        # Which Harvester it is on may not be known (yet): then it may be any.
        anywhere = guest is not None and guest.on_harvester and not self.guests.is_resolved(guest_id)
        for each in ranges:
            if each.name in named:
                yield each
            elif guest is None:
                if not each.harvester_cluster and each.match_labels is None:
                    yield each
            elif fits_guest(each, guest, on_any_harvester=anywhere):
                yield each

    def reaches(self, guest_id: str, reservation: Reservation) -> bool:
        """Whether it counts that a guest says it carries an address which is reserved for another.

        It does not where no range that could serve the guest gives out that address. Where the reservation's range is
        gone nobody can tell, so it counts.
        """
        if self.cache.ranges.get("", reservation.range) is None:
            return True
        may_get = self.cache.allocations.ranges.may_get
        return any(
            each.address_space == reservation.space
            and (each.name == reservation.range or may_get(each.name, address_of(reservation)))
            for each in self.ranges_for(guest_id)
        )

    def rightful(self, guest_id: str) -> frozenset[Address]:
        """Return what a guest carries by right, in whatever space, or carried by right until lately."""
        reserved = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        named = (each.status.addresses for each in self.cache.floating_ips_of(guest_id))
        return frozenset(address_of(each) for each in reserved).union(*map(read_addresses, named))

    def found_for(self, guest_id: str) -> int:
        """Count the addresses in quarantine because a guest was found to carry them: they never had an owner."""
        reservations = self.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
        return sum(not each.is_held and not each.history for each in reservations)
