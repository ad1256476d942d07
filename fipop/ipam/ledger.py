"""The ledger of one address space: who holds which address, and what its ranges can still give out.

An address has at most one record, whatever range gave it out. Where ranges overlap, the addresses in the overlap are
the older range's alone, unless the ledger is made with `shared_overlaps`: then each gives them out, and they see each
other's holders. Not for several threads at once. All times are the caller's, so that a replica's clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from datetime import datetime
from typing import Any, Generic

from fipop import errors
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.free_list import FreeList
from fipop.ipam.records import OwnerT, Range, Record, Snapshot, Usage

__all__ = ["Ledger", "OwnerT", "Range", "Record", "Snapshot", "Usage"]

_new = tuple.__new__


class Ledger(Generic[OwnerT]):
    """The records of one address space and the free lists of its ranges.

    `returns_as` gives what a former owner is recognised by when it comes back for an address in quarantine, where that
    differs from the owner itself (a cluster built again has another namespace, but its old name).
    """

    def __init__(
        self, *, shared_overlaps: bool = False, returns_as: Callable[[OwnerT], Hashable] = lambda owner: owner
    ) -> None:
        self._shared_overlaps = shared_overlaps
        self._returns_as = returns_as
        self._ranges: dict[str, Range] = {}
        # The fields of records as plain tuples: making a named one takes as long as the rest of a claim.
        self._records: dict[Family, dict[int, tuple[OwnerT | None, str | None, datetime | None]]] = {
            family: {} for family in Family
        }
        self._quarantined: dict[Hashable, set[Address]] = {}
        # Empty after a change of the ranges; made anew when next asked for, once for a burst of changes.
        self._free_lists: dict[Family, dict[str, FreeList]] = {family: {} for family in Family}

    # Ranges

    def set_range(self, new: Range) -> None:
        """Add a range or change the one of that name; holders stay as they are."""
        if self._ranges.get(new.name) != new:
            self._ranges[new.name] = new
            self._drop_lanes()

    def remove_range(self, name: str) -> None:
        """Forget a range; its holders stay, and count nowhere until it comes back."""
        if self._ranges.pop(name, None) is not None:
            self._drop_lanes()

    def ranges(self) -> tuple[Range, ...]:
        """Give the ranges, oldest first."""
        return tuple(sorted(self._ranges.values(), key=lambda each: each.age))

    def range(self, name: str) -> Range:
        """Give a range; RangeUnknownError if there is none of that name."""
        found = self._ranges.get(name)
        if found is None:
            raise errors.RangeUnknownError(range_name=name)
        return found

    def conflicts(self, name: str) -> tuple[str, ...]:
        """Name the older ranges, oldest first, that take addresses away from this one."""
        return tuple(older.name for older in self._older(self.range(name)))

    def snapshot(self, range_name: str) -> Snapshot:
        """Count a range, exactly and in constant time."""
        ipv4, ipv6 = (_usage(self._free_list(range_name, family)) for family in Family)
        whole = (mine + theirs for mine, theirs in zip(ipv4, ipv6, strict=True))
        return Snapshot(Usage(*whole), ipv4, ipv6)

    # Questions

    def record(self, address: Address) -> Record[OwnerT] | None:
        """Give the record of an address, held or in quarantine."""
        found = self._records[address.family].get(address.value)
        return None if found is None else Record(*found)

    def records(self) -> Iterator[tuple[Address, Record[OwnerT]]]:
        """Iterate over all records by address, IPv4 first. Adopted by a new ledger they make the same ledger."""
        for family, records in self._records.items():
            for value in sorted(records):
                yield Address(family, value), Record(*records[value])

    def due(self, now: datetime) -> tuple[Address, ...]:
        """Give the addresses whose quarantine is over by the clock; they wait on until `free` or `expire`."""
        waiting = (each for addresses in self._quarantined.values() for each in addresses)
        untils = ((each, self._records[each.family][each.value][2]) for each in waiting)
        return tuple(sorted(each for each, until in untils if until is not None and until <= now))

    def refusal(self, address: Address, range_name: str) -> IpamError | None:
        """Say why a range would not give out an address, whoever holds it; None if it would.

        RangeDrainingError, AddressOutOfRangeError; RangeUnknownError is raised.
        """
        asked = self.range(range_name)
        if asked.draining:
            return errors.RangeDrainingError(range_name=range_name)
        if address.value in self._free_list(range_name, address.family).addresses:
            return None
        withheld = asked.pool.why_withheld(address)
        older = None if withheld else next(each.name for each in self._older(asked) if address in each.pool)
        return errors.AddressOutOfRangeError(
            address=format_address(address),
            range_name=range_name,
            pool_text=asked.pool.text,
            reason=withheld or f'belongs to the older range "{older}", which overlaps it',
            older_range=older,
        )

    def blocker(self, address: Address, owner: OwnerT, range_name: str) -> IpamError | None:
        """Say why `claim` would refuse; None if it would not.

        A `refusal`, AddressHeldError or AddressQuarantinedError; RangeUnknownError is raised.
        """
        refusal = self.refusal(address, range_name)
        record = self.record(address)
        if record is None:
            return refusal
        if record.is_held and record.owner == owner:
            return None if record.range_name == range_name else refusal
        if refusal is not None or self._returns(record, range_name, owner):
            return refusal
        if record.quarantined_until is None:
            return _held_error(address, record)
        return errors.AddressQuarantinedError(
            address=format_address(address), former_holder=record.owner, until=record.quarantined_until
        )

    def choose(self, range_name: str, family: Family, owner: OwnerT) -> Address:
        """Tell which address `claim_next` would give, with the same errors, and give out nothing."""
        free_list = self._free_list(range_name, family)
        value = self._next(free_list, range_name, family, owner)
        free_list.put_back(value)
        return Address(family, value)

    # Changes

    def claim_next(self, range_name: str, family: Family, owner: OwnerT) -> Address:
        """Give the owner its own address back from quarantine, else the next free one in the range's search order.

        RangeUnknownError, RangeDrainingError, FamilyMissingError, RangeFullError.
        """
        free_list = self._free_lists[family].get(range_name) or self._free_list(range_name, family)
        value = self._next(free_list, range_name, family, owner)
        address = _new(Address, (family, value))
        records = self._records[family]
        if self._shared_overlaps or value in records:
            self._put(address, Record(owner, range_name))
        else:  # what `_put` comes to for a free address, without its general counting: nearly all calls come this way
            records[value] = (owner, range_name, None)
            free_list.used += 1
        return address

    def claim(self, address: Address, owner: OwnerT, range_name: str) -> None:
        """Give the owner this address of the range; what it holds there already stays, also out of range.

        RangeUnknownError, and the errors of `refusal`.
        """
        if (blocker := self.blocker(address, owner, range_name)) is not None:
            raise blocker
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
        if record is not None and record.is_held and record.owner not in (None, owner):
            raise _held_error(address, record)
        self._put(address, Record(owner, range_name, quarantined_until))

    def release(self, address: Address, owner: OwnerT | None, *, until: datetime) -> None:
        """Put an address that this owner holds into quarantine; AddressNotHeldError if it does not hold it."""
        record = self.record(address)
        if record is None or not record.is_held or record.owner != owner:
            holder = record.owner if record and record.is_held else None
            raise errors.AddressNotHeldError(address=format_address(address), owner=owner, holder=holder)
        self._put(address, record._replace(quarantined_until=until))

    def free(self, address: Address) -> Record[OwnerT] | None:
        """Forget the record of an address, held or in quarantine, so that it can be given out; give what was there."""
        record = self._drop(address)
        if record is not None:
            for free_list in self._free_lists[address.family].values():
                if address.value in free_list.addresses:
                    free_list.put_back(address.value)
        return record

    def expire(self, now: datetime) -> tuple[Address, ...]:
        """Free all addresses whose quarantine is over by the clock, and give them."""
        due = self.due(now)
        for address in due:
            self.free(address)
        return due

    # How

    def _put(self, address: Address, record: Record[OwnerT]) -> None:
        self._drop(address)
        self._records[address.family][address.value] = record
        self._count(address, record, 1)
        if not record.is_held:
            self._quarantined.setdefault(self._return_key(record), set()).add(address)

    def _drop(self, address: Address) -> Record[OwnerT] | None:
        record = self.record(address)
        if record is not None:
            del self._records[address.family][address.value]
            self._count(address, record, -1)
            if not record.is_held:
                key = self._return_key(record)
                self._quarantined[key].remove(address)
                if not self._quarantined[key]:
                    del self._quarantined[key]
        return record

    def _count(self, address: Address, record: Record[OwnerT], step: int) -> None:
        for name, free_list in self._free_lists[address.family].items():
            is_given = address.value in free_list.addresses
            if name != record.range_name:
                free_list.foreign += step * is_given
            elif not is_given:
                free_list.outside += step
            elif record.is_held:
                free_list.used += step
            else:
                free_list.quarantined += step

    def _next(self, free_list: FreeList, range_name: str, family: Family, owner: OwnerT) -> int:
        """Take the owner's next address off the free list: its former one, or a free one."""
        if free_list.closed:
            raise errors.RangeDrainingError(range_name=range_name)
        if self._quarantined and (former := self._former(free_list, range_name, family, owner)) is not None:
            return former
        value = free_list.next_free()
        if value is None:
            raise self._exhausted(free_list, range_name, family)
        return value

    def _former(self, free_list: FreeList, range_name: str, family: Family, owner: OwnerT) -> int | None:
        waiting = self._quarantined.get(self._returns_as(owner), ())
        mine = (each for each in waiting if self._returns(self.record(each), range_name, owner))
        return free_list.first(each.value for each in mine if each.family is family)

    def _returns(self, record: Record[OwnerT] | None, range_name: str, owner: OwnerT) -> bool:
        """Tell whether a record in quarantine is that of an owner who asks its range for an address again."""
        if record is None or record.is_held or record.owner is None or record.range_name != range_name:
            return False
        return self._return_key(record) == self._returns_as(owner)

    def _return_key(self, record: Record[OwnerT]) -> Hashable:
        return None if record.owner is None else self._returns_as(record.owner)

    def _older(self, younger: Range) -> list[Range]:
        """Give the older ranges that overlap a range, oldest first."""
        if self._shared_overlaps:
            return []
        older = (each for each in self._ranges.values() if each.age < younger.age)
        return sorted((each for each in older if each.pool.overlaps(younger.pool)), key=lambda each: each.age)

    def _free_list(self, range_name: str, family: Family) -> FreeList:
        self.range(range_name)
        if not self._free_lists[family]:
            self._build_lanes()
        return self._free_lists[family][range_name]

    def _drop_lanes(self) -> None:
        for free_lists in self._free_lists.values():
            free_lists.clear()

    def _build_lanes(self) -> None:
        for each in self._ranges.values():
            addresses = each.pool.addresses
            for older in self._older(each):
                addresses -= older.pool.addresses
            for family, free_lists in self._free_lists.items():
                taken = self._records[family]
                free_lists[each.name] = FreeList(
                    addresses.of(family), taken, descending=each.descending, closed=each.draining
                )
        for address, record in self.records():
            self._count(address, record, 1)

    def _exhausted(self, free_list: FreeList, range_name: str, family: Family) -> IpamError:
        pool = self.range(range_name).pool
        families = tuple(each.label for each in Family if pool.addresses.of(each))
        if family.label not in families:
            return errors.FamilyMissingError(
                range_name=range_name, pool_text=pool.text, family=family.label, families=families
            )
        return errors.RangeFullError(
            range_name=range_name,
            pool_text=pool.text,
            family=family.label,
            total=_usage(free_list).total,
            used=free_list.used,
            quarantined=free_list.quarantined,
        )


def _usage(free_list: FreeList) -> Usage:
    return Usage(
        used=free_list.used,
        free=free_list.free,
        quarantined=free_list.quarantined,
        out_of_range=free_list.outside,
    )


def _held_error(address: Address, record: Record[Any]) -> errors.AddressHeldError:
    return errors.AddressHeldError(
        address=format_address(address), holder=record.owner, range_name=record.range_name
    )
