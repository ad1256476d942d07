"""The ledger of one address space: who holds which address, and what its ranges can still give out.

An address has at most one record, whatever range gave it out. Where ranges overlap, the addresses in the overlap are
the older range's alone, unless the ledger is made with `shared_overlaps`: then each gives them out, and they see each
other's holders. Not for several threads at once. All times are the caller's, so that a replica's clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from fipop.errors import (
    AddressHeldError,
    AddressNotHeldError,
    AddressOutOfRangeError,
    AddressQuarantinedError,
    FamilyMissingError,
    IpamError,
    RangeDrainingError,
    RangeFullError,
    RangeUnknownError,
)
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.lane import Lane
from fipop.ipam.pool import Pool

OwnerT = TypeVar("OwnerT", bound=Hashable)
# The fields of a Record. Plain tuples are kept, because making a named one takes ten times as long.
_Entry = tuple[OwnerT | None, str | None, datetime | None]
_new = tuple.__new__
_EPOCH = datetime.fromtimestamp(0, UTC)


class Record(NamedTuple, Generic[OwnerT]):
    """What the ledger knows of an address.

    `owner` None: somebody unknown. `range_name` is the range where it counts (None, or a range that is not there: it
    counts nowhere). `quarantined_until` None: held, else `owner` is the former owner.
    """

    owner: OwnerT | None
    range_name: str | None
    quarantined_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A named pool of the space; age is by `created`, then name. A draining range gives out nothing."""

    name: str
    pool: Pool
    created: datetime = _EPOCH
    descending: bool = False
    draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """How full a range is; total = used + free + quarantined.

    A record counts once, at the range that it names: as used or quarantined if that range gives out the address, else
    as `out_of_range`, which is not in the total.
    """

    used: int = 0
    free: int = 0
    quarantined: int = 0
    out_of_range: int = 0

    @property
    def total(self) -> int:
        """The capacity: what the range has given out, and what it can give."""
        return self.used + self.free + self.quarantined

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            used=self.used + other.used,
            free=self.free + other.free,
            quarantined=self.quarantined + other.quarantined,
            out_of_range=self.out_of_range + other.out_of_range,
        )


class Snapshot(NamedTuple):
    """The usage of a range, whole and by family."""

    whole: Usage
    ipv4: Usage
    ipv6: Usage


def _usage(lane: Lane) -> Usage:
    return Usage(used=lane.used, free=lane.free, quarantined=lane.quarantined, out_of_range=lane.outside)


def _itself(owner: Hashable) -> Hashable:
    return owner


class Ledger(Generic[OwnerT]):
    """The records of one address space and the lanes of its ranges.

    `returns_as` gives what a former owner is recognised by when it comes back for an address in quarantine, where that
    differs from the owner itself (a cluster built again has another namespace, but its old name).
    """

    def __init__(
        self, *, shared_overlaps: bool = False, returns_as: Callable[[OwnerT], Hashable] = _itself
    ) -> None:
        self._shared_overlaps = shared_overlaps
        self._returns_as = returns_as
        self._ranges: dict[str, Range] = {}
        self._records: dict[Family, dict[int, _Entry[OwnerT]]] = {family: {} for family in Family}
        # Nearly all owners hold one address: a set for each of them would double the memory and the time of a claim.
        self._held: dict[Family, dict[OwnerT, int | set[int]]] = {family: {} for family in Family}
        self._quarantined: dict[Hashable, set[Address]] = {}
        # Empty after a change of the ranges; made anew when next asked for, once for a burst of changes.
        self._lanes: dict[Family, dict[str, Lane]] = {family: {} for family in Family}

    # Ranges

    def set_range(self, new: Range) -> None:
        """Add a range or change the one of that name; holders stay as they are."""
        if self._ranges.get(new.name) != new:
            self._ranges[new.name] = new
            self._drop_lanes()

    def remove_range(self, name: str) -> None:
        """Forget a range; its holders stay and count nowhere until it comes back."""
        if self._ranges.pop(name, None) is not None:
            self._drop_lanes()

    def ranges(self) -> tuple[Range, ...]:
        """Give the ranges, oldest first."""
        return tuple(sorted(self._ranges.values(), key=lambda each: (each.created, each.name)))

    def range(self, name: str) -> Range:
        """Give a range; RangeUnknownError if there is none of that name."""
        found = self._ranges.get(name)
        if found is None:
            raise RangeUnknownError(range_name=name)
        return found

    def conflicts(self, name: str) -> tuple[str, ...]:
        """Name the older ranges, oldest first, that take addresses away from this one."""
        return tuple(older.name for older in self._older(self.range(name)))

    # Questions

    def record(self, address: Address) -> Record[OwnerT] | None:
        """Give the record of an address, held or in quarantine."""
        entry = self._records[address.family].get(address.value)
        return None if entry is None else Record(*entry)

    def records(self) -> Iterator[tuple[Address, Record[OwnerT]]]:
        """Iterate over all records by address, IPv4 first."""
        for family in Family:
            for value, entry in sorted(self._records[family].items()):
                yield Address(family, value), Record(*entry)

    def held_by(self, owner: OwnerT) -> tuple[Address, ...]:
        """Give the addresses that an owner holds, IPv4 first."""
        found: list[Address] = []
        for family, index in self._held.items():
            held = index.get(owner, ())
            found += [
                Address(family, value) for value in ((held,) if isinstance(held, int) else sorted(held))
            ]
        return tuple(found)

    def due(self, now: datetime) -> tuple[Address, ...]:
        """Give the addresses whose quarantine is over by the clock; they wait on until `free` or `expire`."""
        return tuple(
            sorted(
                address
                for addresses in self._quarantined.values()
                for address in addresses
                if (until := self._records[address.family][address.value][2]) and until <= now
            )
        )

    def refusal(self, address: Address, range_name: str) -> IpamError | None:
        """Say why a range would not give out an address, whoever holds it; None if it would."""
        asked = self.range(range_name)
        if asked.draining:
            return RangeDrainingError(range_name=range_name)
        if address.value in self._lane(range_name, address.family).addresses:
            return None
        withheld = asked.pool.why_withheld(address)
        owner = None if withheld else next(each.name for each in self._older(asked) if address in each.pool)
        return AddressOutOfRangeError(
            address=format_address(address),
            range_name=range_name,
            pool_text=asked.pool.text,
            reason=withheld or f'belongs to the older range "{owner}", which overlaps it',
            older_range=owner,
        )

    def snapshot(self, range_name: str) -> Snapshot:
        """Count a range, exactly."""
        ipv4, ipv6 = (_usage(self._lane(range_name, family)) for family in Family)
        return Snapshot(whole=ipv4 + ipv6, ipv4=ipv4, ipv6=ipv6)

    # Changes

    def claim_next(self, range_name: str, family: Family, owner: OwnerT) -> Address:
        """Give the owner its own address back from quarantine, else the next free one in the range's search order.

        RangeUnknownError, RangeDrainingError, FamilyMissingError, RangeFullError.
        """
        lane = self._lanes[family].get(range_name) or self._lane(range_name, family)
        if lane.closed:
            raise RangeDrainingError(range_name=range_name)
        if self._quarantined and (former := self._former(lane, range_name, family, owner)) is not None:
            self._put(former, Record(owner, range_name))
            return former
        value = lane.next_free()
        if value is None:
            raise self._nothing_free(range_name, family)
        address = _new(Address, (family, value))
        # As `_put` does, without its general counting: nearly all calls of the core come this way.
        self._records[family][value] = (owner, range_name, None)
        lane.used += 1
        if self._shared_overlaps:
            self._count_foreign(address, lane, 1)
        if self._held[family].setdefault(owner, value) != value:
            self._hold(owner, address)
        return address

    def claim(self, address: Address, owner: OwnerT, range_name: str) -> None:
        """Give the owner this address of the range; what it holds there already stays as it is, also out of range.

        RangeUnknownError, RangeDrainingError, AddressOutOfRangeError, AddressHeldError, AddressQuarantinedError.
        """
        record = self.record(address)
        is_own = record is not None and record.quarantined_until is None and record.owner == owner
        if is_own and record is not None and record.range_name == range_name:
            return
        if (refusal := self.refusal(address, range_name)) is not None:
            raise refusal
        if record is not None and not is_own:
            if record.quarantined_until is None:
                raise self._held_by_other(address, record)
            if not self._returns(record, range_name, owner):
                raise AddressQuarantinedError(
                    address=format_address(address),
                    former_holder=record.owner,
                    until=record.quarantined_until,
                )
        self._put(address, Record(owner, range_name))

    def adopt(
        self,
        address: Address,
        owner: OwnerT | None,
        range_name: str | None,
        *,
        quarantined_until: datetime | None = None,
    ) -> None:
        """Enter what is so in the world, whatever the ranges say: a holder, or a former one in quarantine.

        It replaces the record of the same owner, of somebody unknown (owner None) or one in quarantine; another
        known holder is an AddressHeldError.
        """
        record = self.record(address)
        if record is not None and record.quarantined_until is None and record.owner not in (None, owner):
            raise self._held_by_other(address, record)
        self._put(address, Record(owner, range_name, quarantined_until))

    def release(self, address: Address, owner: OwnerT | None, *, until: datetime) -> None:
        """Put an address that this owner holds into quarantine; AddressNotHeldError if it does not hold it."""
        record = self.record(address)
        holder = record.owner if record and record.quarantined_until is None else None
        if record is None or record.quarantined_until is not None or holder != owner:
            raise AddressNotHeldError(address=format_address(address), owner=owner, holder=holder)
        self._put(address, Record(owner, record.range_name, until))

    def free(self, address: Address) -> Record[OwnerT] | None:
        """Forget the record of an address, held or in quarantine, so that it can be given out; give what was there."""
        record = self.record(address)
        if record is not None:
            del self._records[address.family][address.value]
            self._unlink(address, record)
            for lane in self._lanes[address.family].values():
                if address.value in lane.addresses:
                    lane.put_back(address.value)
        return record

    def expire(self, now: datetime) -> tuple[Address, ...]:
        """Free all addresses whose quarantine is over by the clock, and give them."""
        due = self.due(now)
        for address in due:
            self.free(address)
        return due

    # How

    def _put(self, address: Address, record: Record[OwnerT]) -> None:
        """Make this the record of the address, instead of any other."""
        replaced = self.record(address)
        if replaced is not None:
            self._unlink(address, replaced)
        self._records[address.family][address.value] = record
        self._count(address, record, 1)
        if record.quarantined_until is not None:
            self._quarantined.setdefault(self._return_key(record.owner), set()).add(address)
        elif record.owner is not None:
            self._hold(record.owner, address)

    def _hold(self, owner: OwnerT, address: Address) -> None:
        index = self._held[address.family]
        held = index.setdefault(owner, address.value)
        if isinstance(held, set):
            held.add(address.value)
        elif held != address.value:
            index[owner] = {held, address.value}

    def _unlink(self, address: Address, record: Record[OwnerT]) -> None:
        """Take a record out of the counts and the indexes."""
        self._count(address, record, -1)
        if record.quarantined_until is not None:
            _discard(self._quarantined, self._return_key(record.owner), address)
        elif record.owner is not None:
            _discard(self._held[address.family], record.owner, address.value)

    def _count(self, address: Address, record: Record[OwnerT], step: int) -> None:
        lane = self._lanes[address.family].get(record.range_name or "")
        if lane is not None:
            if address.value not in lane.addresses:
                lane.outside += step
            elif record.quarantined_until is None:
                lane.used += step
            else:
                lane.quarantined += step
        self._count_foreign(address, lane, step)

    def _count_foreign(self, address: Address, own: Lane | None, step: int) -> None:
        """Count an address in the lanes that it is taken from, but for that of its own range."""
        for lane in self._lanes[address.family].values():
            if lane is not own and address.value in lane.addresses:
                lane.foreign += step

    def _former(self, lane: Lane, range_name: str, family: Family, owner: OwnerT) -> Address | None:
        """Find the address that this owner had from the range, the first in its search order."""
        own = self._quarantined.get(self._returns_as(owner), set())
        mine = [
            address.value
            for address in own
            if address.family is family
            and self._returns(self._records[family][address.value], range_name, owner)
        ]
        value = lane.first(mine)
        return None if value is None else Address(family, value)

    def _returns(self, record: Record[OwnerT] | None, range_name: str, owner: OwnerT) -> bool:
        """Tell whether a record in quarantine is that of the owner who asks its range for an address again."""
        return (
            record is not None
            and record.owner is not None
            and record.range_name == range_name
            and self._returns_as(record.owner) == self._returns_as(owner)
        )

    def _return_key(self, owner: OwnerT | None) -> Hashable:
        return None if owner is None else self._returns_as(owner)

    def _older(self, of: Range) -> list[Range]:
        """Give the older ranges that overlap a range, oldest first."""
        if self._shared_overlaps:
            return []
        ranges = self.ranges()
        return [older for older in ranges[: ranges.index(of)] if older.pool.overlaps(of.pool)]

    def _lane(self, range_name: str, family: Family) -> Lane:
        self.range(range_name)
        if range_name not in self._lanes[family]:
            self._build_lanes()
        return self._lanes[family][range_name]

    def _drop_lanes(self) -> None:
        for lanes in self._lanes.values():
            lanes.clear()

    def _build_lanes(self) -> None:
        for each in self.ranges():
            addresses = each.pool.addresses
            for older in self._older(each):
                addresses -= older.pool.addresses
            for family, lanes in self._lanes.items():
                lanes[each.name] = Lane(
                    addresses.of(family),
                    self._records[family],
                    descending=each.descending,
                    closed=each.draining,
                )
        for address, record in self.records():
            self._count(address, record, 1)

    def _nothing_free(self, range_name: str, family: Family) -> IpamError:
        pool, lane = self.range(range_name).pool, self._lane(range_name, family)
        if not lane.addresses:
            return FamilyMissingError(
                range_name=range_name,
                pool_text=pool.text,
                family=family.label,
                families=tuple(each.label for each in pool.families),
            )
        return RangeFullError(
            range_name=range_name,
            pool_text=pool.text,
            family=family.label,
            total=_usage(lane).total,
            used=lane.used,
            quarantined=lane.quarantined,
        )

    def _held_by_other(self, address: Address, record: Record[OwnerT]) -> AddressHeldError:
        return AddressHeldError(
            address=format_address(address), holder=record.owner, range_name=record.range_name
        )


def _discard(index: dict[Any, Any], key: Hashable, item: Address | int) -> None:
    """Take an item out of an index, and its key with the last one."""
    found = index[key]
    if isinstance(found, set):
        found.discard(item)
    if not isinstance(found, set) or not found:
        del index[key]
