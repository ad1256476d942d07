"""The ranges of one address space: age decides which of two overlapping ranges assigns an address.

The addresses in an overlap are the older range's alone, whichever range counts their holders.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fipop.ipam import errors
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.allocator import AddressPool, Allocator, OwnerT, RangeUsage, Usage
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet
from fipop.ipam.pool import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(AddressPool):
    """A pool of the space that was read from `source`. A draining range assigns nothing."""

    source: Pool
    created: datetime
    draining: bool = False

    @property
    def age(self) -> tuple[datetime, str]:
        """What the older of two ranges has less of: the time of its creation, then its name."""
        return self.created, self.name


class RangeAllocator(Allocator[OwnerT, Range]):
    """The ranges of one address space, and the users of its addresses."""

    def __init__(self) -> None:
        super().__init__()
        self._conflicts: dict[str, tuple[str, ...]] = {}
        """By range, until a range changes: whoever counts all ranges would compare each with each."""

    def conflicts(self, name: str) -> tuple[str, ...]:
        """Return the names of the older ranges, oldest first, that take addresses away from a range."""
        if name not in self._conflicts:
            self._conflicts[name] = tuple(older.name for older in self._older(self.pool(name)))
        return self._conflicts[name]

    def count(self, name: str) -> RangeUsage:
        """Count a range exactly, in constant time. Raises: RangeUnknownError."""
        ipv4, ipv6 = (self.usage(name, family) for family in Family)
        return RangeUsage(Usage(*map(sum, zip(ipv4, ipv6, strict=True))), ipv4, ipv6)

    def refusal(self, address: Address, name: str) -> IpamError | None:
        """Return why a range does not assign an address, in use or not; None if it does.

        The error is RangeDrainingError or AddressOutOfRangeError. Raises: RangeUnknownError.
        """
        asked = self.pool(name)
        if asked.draining:
            return errors.RangeDrainingError(range_name=name)
        if address.value in self.assigned(name, address.family):
            return None
        withheld = asked.source.why_withheld(address)
        older = (
            None if withheld else next(each.name for each in self._older(asked) if address in each.addresses)
        )
        return errors.AddressOutOfRangeError(
            address=format_address(address),
            range_name=name,
            pool_text=asked.source.text,
            reason=withheld or f'belongs to the older range "{older}", which overlaps it',
            older_range=older,
        )

    def peek_free(self, name: str, family: Family) -> Address:
        """Return the address that a range assigns next, and change nothing.

        Raises: RangeUnknownError, RangeDrainingError, FamilyMissingError, RangeFullError.
        """
        if self.pool(name).draining:
            raise errors.RangeDrainingError(range_name=name)
        found = super().peek_free(name, family)
        if found is None:
            raise self._exhausted(name, family)
        return found

    def _assignable(self, pool: Range) -> AddressSet:
        addresses = pool.addresses
        for older in self._older(pool):
            addresses -= older.addresses
        return addresses

    def _older(self, younger: Range) -> list[Range]:
        """Return the older ranges that overlap a range, oldest first."""
        older = (each for each in self._pools.values() if each.age < younger.age)
        return sorted((each for each in older if each.overlaps(younger)), key=lambda each: each.age)

    def _drop_free_lists(self, changed: Range) -> None:
        self._conflicts.clear()
        for each in (changed, *self._pools.values()):
            if each.overlaps(changed):
                super()._drop_free_lists(each)

    def _exhausted(self, name: str, family: Family) -> IpamError:
        source = self.pool(name).source
        if family in source.families:
            return errors.RangeFullError(range_name=name, family=family.label)
        families = tuple(each.label for each in source.families)
        return errors.FamilyMissingError(
            range_name=name, pool_text=source.text, family=family.label, families=families
        )
