"""The ledger of one address space: who holds which address, and what its ranges can still assign.

An address has at most one record, whatever range assigned it. If ranges overlap, the addresses in the overlap are
the older range's alone, unless the ledger is made with `shared_overlaps`: then each assigns them, and they see each
other's holders. Not for several threads at once. All times are the caller's, so that a replica's clock decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Generic

from fipop import errors
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.free_list import FreeList
from fipop.ipam.intervals import IntervalSet
from fipop.ipam.records import OwnerT, Range, RangeUsage, Record, Usage

__all__ = ["Ledger", "OwnerT", "Range", "RangeUsage", "Record", "Usage"]

_new = tuple.__new__


class Ledger(Generic[OwnerT]):
    """The records of one address space and the free lists of its ranges."""

    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}
        # The fields of records as plain tuples: making a named one takes as long as the rest of a claim.
        self._records: dict[Family, dict[int, tuple[OwnerT | None, str | None, datetime | None]]] = {
            family: {} for family in Family
        }
        # Empty after a change of the ranges; made anew when next asked for, once for a burst of changes.
        self._free_lists: dict[Family, dict[str, FreeList]] = {family: {} for family in Family}

    # Ranges

    def set_range(self, new: Range) -> None:
        """Add a range or change the one of that name; holders stay as they are."""
        if self._ranges.get(new.name) != new:
            self._ranges[new.name] = new
            self._drop_lanes()

    def remove_range(self, name: str) -> None:
        """Forget a range; its holders stay, and are not counted until it is added again."""
        if self._ranges.pop(name, None) is not None:
            self._drop_lanes()

    def range(self, name: str) -> Range:
        """Return a range; RangeUnknownError if there is none of that name."""
        found = self._ranges.get(name)
        if found is None:
            raise errors.RangeUnknownError(range_name=name)
        return found

    def conflicts(self, name: str) -> tuple[str, ...]:
        """Name the older ranges, oldest first, that take addresses away from this one."""
        return tuple(older.name for older in self._older(self.range(name)))

    def snapshot(self, range_name: str) -> RangeUsage:
        """Count a range, exactly and in constant time."""
        ipv4, ipv6 = (_usage(self._free_list(range_name, family)) for family in Family)
        whole = (mine + theirs for mine, theirs in zip(ipv4, ipv6, strict=True))
        return RangeUsage(Usage(*whole), ipv4, ipv6)

    # Questions

    def record(self, address: Address) -> Record[OwnerT] | None:
        """Return the record of an address, held or in quarantine."""
        found = self._records[address.family].get(address.value)
        return None if found is None else Record(*found)

    def records(self) -> Iterator[tuple[Address, Record[OwnerT]]]:
        """Iterate over all records by address, IPv4 first. Adopted by a new ledger they make the same ledger."""
        for family, records in self._records.items():
            for value in sorted(records):
                yield Address(family, value), Record(*records[value])

    def refusal(self, address: Address, range_name: str) -> IpamError | None:
        """Return why a range does not assign an address, in use or not; None if it does.

        The error is RangeDrainingError or AddressOutOfRangeError. Raises: RangeUnknownError.
        """
        asked = self.range(range_name)
        if asked.draining:
            return errors.RangeDrainingError(range_name=range_name)
        if address.value in self.given(range_name, address.family):
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

    def given(self, range_name: str, family: Family) -> IntervalSet:
        """Return all addresses of a family that a range assigns, in use or not."""
        return self._free_list(range_name, family).addresses

    def peek_free(self, range_name: str, family: Family, count: int) -> tuple[Address, ...]:
        """Return the next free addresses of a range in its search order, and change nothing.

        Raises what `claim_next` raises.
        """
        free_list = self._free_list(range_name, family)
        if free_list.closed:
            raise errors.RangeDrainingError(range_name=range_name)
        values = free_list.addresses.addresses(descending=self.range(range_name).descending)
        free = (_new(Address, (family, value)) for value in values if value not in self._records[family])
        found = tuple(islice(free, count))
        if not found:
            raise self._exhausted(free_list, range_name, family)
        return found

    # Changes

    def claim_next(self, range_name: str, family: Family, owner: OwnerT) -> Address:
        """Return the owner the next free address in the range's search order.

        RangeUnknownError, RangeDrainingError, FamilyMissingError, RangeFullError.
        """
        free_list = self._free_lists[family].get(range_name) or self._free_list(range_name, family)
        value = self._next(free_list, range_name, family)
        address = _new(Address, (family, value))
        records = self._records[family]
        if value in records:
            self._put(address, Record(owner, range_name))
        else:  # what `_put` comes to for a free address, without its general counting: nearly all calls come this way
            records[value] = (owner, range_name, None)
            free_list.used += 1
        return address

    def adopt(
        self,
        address: Address,
        owner: OwnerT | None,
        range_name: str | None,
        *,
        quarantined_until: datetime | None = None,
    ) -> None:
        """Enter the observed state, in place of the former record.

        A holder, None if it is not known, or a former one in quarantine.
        """
        self._put(address, Record(owner, range_name, quarantined_until))

    def free(self, address: Address) -> Record[OwnerT] | None:
        """Forget the record of an address, held or in quarantine; return the former record."""
        record = self._drop(address)
        if record is not None:
            for free_list in self._free_lists[address.family].values():
                if address.value in free_list.addresses:
                    free_list.put_back(address.value)
        return record

    # How

    def _put(self, address: Address, record: Record[OwnerT]) -> None:
        self._drop(address)
        self._records[address.family][address.value] = record
        self._count(address, record, 1)

    def _drop(self, address: Address) -> Record[OwnerT] | None:
        record = self.record(address)
        if record is not None:
            del self._records[address.family][address.value]
            self._count(address, record, -1)
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

    def _next(self, free_list: FreeList, range_name: str, family: Family) -> int:
        if free_list.closed:
            raise errors.RangeDrainingError(range_name=range_name)
        value = free_list.next_free()
        if value is None:
            raise self._exhausted(free_list, range_name, family)
        return value

    def _older(self, younger: Range) -> list[Range]:
        """Return the older ranges that overlap a range, oldest first."""
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
