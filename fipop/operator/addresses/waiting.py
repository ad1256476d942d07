"""The floating IPs that lack an address, and the requests for floating IPs and reservations."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP, Reservation
from fipop.ipam.addresses import Address
from fipop.operator.addresses.values import is_settled
from fipop.operator.queues import Key, Kind, Request
from fipop.runtime.workqueue import Priority
from fipop.state.cache import ClusterCache
from fipop.state.claims import read_addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFloatingIPs:
    """Remembers which floating IPs wait for an address to become free, as their last reconciliations found."""

    cache: ClusterCache
    _waiting: dict[tuple[str, str], FloatingIP] = field(default_factory=dict)

    def record(self, floating_ip: FloatingIP, *, is_waiting: bool) -> Iterator[Request]:
        """Remember whether one waits; yield the quarantined addresses that it names: they may be offered to it."""
        before = self._waiting.pop(floating_ip.meta.key, None)
        if not is_waiting:
            return
        self._waiting[floating_ip.meta.key] = floating_ip
        if before is None or before.ipaddress != floating_ip.ipaddress:
            for address in read_addresses(floating_ip.ipaddress.split(",")):
                for reservation in self.cache.reservations_at(address):
                    if not reservation.is_held:
                        yield request_reservation(reservation)

    def forget(self, key: tuple[str, str]) -> None:
        """Forget a floating IP that is gone."""
        self._waiting.pop(key, None)

    def find_all(self) -> list[FloatingIP]:
        """Return all that wait, the oldest first."""
        return _by_age(self._waiting.values())

    def find_by_name(self, address: Address) -> list[FloatingIP]:
        """Return those that name an address in their spec, the oldest first."""
        waiting = self._waiting.values()
        return _by_age(each for each in waiting if address in read_addresses(each.ipaddress.split(",")))

    def find_for(self, address: Address, holder: str = "") -> list[FloatingIP]:
        """Return those that name an address, or might get it, the oldest first: also from a range not known yet.

        And those in the namespace of its former holder, which may hold another address instead (maxPerGuest).
        """
        may_get = functools.cache(
            lambda range_name: self.cache.allocations.ranges.may_get(range_name, address)
        )
        return _by_age(
            each
            for each in self._waiting.values()
            if each.namespace == holder
            or may_get(each.range or each.status.range or "")
            or address in read_addresses([*each.ipaddress.split(","), *each.status.addresses])
        )


def _by_age(floating_ips: Iterable[FloatingIP]) -> list[FloatingIP]:
    return sorted(floating_ips, key=lambda each: (each.meta.created, each.meta.key))


def request_waiting(floating_ips: Iterable[FloatingIP], delay_seconds: float = 0.0) -> Iterator[Request]:
    """Request the reconciliation of floating IPs that wait: an address became free, or may be assigned now."""
    for each in floating_ips:
        yield Request(Key(Kind.FLOATING_IP, *each.meta.key), delay_seconds=delay_seconds)


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
