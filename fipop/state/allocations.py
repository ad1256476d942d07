"""Who uses which address of all address spaces, kept from what the stores hold.

An address is in use if a reservation assigns it, if a claim is under way, or if a floating IP names it (a reservation
that vanished must not free it). Each of the three enters and removes its own users of the address, and what an address
comes to follows from all of its users: so the state never depends on the order of events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from fipop.api.models import FloatingIP, Reservation
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.ipam.addresses import Address, Family
from fipop.ipam.allocator import AddressUser, Reason
from fipop.state.claims import Claim, read_addresses
from fipop.state.range_index import OwnerKey, RangeIndex


class _Use(NamedTuple):
    """A user of an address of a space."""

    space: str
    address: Address
    user: AddressUser[OwnerKey]


_Uses = frozenset[_Use]


@dataclass(slots=True)
class Allocations:
    """Who uses which address, and what the ranges can still assign."""

    is_inherited: Callable[[FloatingIP], bool]
    ranges: RangeIndex = field(default_factory=RangeIndex)
    _floating_ips: dict[OwnerKey, _Uses] = field(default_factory=dict)
    _open: dict[tuple[OwnerKey, Family], Claim] = field(default_factory=dict)

    # What changed

    def reservation_changed(self, old: Reservation | None, new: Reservation | None) -> None:
        """Take in a reservation."""
        self._replace(_uses_of_reservation(old), _uses_of_reservation(new))

    def floating_ip_changed(self, key: OwnerKey, new: FloatingIP | None) -> None:
        """Take in which addresses the status of a floating IP names.

        Before its first status those of its spec count, and as long as it is an object of the predecessor that was
        never served: its guest cluster carries them.
        """
        before, after = self._floating_ips.pop(key, frozenset()), self._uses_of_floating_ip(new)
        if after:
            self._floating_ips[key] = after
        self._replace(before, after)

    def begin_claim(self, claim: Claim) -> None:
        """Record a claim before it is written: no other owner gets the address while its outcome is open."""
        key = claim.owner.key, claim.address.family
        former, self._open[key] = self._open.get(key), claim
        self._replace(_uses_of_claim(former), _uses_of_claim(claim))

    def finish_claim(self, claim: Claim) -> None:
        """Forget a claim whose outcome is known: its reservation, if there is one, is in the store."""
        self._close(claim.owner.key, claim.address.family)

    def cancel_claims(self, owner: OwnerKey) -> None:
        """Forget the open claims of an owner that is gone: one that is granted all the same shows as ownerless."""
        for family in Family:
            self._close(owner, family)

    # What is so

    def claimants(self) -> frozenset[OwnerKey]:
        """Return the owners of claims whose outcome is open."""
        return frozenset(owner for owner, _ in self._open)

    def open_claims(self, namespace: str, range_name: str) -> frozenset[str]:
        """Return the names of reservations that the floating IPs of a namespace claim from a range now."""
        return frozenset(
            claim.name
            for claim in self._open.values()
            if claim.owner.namespace == namespace and claim.range == range_name
        )

    def unsettled(self, owner: OwnerKey, range_name: str, family: Family) -> Address | None:
        """Return the address of a claim whose outcome is unknown: it is claimed again before any other."""
        claim = self._open.get((owner, family))
        return claim.address if claim is not None and claim.range == range_name else None

    def is_unowned(self, range_name: str, address: Address) -> bool:
        """Return whether an address of a range, draining or overlapped too, has no reservation, claim or status.

        The spec of a floating IP that names it is a wish, which may be refused.
        """
        space = self.ranges.space_of(range_name)
        if space is None or not self.ranges.has(range_name, address):
            return False
        users = self.ranges.space(space).users(address)
        return all(each.reason is Reason.WANTED for each in users)

    def named_by(self, space: str, address: Address) -> frozenset[OwnerKey]:
        """Return the floating IPs whose status names an address that has no reservation."""
        users = self.ranges.space(space).users(address)
        if any(each.reason is Reason.RESERVED for each in users):
            return frozenset()
        return frozenset(each.owner for each in users if each.reason is Reason.NAMED)

    # How

    def _uses_of_floating_ip(self, floating_ip: FloatingIP | None) -> _Uses:
        if floating_ip is None:
            return frozenset()
        status, name = floating_ip.status, floating_ip.status.range or floating_ip.range or ""
        space = status.address_space or self.ranges.space_of(name) or DEFAULT_ADDRESS_SPACE
        is_named = bool(status.observed_generation) and not self.is_inherited(floating_ip)
        texts = status.addresses if is_named else floating_ip.ipaddress.split(",")
        reason = Reason.NAMED if is_named else Reason.WANTED
        user = AddressUser(reason, floating_ip.meta.key, name)
        return frozenset(_Use(space, address, user) for address in read_addresses(texts))

    def _close(self, owner: OwnerKey, family: Family) -> None:
        self._replace(_uses_of_claim(self._open.pop((owner, family), None)), frozenset())

    def _replace(self, before: _Uses, after: _Uses) -> None:
        """Enter users and remove the former ones."""
        for space, address, user in after - before:
            self.ranges.space(space).enter(address, user)
            self._count(space, user, 1)
        for space, address, user in before - after:
            self._count(space, user, -1)
            self.ranges.space(space).leave(address, user)

    def _count(self, space: str, user: AddressUser[OwnerKey], count: int) -> None:
        if user.reason is not Reason.WANTED:
            self.ranges.use(user.pool, space, count)


def _uses_of_reservation(found: Reservation | None) -> _Uses:
    if found is None:
        return frozenset()
    user = AddressUser(Reason.RESERVED, found.owner.key, found.range, found.quarantined_until)
    return frozenset(_Use(found.space, address, user) for address in read_addresses([found.address]))


def _uses_of_claim(claim: Claim | None) -> _Uses:
    if claim is None:
        return frozenset()
    user = AddressUser(Reason.CLAIMED, claim.owner.key, claim.range)
    return frozenset({_Use(claim.space, claim.address, user)})
