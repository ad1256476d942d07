"""The ranges that can be read, each in the allocator of its address space.

A range never changes its address space. One that was deleted and created again in another space assigns nothing as
long as addresses of its name are used in a space that it had: they may be addresses of the same network.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from fipop.api.models import FloatingIPRange, SearchOrder
from fipop.ipam.addresses import Address, Family
from fipop.ipam.allocator import RangeUsage
from fipop.ipam.errors import AddressSpaceChangedError, IpamError, RangeUnknownError
from fipop.ipam.pool import MaskedPart, Pool, parse_pool
from fipop.ipam.ranges import Range, RangeAllocator

OwnerKey = tuple[str, str]


class RangeIndex:
    """What the ranges can assign, and why some cannot."""

    def __init__(self) -> None:
        self.opened: Callable[[str], None] = lambda _name: None
        """Called with the name of a range that assigns again."""
        self._spaces: defaultdict[str, RangeAllocator[OwnerKey]] = defaultdict(RangeAllocator)
        self._ranges: dict[str, FloatingIPRange] = {}
        self._pools: dict[str, Pool] = {}
        self._problems: dict[str, IpamError] = {}
        self._used_in: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """How many addresses of a range's name are used in which spaces."""

    def space(self, name: str) -> RangeAllocator[OwnerKey]:
        """Return the allocator of an address space."""
        return self._spaces[name]

    def spaces(self) -> tuple[str, ...]:
        """Return the names of the known address spaces."""
        return tuple(self._spaces)

    def change(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> bool:
        """Enter, change or forget a range; return whether its name means another space, or none, because of that."""
        is_moved = old is None or new is None or old.address_space != new.address_space
        if old is not None and is_moved:
            self._forget(old)
            del self._ranges[old.name]
        if new is not None:
            self._ranges[new.name] = new
            self._enter(new)
        return is_moved

    def use(self, range_name: str, space: str, count: int) -> None:
        """Count addresses of a range's name in a space: in another than the range's own they keep it closed."""
        used = self._used_in[range_name]
        was_used = used[space] > 0
        used[space] += count
        if not used[space]:
            del used[space]
        found = self._ranges.get(range_name)
        if found is not None and found.address_space != space and was_used != (space in used):
            was_closed = range_name in self._problems
            self._enter(found)
            if was_closed and range_name in self._pools:
                self.opened(range_name)

    def allocator_of(self, range_name: str) -> RangeAllocator[OwnerKey]:
        """Return the allocator of a range's space; RangeUnknownError if the range is gone."""
        space = self.space_of(range_name)
        if space is None:
            raise RangeUnknownError(range_name=range_name)
        return self.space(space)

    def peek_free(self, range_name: str, family: Family) -> Address:
        """Return the address that a range assigns next, and change nothing. IpamError says why there is none."""
        return self.allocator_of(range_name).peek_free(range_name, family)

    def problem_of(self, range_name: str) -> IpamError | None:
        """Return why a range cannot be read; None if it can."""
        return self._problems.get(range_name)

    def masked_parts(self, range_name: str) -> tuple[MaskedPart, ...]:
        """Return the CIDRs of a range that were written with host bits."""
        pool = self._pools.get(range_name)
        return pool.masked if pool is not None else ()

    def space_of(self, range_name: str) -> str | None:
        """Return the address space of a range."""
        found = self._ranges.get(range_name)
        return found.address_space if found is not None else None

    def families(self, range_name: str) -> frozenset[Family]:
        """Return the families that a range has addresses of."""
        pool = self._pools.get(range_name)
        return frozenset(pool.families) if pool is not None else frozenset()

    def has(self, range_name: str, address: Address) -> bool:
        """Return whether an address is of a range that can be read."""
        pool = self._pools.get(range_name)
        return pool is not None and address in pool

    def sharing(self, range_name: str) -> tuple[FloatingIPRange, ...]:
        """Return a range, and those of its space that have some of its addresses too."""
        pool, space = self._pools.get(range_name), self.space_of(range_name)
        found = (
            self._ranges[name]
            for name, other in self._pools.items()
            if pool and pool.addresses & other.addresses
        )
        return tuple(each for each in found if each.address_space == space)

    def may_get(self, range_name: str, address: Address) -> bool:
        """Return whether this address could be assigned from a range; from any range if the name is unknown or ""."""
        pool = self._pools.get(range_name)
        return any(address in each for each in (self._pools.values() if pool is None else (pool,)))

    def why_refused(self, range_name: str, address: Address) -> IpamError | None:
        """Return why a range does not assign this address, in use or not; None if it does."""
        problem = self._problems.get(range_name)
        return problem or self.allocator_of(range_name).refusal(address, range_name)

    def is_full(self, range_name: str, family: Family) -> bool:
        """Return whether a range has no free address of a family; True also if it has none at all."""
        if range_name not in self._pools:
            return True
        return self.allocator_of(range_name).usage(range_name, family).free == 0

    def conflicts(self, range_name: str) -> tuple[str, ...]:
        """Return the names of the older ranges that take addresses away from this one."""
        return self.allocator_of(range_name).conflicts(range_name) if range_name in self._pools else ()

    def usage(self, range_name: str) -> RangeUsage | None:
        """Count a range; None if it cannot be read."""
        return self.allocator_of(range_name).count(range_name) if range_name in self._pools else None

    def _forget(self, former: FloatingIPRange) -> None:
        """Assign nothing from a range any more; what it assigned before stays held."""
        self._pools.pop(former.name, None)
        self._problems.pop(former.name, None)
        self.space(former.address_space).remove_pool(former.name)

    def _enter(self, new: FloatingIPRange) -> None:
        try:
            pool = self._read_pool(new)
        except IpamError as error:
            self._forget(new)
            self._problems[new.name] = error
            return
        self._problems.pop(new.name, None)
        self._pools[new.name] = pool
        self.space(new.address_space).set_pool(
            Range(
                name=new.name,
                addresses=pool.addresses,
                source=pool,
                created=new.meta.created,
                descending=new.search_order is SearchOrder.DESC,
                draining=new.draining or new.meta.deleting,
            )
        )

    def _read_pool(self, new: FloatingIPRange) -> Pool:
        former = min(self._used_in[new.name].keys() - {new.address_space}, default=None)
        if former is not None:
            raise AddressSpaceChangedError(range_name=new.name, former=former, space=new.address_space)
        return parse_pool(
            new.iprange,
            exclude=new.exclude,
            skip_end_ips=new.skip_end_ips,
            avoid_buggy_ips=new.avoid_buggy_ips,
        )
