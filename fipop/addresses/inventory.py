"""Who uses which address.

An address of a space is in use if a reservation exists (held or in quarantine), if a floating IP names it in its
status (before the first status, in its spec), if this process is claiming it, or if a guest cluster reported it that
the range could serve.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from fipop.addresses.claims import Claim, address_of, named_addresses, read_addresses, reservation_name
from fipop.addresses.reports import Reports
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.api.objects import FloatingIP, FloatingIPRange, FloatingIPReservation, Owner, SearchOrder
from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import IpamError, UnreadableSpecError
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import Range, RangeTable, RangeUsage, Usage
from fipop.runtime.store import Store

BY_NAMED = "named"
"""Of floating IPs: the addresses that they name."""
BY_OWNER = "owner"
BY_OWNER_NAMESPACE = "owner-namespace"

OwnerKey = tuple[str, str]


class Use(NamedTuple):
    """An address of a space that is not free."""

    space: str
    address: Address
    range: str
    """The range that counts it; "" for none."""
    is_held: bool
    """Whether a floating IP has it. If not, it is in quarantine, or only reports name it."""


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Answers from the stores, which call it for each change.

    A reservation counts as its guest cluster's own, whatever that reports.
    """

    reservations: Store[FloatingIPReservation]
    floating_ips: Store[FloatingIP]
    ranges: RangeTable = field(default_factory=RangeTable)
    problems: dict[str, IpamError] = field(default_factory=dict)
    """Why a range cannot be read, by its name."""
    _reserved: defaultdict[str, set[Address]] = field(default_factory=lambda: defaultdict(set))
    _claiming: list[Claim] = field(default_factory=list)
    reports: Reports = field(init=False)
    """What guest clusters use."""

    def __post_init__(self) -> None:
        self.reports = Reports(ranges=self.ranges, find_own=self.find_own)

    # What changed

    def range_changed(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> None:
        """Take in a range; a new status changes nothing."""
        if not is_respecified(old, new):
            return
        if old is not None:
            self.ranges.remove(old.name)
            self.problems.pop(old.name, None)
        if new is not None:
            try:
                self.ranges.enter(read_range(new))
            except IpamError as error:
                self.problems[new.name] = error
        self.reports.range_changed((new or old).name)  # type: ignore[union-attr]

    def reservation_changed(
        self, old: FloatingIPReservation | None, new: FloatingIPReservation | None
    ) -> None:
        """Take in a reservation."""
        for guest_id in {side.spec.owner.namespace for side in (old, new) if side is not None}:
            self.reports.guest_changed(guest_id)
        if new is not None:
            self._reserved[new.spec.space].add(address_of(new))
        elif old is not None:
            self._reserved[old.spec.space].discard(address_of(old))
            self.ranges.rewind()

    def floating_ip_changed(self, old: FloatingIP | None, new: FloatingIP | None) -> None:
        """Take in which addresses the status of a floating IP names, and which range it names."""
        names = [(each.range, each.status.range) if each is not None else () for each in (old, new)]
        if names[0] != names[1]:
            self.reports.guest_changed((new or old).namespace)  # type: ignore[union-attr]
        if old is not None and named_addresses(old) - (
            named_addresses(new) if new is not None else frozenset()
        ):
            self.ranges.rewind()

    def recall_reports(self, ranges: Iterable[FloatingIPRange], exists: Callable[[str], bool]) -> None:
        """Begin with what the statuses of ranges say that guest clusters use, as far as these exist."""
        self.reports.clear()
        for each in ranges:
            by_guest: defaultdict[str, list[Address]] = defaultdict(list)
            for entry in filter(lambda entry: exists(entry.guest), each.status.reported):
                by_guest[entry.guest] += read_addresses([entry.address])
            for guest_id, addresses in by_guest.items():
                self.reports.remember(guest_id, each.name, addresses)

    @contextmanager
    def claiming(self, claim: Claim) -> Iterator[None]:
        """Keep an address from the other floating IPs of this process while it is claimed."""
        self._claiming.append(claim)
        try:
            yield
        finally:
            self._claiming.remove(claim)
            if self.reservation(claim.space, claim.address) is None:
                self.ranges.rewind()

    def has_claims(self, range_name: str, *, but: Owner) -> bool:
        """Return whether addresses of a range are being claimed for others: soon it is known if that succeeds."""
        return any(each.range == range_name and each.owner.key != but.key for each in self._claiming)

    # What is so

    def reservation(self, space: str, address: Address) -> FloatingIPReservation | None:
        """Return the reservation of an address."""
        if address not in self._reserved[space]:
            return None
        return self.reservations.get("", reservation_name(space, address))

    def named_by(self, space: str, address: Address) -> list[FloatingIP]:
        """Return the floating IPs that name an address: first by a status, then by age."""
        found = self.floating_ips.by_index(BY_NAMED, address)
        here = (each for each in found if self.space_of(each) == space)
        return sorted(here, key=lambda each: (not each.status.addresses, each.created, each.key))

    def space_of(self, floating_ip: FloatingIP) -> str:
        """Return the address space of what a floating IP has or names."""
        found = self.ranges.get(floating_ip.status.range or floating_ip.range or "")
        return floating_ip.status.address_space or (found.space if found else DEFAULT_ADDRESS_SPACE)

    def find_rivals(self, floating_ip: FloatingIP, space: str, address: Address) -> frozenset[str]:
        """Return the other guest clusters that use an address of a floating IP; `ignore-claim` takes some out."""
        users = self.reports.find_users(space, address)
        return users - {floating_ip.namespace} - floating_ip.ignored_claims

    def find_own(self, guest_id: str) -> dict[Address, set[str]]:
        """Return the addresses that the floating IPs of a guest cluster hold, or held, with their address spaces."""
        found: defaultdict[Address, set[str]] = defaultdict(set)
        for each in self.reservations.by_index(BY_OWNER_NAMESPACE, guest_id):
            found[address_of(each)].add(each.spec.space)
        return found

    def find_reported(self, range_name: str) -> dict[Address, set[str]]:
        """Return the addresses of a range that are in use by reports alone, with the guest clusters that use them."""
        found, reported = self.ranges.get(range_name), defaultdict[Address, set[str]](set)
        if found is None:
            return reported
        for guest_id, address in self.find_foreign_uses(range_name):
            if address not in self._reserved[found.space] and not self.named_by(found.space, address):
                reported[address].add(guest_id)
        return reported

    def find_foreign_uses(self, range_name: str) -> Iterator[tuple[str, Address]]:
        """Yield each guest cluster with each address of a range that it uses, and no floating IP of it has or had."""
        found = self.ranges.get(range_name)
        if found is None:
            return
        for guest_id, address in self.reports.foreign_in(found.space):
            named = (each.namespace for each in self.named_by(found.space, address))
            if guest_id not in named and address in self.ranges.assigned(range_name):
                yield guest_id, address

    def uses(self) -> Iterator[Use]:
        """Yield every address in use, once for each space, in no order; claims under way are not among them."""
        for reservation in self.reservations.all():
            address = address_of(reservation)
            yield Use(reservation.spec.space, address, reservation.spec.range, reservation.is_held)
        for address in self._named():
            for space in {self.space_of(each) for each in self.floating_ips.by_index(BY_NAMED, address)}:
                if address not in self._reserved[space]:
                    first = self.named_by(space, address)[0]
                    yield Use(space, address, first.status.range or first.range or "", is_held=True)
        for found in self.ranges.all():
            for address in self.find_reported(found.name):
                yield Use(found.space, address, found.name, is_held=False)

    def _named(self) -> Iterator[Address]:
        return (each for each in self.floating_ips.keys(BY_NAMED) if isinstance(each, Address))

    def next_free(self, range_name: str, family: Family) -> Address | IpamError:
        """Return the address that a range assigns next, or why there is none."""
        return self.ranges.next_free(range_name, family, self._is_used_in(range_name))

    def free_addresses(self, range_name: str, family: Family) -> Iterator[Address]:
        """Yield the addresses that a range assigns next, in its order, whether or not it is draining."""
        is_used, found = self._is_used_in(range_name), self.ranges.get(range_name)
        is_descending = found is not None and found.descending
        values = self.ranges.assigned(range_name).of(family).addresses(descending=is_descending)
        return (each for value in values if not is_used(each := Address(family, value)))

    def _is_used_in(self, range_name: str) -> Callable[[Address], bool]:
        space = self.ranges.get(range_name).space  # type: ignore[union-attr]
        reserved, reported = self._reserved[space], self.reports.addresses_in(space)
        claiming = {each.address for each in self._claiming if each.space == space}

        def is_used(address: Address) -> bool:
            return (
                address in reserved
                or bool(self.named_by(space, address))
                or address in reported
                or address in claiming
            )

        return is_used

    def shares(self, namespace: str, range_name: str) -> set[str]:
        """Return the reservations of a guest cluster in a range, with those that it is claiming there."""
        reserved = self.reservations.by_index(BY_OWNER_NAMESPACE, namespace)
        claiming = (each for each in self._claiming if each.owner.namespace == namespace)
        return {each.name for each in reserved if each.spec.range == range_name} | {
            each.name for each in claiming if each.range == range_name
        }

    def count(self) -> dict[str, RangeUsage]:
        """Count all ranges that can be read."""
        tallies = {each.name: {family: _Tally() for family in Family} for each in self.ranges.all()}
        by_space: defaultdict[tuple[str, Family], list[Use]] = defaultdict(list)
        for use in self.uses():
            by_space[use.space, use.address.family].append(use)
            if use.range in tallies:
                tallies[use.range][use.address.family].named += 1
        for uses in by_space.values():
            uses.sort(key=_value_of)
        for found in self.ranges.all():
            for family in Family:
                addresses, uses = self.ranges.assigned(found.name).of(family), by_space[found.space, family]
                tally = tallies[found.name][family]
                tally.assigned = addresses.count
                for interval in addresses.intervals:
                    first = bisect_left(uses, interval.first, key=_value_of)
                    last = bisect_right(uses, interval.last, key=_value_of)
                    for use in uses[first:last]:
                        if interval.has(use.address.value):
                            tally.add(use, is_own=use.range == found.name)
        return {name: _sum_up(*(each[family].usage() for family in Family)) for name, each in tallies.items()}


def _value_of(use: Use) -> int:
    return use.address.value


@dataclass(slots=True)
class _Tally:
    """The counts of one family of a range.

    `named`: addresses that count in the range, whether it assigns them or not. `foreign`: those that it assigns, and
    that count in another.
    """

    assigned: int = 0
    named: int = 0
    used: int = 0
    quarantined: int = 0
    foreign: int = 0

    def add(self, use: Use, *, is_own: bool) -> None:
        if not is_own:
            self.foreign += 1
        elif use.is_held:
            self.used += 1
        else:
            self.quarantined += 1

    def usage(self) -> Usage:
        free = self.assigned - self.used - self.quarantined - self.foreign
        return Usage(self.used, free, self.quarantined, self.named - self.used - self.quarantined)


def _sum_up(ipv4: Usage, ipv6: Usage) -> RangeUsage:
    return RangeUsage(Usage(*map(sum, zip(ipv4, ipv6, strict=True))), ipv4, ipv6)


def is_respecified(old: FloatingIPRange | None, new: FloatingIPRange | None) -> bool:
    """Return whether a range changed in more than its status; it may assign now what it did not assign before."""
    return (
        old is None
        or new is None
        or old.metadata.generation != new.metadata.generation
        or old.harvester_cluster != new.harvester_cluster
        or old.harvester_network != new.harvester_network
        or old.is_deleting != new.is_deleting
        or old.uid != new.uid
    )


def read_range(found: FloatingIPRange) -> Range:
    """Read a range. Raises: IpamError."""
    if found.problem:
        raise UnreadableSpecError(found.problem)
    pool = parse_pool(
        found.spec.iprange,
        exclude=found.spec.exclude,
        skip_end_ips=found.spec.skip_end_ips,
        avoid_buggy_ips=found.spec.avoid_buggy_ips,
    )
    return Range(
        name=found.name,
        space=found.spec.address_space,
        pool=pool,
        created=found.created,
        descending=found.spec.search_order is SearchOrder.DESC,
        draining=found.spec.draining or found.is_deleting,
    )
