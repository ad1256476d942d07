"""Which addresses each range assigns, and in which order. Of overlapping ranges of one space, the oldest assigns."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from fipop.ipam import errors
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet
from fipop.ipam.pool import Pool

MOST_NAMED = 5
"""How many older ranges, or parts of a pool, a message names."""
OVERLAP_REMEDY = (
    "Change spec.iprange, or create the range in another addressSpace if its network is another one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The pool of an address space that a name stands for. A draining range assigns nothing new."""

    name: str
    space: str
    pool: Pool
    created: datetime
    descending: bool = False
    draining: bool = False

    @property
    def age(self) -> tuple[datetime, str]:
        """What the older of two ranges has less of: the time of its creation, then its name."""
        return self.created, self.name


class RangeTable:
    """The ranges of all address spaces that can be read."""

    def __init__(self) -> None:
        self._ranges: dict[str, Range] = {}
        self._assigned: dict[str, AddressSet] = {}
        self._searches: dict[tuple[str, Family], _Search] = {}
        self._all: AddressSet | None = None

    def enter(self, new: Range) -> None:
        """Add a range, or change the range of that name."""
        self._ranges[new.name] = new
        self._changed()

    def remove(self, name: str) -> None:
        """Forget a range."""
        if self._ranges.pop(name, None) is not None:
            self._changed()

    def get(self, name: str) -> Range | None:
        """Return a range."""
        return self._ranges.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all ranges."""
        return tuple(self._ranges)

    def all(self) -> tuple[Range, ...]:
        """Return all ranges, the oldest first."""
        return tuple(sorted(self._ranges.values(), key=lambda each: each.age))

    def all_addresses(self) -> AddressSet:
        """Return the addresses of all pools, of whatever space."""
        if self._all is None:
            self._all = AddressSet()
            for each in self._ranges.values():
                self._all |= each.pool.addresses
        return self._all

    def older(self, name: str) -> list[str]:
        """Return the older ranges that take addresses away from a range, the oldest first."""
        mine = self._ranges[name]
        return [each.name for each in self.all() if each.age < mine.age and _overlap(each, mine)]

    def assigned(self, name: str) -> AddressSet:
        """Return all addresses that a range assigns, in use or not."""
        if name not in self._assigned:
            addresses = self._ranges[name].pool.addresses
            for older in self.older(name):
                addresses -= self._ranges[older].pool.addresses
            self._assigned[name] = addresses
        return self._assigned[name]

    def refusal(self, name: str, address: Address) -> IpamError | None:
        """Return why a range does not assign an address, in use or not; None if it does."""
        found = self._ranges[name]
        if found.draining:
            return errors.RangeDrainingError(range_name=name)
        if address in self.assigned(name):
            return None
        reason: str | None = found.pool.why_withheld(address)
        if reason is None:
            older = next(each for each in self.older(name) if address in self._ranges[each].pool)
            reason = f'belongs to the older range "{older}", which overlaps it'
        return errors.AddressOutOfRangeError(
            address=format_address(address),
            range_name=name,
            pool_text=found.pool.text,
            reason=reason,
        )

    def next_free(
        self, name: str, family: Family, in_use: Container[Address], freed: int
    ) -> Address | IpamError:
        """Return the first address of a range, in its order, that is not in use; or why there is none.

        The search goes on where the last one ended, as long as `freed`, which counts the addresses of any space that
        ceased to be in use, is the same.
        """
        found = self._ranges[name]
        if found.draining:
            return errors.RangeDrainingError(range_name=name)
        search = self._searches.get((name, family))
        if search is None or search.freed != freed:
            addresses = self.assigned(name).of(family).addresses(descending=found.descending)
            search = self._searches[name, family] = _Search(family, addresses, freed)
        address = search.find(in_use)
        if address is not None:
            return address
        lack = self.describe_lack(name, family)
        if family in found.pool.families:
            return errors.RangeFullError(range_name=name, family=family.label, lack=lack)
        families = tuple(each.label for each in found.pool.families)
        return errors.FamilyMissingError(
            range_name=name, pool_text=found.pool.text, family=family.label, families=families, lack=lack
        )

    def describe_lack(self, name: str, family: Family) -> str:
        """Return why a range assigns no address of a family of its text, and the remedy; "" if it assigns any."""
        pool = self._ranges[name].pool
        if not pool.written.of(family) or self.assigned(name).of(family):
            return ""
        if pool.addresses.of(family):
            older = ", ".join(errors.quote(each) for each in self.older(name)[:MOST_NAMED])
            return f"all its {family.label} addresses are those of older ranges: {older}. {OVERLAP_REMEDY}"
        if not (pool.written - pool.excluded).of(family):
            return f"all its {family.label} addresses are excluded. Correct spec.exclude"
        return (
            f"all its {family.label} addresses are excluded, ends of CIDRs, or end in .0 or .255. "
            "Correct spec.iprange, or see skipEndIPs and avoidBuggyIPs"
        )

    def _changed(self) -> None:
        self._assigned.clear()
        self._searches.clear()
        self._all = None


class _Search:
    """Goes once over the addresses of a range, without a list of them."""

    def __init__(self, family: Family, values: Iterator[int], freed: int) -> None:
        self.freed = freed
        self._addresses = (Address(family, value) for value in values)
        self._next = next(self._addresses, None)

    def find(self, in_use: Container[Address]) -> Address | None:
        """Return the next address that is not in use, and stay there; None if there is none."""
        while self._next is not None and self._next in in_use:
            self._next = next(self._addresses, None)
        return self._next


def _overlap(one: Range, other: Range) -> bool:
    return one.space == other.space and bool(one.pool.addresses & other.pool.addresses)


class AddressCounts(NamedTuple):
    """How full a range is; total = used + free + quarantined.

    An address counts at the range that its reservation names: as used or quarantined if that range assigns it, else as
    `out_of_range`, which is not in the total.
    """

    used: int = 0
    free: int = 0
    quarantined: int = 0
    out_of_range: int = 0

    @property
    def total(self) -> int:
        """The capacity: all addresses that the range assigns."""
        return self.used + self.free + self.quarantined

    def counts(self) -> dict[str, int]:
        """Return all counts by their names, the total first."""
        return {"total": self.total, **self._asdict()}


class RangeUsage(NamedTuple):
    """The usage of a range, whole and by family."""

    whole: AddressCounts = AddressCounts()
    ipv4: AddressCounts = AddressCounts()
    ipv6: AddressCounts = AddressCounts()
