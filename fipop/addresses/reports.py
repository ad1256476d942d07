"""What guest clusters use, as visits found it, and in which ranges that counts.

What a visit found is kept until a visit that read the same things wholly does not find it any more. It counts in the
ranges that can serve the guest cluster now, or could when a visit found it. So a mistyped label frees no address.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fipop.addresses.guests import AddressRecord, GuestRecords
from fipop.addresses.in_use import AddressUser, InUseAddresses, InUsePart, Reading, Source, Uses, build_parts
from fipop.api.objects import EPOCH
from fipop.ipam.addresses import Address
from fipop.ipam.intervals import AddressSet, IntervalSet
from fipop.ipam.pool import Part
from fipop.ipam.ranges import Range, RangeTable

logger = logging.getLogger(__name__)

MAX_KEPT = 1024
"""How many addresses and pools of a guest cluster are kept, of objects and of machines each."""
MAX_COUNTED = 64
"""How many addresses that are not its own a guest cluster keeps from others in a range, of objects and machines each:
whoever may create a Service there can have it report any address."""


Slot = tuple[str, Address]
"""An address in its space."""


class Slots:
    """For how many reasons each address of a space is in use."""

    def __init__(self) -> None:
        self._reasons: defaultdict[str, Counter[Address]] = defaultdict(Counter)
        self.freed = 0
        """How often an address ceased to be in use: a search from where another one ended is right as long as this is
        the same."""

    def of(self, space: str) -> Collection[Address]:
        """Return the addresses of a space that are in use."""
        return self._reasons[space]

    def add(self, slots: Iterable[Slot]) -> None:
        """Count one more reason for each."""
        for space, address in slots:
            self._reasons[space][address] += 1

    def remove(self, slots: Iterable[Slot]) -> None:
        """Count one reason less for each."""
        for space, address in slots:
            self._reasons[space][address] -= 1
            if not self._reasons[space][address]:
                del self._reasons[space][address]
                self.freed += 1


News = dict[str, frozenset[Address]]
"""The addresses that guest clusters began, or ceased, to use, by guest cluster; those without news are missing."""


@dataclass(slots=True, kw_only=True)
class Reports:
    """The reports of all guest clusters. What changes them returns who else has to know."""

    records: GuestRecords[AddressRecord]
    pools: RangeTable
    slots: Slots
    """Where an address that a report keeps from others counts as in use."""
    find_own: Callable[[str], Mapping[Address, set[str]]]
    """Returns which addresses a guest cluster holds or held, and in which address spaces."""
    could_serve: Callable[[str, str], bool]
    """Returns whether a range could serve a guest cluster."""
    _users: defaultdict[str, defaultdict[Address, set[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )

    def take(self, guest_id: str, source: Source, began: datetime, found: InUseAddresses) -> News:
        """Take in what a visit read wholly."""
        uses = self.records.of(guest_id).uses
        before = uses.readings.get(source)
        uses.readings[source] = reading = Reading(began, self._cut(guest_id, found))
        is_same = before is not None and before.found == reading.found
        news = self._locate(guest_id, uses, tuple(uses.inside) if is_same else self.pools.names())
        if self.read_since(guest_id) is not None:
            uses.unread_since = None
        return news

    def note_unread(self, guest_id: str, now: datetime) -> None:
        """Note that a guest cluster could not be read."""
        uses = self.records.of(guest_id).uses
        uses.unread_since = uses.unread_since or now

    def remember(self, guest_id: str, range_name: str, addresses: Iterable[Address]) -> None:
        """Take in what the status of a range says: the last leader knew it, and this one has not read it yet."""
        uses = self.records.of(guest_id).uses
        parts = build_parts(AddressUser(kind="", namespace="", name=""), addresses)
        for source in Source:
            known = uses.readings.get(source, Reading(EPOCH, InUseAddresses()))
            uses.readings[source] = Reading(EPOCH, InUseAddresses(known.found.parts + parts))
        uses.could[range_name] = uses.could.get(range_name, frozenset()) | {each.part for each in parts}
        self._locate(guest_id, uses, self.pools.names())

    def forget(self, guest_id: str) -> News:
        """Forget what a guest cluster used."""
        record = self.records.get(guest_id)
        if record is None:
            return {}
        news, record.uses = self._count(guest_id, record.uses, {}), Uses()
        return news

    def range_changed(self, name: str) -> News:
        """Count again in a range: it has other addresses, or serves others."""
        news: News = {}
        for guest_id, record in self.records.items():
            news |= self._locate(guest_id, record.uses, [name])
        return news

    def guest_changed(self, guest_id: str) -> News:
        """Count again what a guest cluster uses: other ranges can serve it."""
        record = self.records.get(guest_id)
        return self._count(guest_id, record.uses, record.uses.inside) if record is not None else {}

    # What is so

    def read_since(self, guest_id: str) -> datetime | None:
        """Return when the oldest of its last whole readings began; None before all was read once."""
        readings = self._readings(guest_id)
        if len(readings) < len(Source):
            return None
        began = min(each.began for each in readings.values())
        return began if began > EPOCH else None

    def unread_since(self, guest_id: str) -> datetime | None:
        """Return when a visit could first not read a guest cluster; None if the last one could."""
        record = self.records.get(guest_id)
        return record.uses.unread_since if record is not None else None

    def find_user(self, guest_id: str, address: Address) -> AddressUser | None:
        """Return what uses an address in a guest cluster."""
        readings = self._readings(guest_id)
        found = (readings[source].found.user_of(address) for source in Source if source in readings)
        return next((each for each in found if each is not None), None)

    def find_ours(self, guest_id: str) -> list[Address]:
        """Return the single addresses that keys of fipop name in a guest cluster, the lowest first."""
        readings = self._readings(guest_id)
        objects = readings.get(Source.OBJECTS)
        parts = objects.found.parts if objects is not None else ()
        return sorted(
            Address(each.part.family, each.part.first) for each in parts if each.is_ours and not each.is_pool
        )

    def find_users(self, space: str, address: Address) -> frozenset[str]:
        """Return the guest clusters that keep an address of a space from others."""
        users = self._users.get(space)
        return frozenset(users.get(address, ())) if users else frozenset()

    def foreign_in(self, space: str) -> Iterator[tuple[str, Address]]:
        """Yield each guest cluster with each address of a space that it uses and does not hold."""
        for guest_id, record in self.records.items():
            for address in record.uses.foreign.get(space, ()):
                yield guest_id, address

    # How that is found

    def _readings(self, guest_id: str) -> Mapping[Source, Reading]:
        record = self.records.get(guest_id)
        return record.uses.readings if record is not None else {}

    def _cut(self, guest_id: str, found: InUseAddresses) -> InUseAddresses:
        """Keep so many as are kept: its own first, then those in ranges."""
        if len(found.parts) <= MAX_KEPT:
            return found
        own = self.find_own(guest_id)
        every = self.pools.all_addresses()

        def rank(each: InUsePart) -> int:
            if any(map(each.part.holds, own)):
                return 0
            return 1 if _meets(every, each.part) else 2

        ranked = sorted(found.parts, key=rank)
        fields = {"guest": guest_id, "count": len(ranked), "kept": MAX_KEPT}
        logger.warning("Guest cluster uses too many addresses", extra=fields)
        return InUseAddresses(tuple(ranked[:MAX_KEPT]))

    def _locate(self, guest_id: str, uses: Uses, names: Iterable[str]) -> News:
        """Find what lies in these ranges, and count."""
        every = self.pools.all_addresses()
        near = {
            source: [each.part for each in reading.found.parts if _meets(every, each.part)]
            for source, reading in uses.readings.items()
        }
        for name in names:
            found = self.pools.get(name)
            inside = {
                source: tuple(each for each in some if _meets(found.pool.addresses, each))
                for source, some in near.items()
                if found is not None
            }
            parts = frozenset(each for some in inside.values() for each in some)
            if parts:
                could = parts if self.could_serve(name, guest_id) else _keep(parts, uses.could.get(name, ()))
                uses.inside[name], uses.could[name] = inside, could
            else:
                uses.inside.pop(name, None)
                uses.could.pop(name, None)
        return self._count(guest_id, uses, uses.inside)

    def _count(
        self, guest_id: str, uses: Uses, inside: Mapping[str, Mapping[Source, tuple[Part, ...]]]
    ) -> News:
        before, own = uses.counted, self.find_own(guest_id)
        counted: defaultdict[str, set[Address]] = defaultdict(set)
        for name, by_source in inside.items():
            found = self.pools.get(name)
            if found is None:
                continue
            can_serve, could = self.could_serve(name, guest_id), uses.could.get(name, frozenset())
            chosen = {
                source: [each for each in parts if can_serve or each in could]
                for source, parts in by_source.items()
            }
            counted[found.space] |= set(self._select(own, found, chosen))
        uses.counted = {space: frozenset(some) for space, some in counted.items()}
        uses.foreign = {space: some - own.keys() for space, some in uses.counted.items()}
        changed: set[Address] = set()
        for space in before.keys() | uses.counted.keys():
            old, new = before.get(space, frozenset()), uses.counted.get(space, frozenset())
            changed |= new ^ old
            for address in new - old:
                users = self._users[space][address]
                if not users:
                    self.slots.add([(space, address)])
                users.add(guest_id)
            for address in old - new:
                users = self._users[space][address]
                users.discard(guest_id)
                if not users:
                    del self._users[space][address]
                    self.slots.remove([(space, address)])
        return {guest_id: frozenset(changed)} if changed else {}

    def _select(
        self, own: Mapping[Address, set[str]], found: Range, parts: Mapping[Source, list[Part]]
    ) -> Iterator[Address]:
        """Yield the addresses of a range that count: its own, and so many others of each source."""
        every = [each for some in parts.values() for each in some]
        single = {Address(each.family, each.first) for each in every if each.first == each.last}
        pools = [each for each in every if each.first != each.last]
        yield from (
            address
            for address, spaces in own.items()
            if found.space in spaces and (address in single or any(each.holds(address) for each in pools))
        )
        for some in parts.values():
            others: set[Address] = set()
            for address in _expand(found.pool.addresses, some):
                if len(others) == MAX_COUNTED:
                    break
                if address not in own:  # that of another space is another address
                    others.add(address)
            yield from others


def _keep(parts: Iterable[Part], known: Collection[Part]) -> frozenset[Part]:
    """Return the parts that were known; of a pool, a single address is known if only the status of a range told it."""
    single = [each for each in known if each.first == each.last]
    return frozenset(
        part
        for part in parts
        if part in known
        or (part.first != part.last and any(part.holds(Address(one.family, one.first)) for one in single))
    )


def _meets(pool: AddressSet, part: Part) -> bool:
    """Return whether a part has an address of a pool."""
    return pool.of(part.family).meets(part.first, part.last)


def _expand(pool: AddressSet, parts: Iterable[Part]) -> Iterator[Address]:
    """Yield the addresses of a pool that parts have: single ones first, then the members of their pools."""
    for part in sorted(parts, key=lambda each: each.first != each.last):
        if part.first == part.last:
            yield Address(part.family, part.first)
        else:
            span = pool.of(part.family) & IntervalSet.of([(part.first, part.last)])
            yield from (Address(part.family, value) for value in span.addresses())
