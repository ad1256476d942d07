"""Addresses that guests carry and nobody owns: kept from others, as far as a guest's word counts."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fipop.api.models import FloatingIPRange, Owner, Requested
from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.ipam.addresses import Address
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.values import read_addresses
from tests.unit.operator.guests.before.reach import MAX_CLAIMS, Reach
from fipop.runtime.retry import retry_passing
from fipop.state.cache import ClusterCache
from fipop.state.claims import Claim

logger = logging.getLogger(__name__)

LOOK_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=5.0)


@dataclass(slots=True, kw_only=True)
class UnownedAddresses:
    """Brings what guests carry and nobody owns into quarantine.

    `over_limit` hears of a guest that carries more of nobody's addresses than count, and of how many. `backoff` is for
    trouble of our own API server.
    """

    cache: ClusterCache
    reservation_store: ReservationStore
    reach: Reach
    over_limit: Callable[[str, int], None] = lambda _guest_id, _count: None
    backoff: Backoff = LOOK_BACKOFF
    ignored: dict[str, int] = field(default_factory=dict)
    """How many addresses of nobody a guest carries beyond those that count, as of the last look."""

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone."""
        self.ignored.pop(guest_id, None)

    async def keep(self, guest_id: str, addresses: tuple[Address, ...]) -> None:
        """Keep from others what a guest carries and nobody owns, as far as the guest's word counts."""
        ranges = self._ranges(guest_id, addresses)
        left = MAX_CLAIMS - self.reach.found_for(guest_id)
        ignored = 0
        for address in addresses:
            if not any(self._giving_out(address, guest_id, ranges)):
                continue
            if left <= 0:
                ignored += 1
                continue
            left -= 1
            keep = functools.partial(self._keep_from_others, address, guest_id, ranges)
            try:
                await retry_passing(keep, self.backoff)
            except FipopError as error:
                logger.info("Could not protect address", extra={"guest": guest_id, "error": str(error)})
        if ignored and ignored != self.ignored.get(guest_id):
            self.over_limit(guest_id, ignored)
        self.ignored.pop(guest_id, None)
        if ignored:
            self.ignored[guest_id] = ignored

    def is_suspect(self, guest_id: str, addresses: tuple[Address, ...]) -> bool:
        """Whether a guest was seen to carry something that would be given out to others now."""
        ranges = self._ranges(guest_id, addresses)
        return any(any(self._giving_out(address, guest_id, ranges)) for address in addresses)

    def _ranges(self, guest_id: str, addresses: tuple[Address, ...]) -> tuple[FloatingIPRange, ...]:
        """Return the ranges in which a guest's word counts; mostly it carries nothing but what it has a right to."""
        is_doubtful = not self.reach.rightful(guest_id).issuperset(addresses)
        return self.reach.ranges_for(guest_id) if is_doubtful else ()

    async def _keep_from_others(
        self, address: Address, guest_id: str, ranges: tuple[FloatingIPRange, ...]
    ) -> None:
        """Quarantine an address that a guest carries, in every space whose ranges would give it out to the guest."""
        for claim in self.claims(address, guest_id, ranges):
            seconds = self.cache.quarantine_seconds(claim.range)
            found = await self.reservation_store.quarantine_unowned(claim, seconds=seconds)
            if found is not None:
                logger.warning(
                    "Guest cluster uses an unowned address",
                    extra={"guest": guest_id, "address": found.address, "range": claim.range},
                )

    def claims(self, address: Address, guest_id: str, ranges: tuple[FloatingIPRange, ...]) -> Iterator[Claim]:
        """Yield a claim of the guest for each range that would assign an unowned address which the guest carries."""
        for each in self._giving_out(address, guest_id, ranges):
            yield Claim(
                space=each.address_space,
                address=address,
                range=each.name,
                owner=self._owner(guest_id, address),
                requested=Requested.DYNAMIC,
            )

    def _giving_out(
        self, address: Address, guest_id: str, ranges: tuple[FloatingIPRange, ...]
    ) -> Iterator[FloatingIPRange]:
        """Yield the ranges of the guest that would assign an address which it carries, and nobody has a right to.

        Each is judged when its turn comes: the one before may have brought the address into quarantine.
        """
        allocations = self.cache.allocations
        if address in self.reach.rightful(guest_id):
            return
        for each in ranges:
            unreadable = allocations.ranges.problem_of(each.name) is not None
            if not unreadable and allocations.is_unowned(each.name, address):
                yield each

    def _owner(self, guest_id: str, address: Address) -> Owner:
        """Return who comes first when the quarantine ends: the floating IP of the guest that asks for the address."""
        clusters = self.cache.guest_clusters(guest_id)
        asking = [
            each
            for each in self.cache.floating_ips_of(guest_id)
            if address in read_addresses(each.ipaddress.split(","))
        ]
        return Owner(
            namespace=guest_id,
            name=asking[0].name if len(asking) == 1 else "",
            uid=asking[0].uid if len(asking) == 1 else "",
            cluster=clusters[0].name if clusters else "",
            imported=bool(clusters) and clusters[0].lives_on,
        )
