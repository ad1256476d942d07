"""Who uses which address: the stores, and the indexes that follow each of their changes at once.

An address of a space is in use if a reservation exists (held or in quarantine), if a floating IP names it in its
status (before the first status, in its spec), if this process is claiming it, or if a guest cluster reported it that
the range could serve. A reservation counts as its guest cluster's own, whatever that reports.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from fipop.addresses.claims import (
    Claim,
    address_of,
    named_addresses,
    read_addresses,
    reservation_name,
)
from fipop.addresses.guests import AddressRecord, GuestRecords
from fipop.addresses.reports import News, Reports, Slot, Slots
from fipop.addresses.stores import BY_NAMED, BY_OWNER_NAMESPACE, BY_RANGE, Stores
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.api.objects import (
    CheckedObject,
    FloatingIP,
    FloatingIPRange,
    FloatingIPReservation,
    Owner,
    SearchOrder,
    read_object,
)
from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import IpamError, UnreadableSpecError
from fipop.ipam.pool import parse_pool
from fipop.ipam.ranges import AddressCounts, Range, RangeTable, RangeUsage
from fipop.jsons import JsonView
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from fipop.rancher.links import Links, resolve_cached
from fipop.rancher.matching import Guest, fits_guest
from fipop.runtime.store import Change, Projection

logger = logging.getLogger(__name__)

OwnerKey = tuple[str, str]


class Use(NamedTuple):
    """An address of a space that is not free."""

    space: str
    address: Address
    range: str
    """The range that counts it; "" for none."""
    is_held: bool
    """Whether a floating IP has it. If not, it is in quarantine, or only reports name it."""


Handler = Callable[[Resource, Change[Any], News], None]
"""Takes a change that is in the indexes by now, and which addresses guest clusters began or ceased to use by it."""


class Inventory(Stores):
    """The stores of a replica, leader or standby, and what follows from them.

    `records`: what is remembered of guest clusters. `reads_guests`: guest clusters are read. If not, the statuses of
    ranges alone say what these use, and a report counts in that range alone.
    """

    def __init__(
        self, records: GuestRecords[AddressRecord] | None = None, *, reads_guests: bool = True
    ) -> None:
        super().__init__()
        self._reads_guests = reads_guests
        self.records = records or GuestRecords(AddressRecord)
        self.pools = RangeTable()
        """The ranges that can be read."""
        self.problems: dict[str, IpamError] = {}
        """Why a range cannot be read, by its name."""
        self._slots = Slots()
        self.reports = Reports(
            records=self.records,
            pools=self.pools,
            slots=self._slots,
            find_own=self.find_own,
            could_serve=self.could_serve,
        )
        """What guest clusters use."""
        self._reserved: defaultdict[str, set[Address]] = defaultdict(set)
        self._named: dict[OwnerKey, frozenset[Slot]] = {}
        self._claiming: list[Claim] = []
        self._handlers: list[Handler] = []

    # What comes in

    def subscribe(self, handler: Handler) -> None:
        """Have a handler called with each later change, whatever brings it, after it is in the indexes."""
        self._handlers.append(handler)

    def taker_of(self, resource: Resource) -> Callable[[Change[Any] | None], None]:
        """Return what takes in a change that the store of a kind has by now."""
        return partial(self._take, resource)

    def observe(self, resource: Resource, obj: JsonView) -> None:
        """Take in the answer of our own read or write."""
        self._take(resource, self.store_of(resource).put(obj))

    def observe_reservation(self, answer: JsonView) -> FloatingIPReservation:
        """Take in the answer of our own read or write of a reservation, and return it as it was answered."""
        self.observe(FLOATING_IP_RESERVATIONS, answer)
        return read_object(FloatingIPReservation, answer)

    def suppose(self, resource: Resource, projection: Projection) -> None:
        """Take in an object as it would be after a write that is not made."""
        self._take(resource, self.store_of(resource).take(projection))

    def forget(self, resource: Resource, gone: Projection) -> None:
        """Take in that the API server knows no object of that name."""
        metadata = {"name": gone.name, "resourceVersion": str(gone.resource_version)}
        if gone.namespace:
            metadata["namespace"] = gone.namespace
        self._take(resource, self.store_of(resource).delete({"metadata": metadata}))

    def note_guest(self, guest_id: str, guest: Guest | None, *, is_resolved: bool, problem: str = "") -> News:
        """Take in what is known of a guest cluster by now: other ranges can serve it."""
        record = self.records.of(guest_id)
        record.guest, record.is_resolved, record.problem = guest, is_resolved, problem
        return self.reports.guest_changed(guest_id)

    def forget_guest(self, guest_id: str, *, may_run: bool) -> News:
        """Forget a guest cluster; if it comes back under its id, it counts as new.

        `may_run`: Rancher still has something of it. Then it may run, with its addresses: what it uses stays.
        """
        before = self.records.get(guest_id)
        news = {} if may_run else self.reports.forget(guest_id)
        self.records.forget(guest_id)
        if may_run and before is not None:
            record = self.records.of(guest_id)
            record.uses = before.uses
            record.was_read, record.awaited_until = before.was_read, before.awaited_until
            news = self.reports.guest_changed(guest_id)
        return news

    def recall_reports(self, exists: Callable[[str], bool]) -> None:
        """Begin with what the statuses of ranges say that guest clusters use, as far as these exist."""
        for guest_id in dict(self.records.items()):
            self.reports.forget(guest_id)
        for each in self.ranges.all():
            by_guest: defaultdict[str, list[Address]] = defaultdict(list)
            for entry in filter(lambda entry: exists(entry.guest), each.status.reported):
                by_guest[entry.guest] += read_addresses([entry.address])
            for guest_id, addresses in by_guest.items():
                self.reports.remember(guest_id, each.name, addresses)

    @contextmanager
    def claiming(self, claim: Claim) -> Iterator[None]:
        """Keep an address from the other floating IPs of this process while it is claimed."""
        slots = [(claim.space, claim.address)]
        self._claiming.append(claim)
        self._slots.add(slots)
        try:
            yield
        finally:
            self._claiming.remove(claim)
            self._slots.remove(slots)

    def _take(self, resource: Resource, change: Change[Any] | None) -> None:
        if change is None:
            return
        if isinstance(change.new, CheckedObject) and change.new.problem:
            fields = {"resource": resource.plural, "object": "/".join(change.new.key).lstrip("/")}
            logger.warning("Could not read object", extra={**fields, "error": change.new.problem})
        news: News = {}
        if resource == FLOATING_IP_RESERVATIONS:
            news = self._reservation_changed(change.old, change.new)
        elif resource == FLOATING_IP_RANGES:
            news = self._range_changed(change.old, change.new)
        elif resource == FLOATING_IPS:
            news = self._floating_ip_changed(change.old, change.new)
        for handler in self._handlers:
            handler(resource, change, news)

    def _range_changed(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> News:
        if not is_respecified(old, new):
            return {}
        if old is not None:
            self.pools.remove(old.name)
            self.problems.pop(old.name, None)
        if new is not None:
            try:
                self.pools.enter(read_range(new))
            except IpamError as error:
                self.problems[new.name] = error
        name = (new or old).name  # type: ignore[union-attr]
        for each in self.floating_ips.by_index(BY_RANGE, name):
            self._note_named(each.key, each)  # without a status it is in the space of its range
        return self.reports.range_changed(name)

    def _reservation_changed(
        self, old: FloatingIPReservation | None, new: FloatingIPReservation | None
    ) -> News:
        if new is not None and old is None:
            self._reserved[new.spec.space].add(address_of(new))
            self._slots.add([(new.spec.space, address_of(new))])
        elif old is not None and new is None:
            self._reserved[old.spec.space].discard(address_of(old))
            self._slots.remove([(old.spec.space, address_of(old))])
        owners = sorted({side.spec.owner.namespace for side in (old, new) if side is not None})
        return {
            guest_id: news for each in owners for guest_id, news in self.reports.guest_changed(each).items()
        }

    def _floating_ip_changed(self, old: FloatingIP | None, new: FloatingIP | None) -> News:
        latest = new or old
        assert latest is not None, "a change has a side"
        self._note_named(latest.key, new)
        names = [(each.range, each.status.range) if each is not None else () for each in (old, new)]
        return self.reports.guest_changed(latest.namespace) if names[0] != names[1] else {}

    def _note_named(self, key: OwnerKey, floating_ip: FloatingIP | None) -> None:
        before, after = self._named.pop(key, frozenset()), frozenset[Slot]()
        if floating_ip is not None:
            space = self.space_of(floating_ip)
            after = frozenset((space, each) for each in named_addresses(floating_ip))
            self._named[key] = after
        self._slots.add(after - before)
        self._slots.remove(before - after)

    # What is so

    def known(self, guest_id: str) -> Guest | None:
        """Return a guest cluster as its links were resolved last; None if they never were."""
        record = self.records.get(guest_id)
        return record.guest if record is not None else None

    def known_guests(self) -> tuple[Guest, ...]:
        """Return all guest clusters whose links were resolved, by id."""
        found = sorted((guest_id, record.guest) for guest_id, record in self.records.items() if record.guest)
        return tuple(guest for _, guest in found)

    def is_resolved(self, guest_id: str) -> bool:
        """Return whether all links of a guest were resolved once, those to its Harvester cluster and network too."""
        record = self.records.get(guest_id)
        return record is not None and record.is_resolved

    def could_serve(self, range_name: str, guest_id: str) -> bool:
        """Return whether a range could serve a guest cluster: it fits, or a floating IP there names it."""
        if not self._reads_guests:
            return False
        found, guest = self.ranges.get("", range_name), self.known(guest_id) or self.resolve_cached(guest_id)
        if found is None or guest is None:
            return True
        floating_ips = self.floating_ips_of(guest_id)
        if any(range_name in (each.range, each.status.range) for each in floating_ips):
            return True
        # Which Harvester it is on may not be known (yet): then it may be any.
        return fits_guest(
            found, guest, on_any_harvester=guest.on_harvester and not guest.harvester_cluster_name
        )

    def resolve_cached(self, guest_id: str) -> Guest | None:
        """Return a guest cluster as far as it is known before its links are resolved.

        Also an imported cluster of which Rancher does not know (yet) what it is. It may use addresses.
        """
        links = self.find_links(guest_id)
        found = resolve_cached(replace(links, is_unknown_kind=True)) if links is not None else None
        return found if isinstance(found, Guest) else None

    def find_links(self, guest_id: str) -> Links | None:
        """Return what the stores have of the links of a guest cluster; None if Rancher does not have it."""
        cluster = self.cluster_of(guest_id)
        if cluster is None:
            return None
        return Links(
            cluster=cluster,
            management=self.find_management(guest_id),
            namespace=self.namespaces.get("", guest_id),
            find_management=self.find_management,
            known=self.known(guest_id) if self.is_resolved(guest_id) else None,
        )

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
        found = self.pools.get(floating_ip.current_range)
        return floating_ip.status.address_space or (found.space if found else DEFAULT_ADDRESS_SPACE)

    def has_claims(self, range_name: str, *, but: Owner) -> bool:
        """Return whether addresses of a range are being claimed for others: soon it is known if that succeeds."""
        return any(each.range == range_name and each.owner.key != but.key for each in self._claiming)

    def find_rivals(self, floating_ip: FloatingIP, space: str, address: Address) -> frozenset[str]:
        """Return the other guest clusters that use an address of a floating IP; `ignore-claim` takes some out."""
        users = self.reports.find_users(space, address)
        return users - {floating_ip.namespace} - floating_ip.ignored_claims

    def was_read_after(self, quarantined: FloatingIPReservation) -> bool:
        """Return whether a visit of its guest cluster that began after a quarantine's end read everything wholly."""
        until = quarantined.spec.quarantined_until
        read_since = self.reports.read_since(quarantined.spec.owner.namespace)
        return until is not None and read_since is not None and read_since >= until

    def find_own(self, guest_id: str) -> dict[Address, set[str]]:
        """Return the addresses that the floating IPs of a guest cluster hold, or held, with their address spaces."""
        found: defaultdict[Address, set[str]] = defaultdict(set)
        for each in self.reservations.by_index(BY_OWNER_NAMESPACE, guest_id):
            found[address_of(each)].add(each.spec.space)
        return found

    def find_reported(self, range_name: str) -> Mapping[Address, set[str]]:
        """Return the addresses of a range that are in use by reports alone, with the guest clusters that use them."""
        found, reported = self.pools.get(range_name), defaultdict[Address, set[str]](set)
        if found is None:
            return reported
        for guest_id, address in self.find_foreign_uses(range_name):
            if address not in self._reserved[found.space] and not self.named_by(found.space, address):
                reported[address].add(guest_id)
        return reported

    def find_foreign_uses(self, range_name: str) -> Iterator[tuple[str, Address]]:
        """Yield each guest cluster with each address of a range that it uses, and no floating IP of it has or had."""
        found = self.pools.get(range_name)
        if found is None:
            return
        for guest_id, address in self.reports.foreign_in(found.space):
            named = (each.namespace for each in self.named_by(found.space, address))
            if guest_id not in named and address in self.pools.assigned(range_name):
                yield guest_id, address

    def uses(self) -> Iterator[Use]:
        """Yield every address in use, once for each space, in no order; claims under way are not among them."""
        for reservation in self.reservations.all():
            address = address_of(reservation)
            yield Use(reservation.spec.space, address, reservation.spec.range, reservation.is_held)
        for space, address in frozenset().union(*self._named.values()):
            if address not in self._reserved[space]:
                first = self.named_by(space, address)[0]
                yield Use(space, address, first.current_range, is_held=True)
        for found in self.pools.all():
            for address in self.find_reported(found.name):
                yield Use(found.space, address, found.name, is_held=False)

    # What is free

    def next_free(self, range_name: str, family: Family) -> Address | IpamError:
        """Return the address that a range assigns next, or why there is none."""
        space = self.pools.get(range_name).space  # type: ignore[union-attr]
        return self.pools.next_free(range_name, family, self._slots.of(space), self._slots.freed)

    def free_addresses(self, range_name: str, family: Family) -> Iterator[Address]:
        """Yield the addresses that a range assigns next, in its order, whether or not it is draining."""
        found = self.pools.get(range_name)
        assert found is not None, "a range that can be read"
        in_use = self._slots.of(found.space)
        values = self.pools.assigned(range_name).of(family).addresses(descending=found.descending)
        return (each for value in values if (each := Address(family, value)) not in in_use)

    def shares(self, namespace: str, range_name: str) -> set[str]:
        """Return the reservations of a guest cluster in a range, with those that it is claiming there."""
        reserved = self.reservations.by_index(BY_OWNER_NAMESPACE, namespace)
        claiming = (each for each in self._claiming if each.owner.namespace == namespace)
        return {each.name for each in reserved if each.spec.range == range_name} | {
            each.name for each in claiming if each.range == range_name
        }

    def count(self) -> dict[str, RangeUsage]:
        """Count all ranges that can be read."""
        tallies = {each.name: {family: _Tally() for family in Family} for each in self.pools.all()}
        by_space: defaultdict[tuple[str, Family], list[Use]] = defaultdict(list)
        for use in self.uses():
            by_space[use.space, use.address.family].append(use)
            if use.range in tallies:
                tallies[use.range][use.address.family].named += 1
        for uses in by_space.values():
            uses.sort(key=_value_of)
        for found in self.pools.all():
            for family in Family:
                addresses, uses = self.pools.assigned(found.name).of(family), by_space[found.space, family]
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

    def usage(self) -> AddressCounts:
        free = self.assigned - self.used - self.quarantined - self.foreign
        return AddressCounts(self.used, free, self.quarantined, self.named - self.used - self.quarantined)


def _sum_up(ipv4: AddressCounts, ipv6: AddressCounts) -> RangeUsage:
    return RangeUsage(AddressCounts(*map(sum, zip(ipv4, ipv6, strict=True))), ipv4, ipv6)


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
