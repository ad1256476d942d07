"""The floating IPs that lack an address, and the requests for floating IPs and reservations."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from fipop.api.models import FloatingIP, Reservation
from fipop.ipam.addresses import Address
from fipop.operator.addresses.values import is_settled
from fipop.operator.queues import Key, Kind, Request
from fipop.runtime.workqueue import Priority
from fipop.state.cache import BY_WAITING, ClusterCache
from fipop.state.claims import read_addresses


def find_lacking(cache: ClusterCache) -> list[FloatingIP]:
    """Return the floating IPs whose status says that they lack an address, the oldest first."""
    return _by_age(cache.floating_ips.by_index(BY_WAITING, True))


def find_waiting(cache: ClusterCache) -> list[FloatingIP]:
    """Return the floating IPs that lack an address, and those without a status of their spec, the oldest first."""
    by_index = cache.floating_ips.by_index
    return _by_age((*by_index(BY_WAITING, True), *by_index(BY_WAITING, False)))


def find_asking(cache: ClusterCache, address: Address) -> list[FloatingIP]:
    """Return the waiting floating IPs that name an address in their spec, the oldest first."""
    return [each for each in find_waiting(cache) if address in read_addresses(each.ipaddress.split(","))]


def _by_age(floating_ips: Iterable[FloatingIP]) -> list[FloatingIP]:
    return sorted(floating_ips, key=lambda each: (each.meta.created, each.meta.key))


def request_lacking(cache: ClusterCache) -> Iterator[Request]:
    """Request the floating IPs that lack an address. A new one is reconciled anyway."""
    for each in find_lacking(cache):
        yield Request(Key(Kind.FLOATING_IP, *each.meta.key))


def request_concerned(cache: ClusterCache, released: Reservation) -> Iterator[Request]:
    """Request the floating IPs that lack an address and name a released one, or might get it from their range.

    Also those in the namespace of its former holder, which may get another address instead (maxPerGuest), and those
    whose range is not known yet.
    """
    for address in read_addresses([released.address]):
        may_get = functools.cache(functools.partial(cache.allocations.ranges.may_get, address=address))
        for each in find_lacking(cache):
            if (
                each.namespace == released.owner.namespace
                or may_get(each.range or each.status.range or "")
                or address in read_addresses([*each.ipaddress.split(","), *each.status.addresses])
            ):
                yield Request(Key(Kind.FLOATING_IP, *each.meta.key))


def request_floating_ip(cache: ClusterCache, key: tuple[str, str]) -> Request:
    """Request a floating IP; one that has all that it asks for does not come before those that have not."""
    found = cache.floating_ips.get(*key)
    is_served = found is not None and is_settled(found, cache.reservations_of(key))
    return Request(Key(Kind.FLOATING_IP, *key), Priority.BACKGROUND if is_served else Priority.NORMAL)


def request_floating_ips_of(cache: ClusterCache, guest_id: str) -> Iterator[Request]:
    """Request all floating IPs of a guest."""
    for floating_ip in cache.floating_ips_of(guest_id):
        yield request_floating_ip(cache, floating_ip.meta.key)


def request_reservation(reservation: Reservation) -> Request:
    """Request a reservation: it may be ownerless, or its quarantine may end."""
    return Request(Key(Kind.RESERVATION, "", reservation.name), Priority.BACKGROUND)
