"""The ranges as they can be read, each with the ledger of its address space.

A range never changes its address space. One that was deleted and created again in another space gives out nothing as
long as addresses of its name are used in a space that it had: they may be addresses of the same network.
"""

from __future__ import annotations

from collections import Counter

from fipop.api.models import FloatingIPRange, Reservation, SearchOrder
from fipop.errors import AddressSpaceChangedError, IpamError, RangeUnknownError
from fipop.ipam.addresses import Address, Family
from fipop.ipam.ledger import Ledger, Range, RangeUsage
from fipop.ipam.pool import MaskedPart, Pool, parse_pool
from fipop.state.allocation_entries import OwnerKey, Space


class RangeIndex:
    """What the ranges can give out, and why some cannot."""

    def __init__(self) -> None:
        self._spaces: dict[str, Space] = {}
        self._ranges: dict[str, FloatingIPRange] = {}
        self._pools: dict[str, Pool] = {}
        self._problems: dict[str, IpamError] = {}
        self._used_in: dict[str, Counter[str]] = {}
        """How many addresses of a range's name are used in which spaces."""

    def space(self, name: str) -> Space:
        """Give what is known of an address space."""
        space = self._spaces.get(name)
        if space is None:  # a ledger is too much to make one at every look
            space = self._spaces[name] = Space()
        return space

    def change(self, old: FloatingIPRange | None, new: FloatingIPRange | None) -> bool:
        """Enter, change or forget a range; whether its name stands for another space, or for none, by now."""
        is_moved = old is None or new is None or old.address_space != new.address_space
        if old is not None and is_moved:
            self.space(old.address_space).ledger.remove_range(old.name)
            del self._ranges[old.name]
        if new is not None:
            self._ranges[new.name] = new
            self._enter(new)
        elif old is not None:
            self._pools.pop(old.name, None)
            self._problems.pop(old.name, None)
        return is_moved

    def use(self, range_name: str, space: str, count: int) -> None:
        """Count addresses of a range's name in a space: in another than the range's own they keep it shut."""
        used = self._used_in.setdefault(range_name, Counter())
        was_used = used[space] > 0
        used[space] += count
        if not used[space]:
            del used[space]
        found = self._ranges.get(range_name)
        if found is not None and found.address_space != space and was_used != (space in used):
            self._enter(found)

    def ledger_of(self, range_name: str) -> Ledger[OwnerKey]:
        """Give the ledger of a range's space; RangeUnknownError where it went while somebody worked with it."""
        space = self.space_of(range_name)
        if space is None:
            raise RangeUnknownError(range_name=range_name)
        return self.space(space).ledger

    def problem_of(self, range_name: str) -> IpamError | None:
        """Say why a range cannot be read; None where it can."""
        return self._problems.get(range_name)

    def masked_parts(self, range_name: str) -> tuple[MaskedPart, ...]:
        """Give the CIDRs of a range that were written with host bits."""
        pool = self._pools.get(range_name)
        return pool.masked if pool is not None else ()

    def space_of(self, range_name: str) -> str | None:
        """Give the address space of a range."""
        found = self._ranges.get(range_name)
        return found.address_space if found is not None else None

    def families(self, range_name: str) -> frozenset[Family]:
        """Give the families that a range has addresses of."""
        pool = self._pools.get(range_name)
        return frozenset(pool.families) if pool is not None else frozenset()

    def has(self, range_name: str, address: Address) -> bool:
        """Whether an address is of a range that can be read."""
        pool = self._pools.get(range_name)
        return pool is not None and address in pool

    def sharing(self, range_name: str) -> tuple[FloatingIPRange, ...]:
        """Give a range, and those of its space that have some of its addresses too."""
        pool, space = self._pools.get(range_name), self.space_of(range_name)
        found = (self._ranges[name] for name, other in self._pools.items() if pool and pool.overlaps(other))
        return tuple(each for each in found if each.address_space == space)

    def may_get(self, range_name: str, address: Address) -> bool:
        """Whether who waits for an address of a range, not known yet where it is "", might be given this one."""
        pool = self._pools.get(range_name)
        return any(address in each for each in (self._pools.values() if pool is None else (pool,)))

    def why_refused(self, range_name: str, address: Address) -> IpamError | None:
        """Say why a range would not give out this address, whoever holds it; None where it would."""
        return self.ledger_of(range_name).refusal(address, range_name)

    def is_full(self, range_name: str) -> bool:
        """Whether a range has nothing for a new guest, which gets an address of the first family that there is."""
        if range_name not in self._pools:
            return True
        snapshot = self.ledger_of(range_name).snapshot(range_name)
        return (snapshot.ipv4 if Family.IPV4 in self.families(range_name) else snapshot.ipv6).free == 0

    def reservations_of(self, address: Address) -> tuple[Reservation, ...]:
        """Give the reservations of an address, in whatever space."""
        entries = (space.entries.get(address) for space in self._spaces.values())
        return tuple(each.reservation for each in entries if each and each.reservation)

    def conflicts(self, range_name: str) -> tuple[str, ...]:
        """Name the older ranges that take addresses away from this one."""
        return self.ledger_of(range_name).conflicts(range_name) if range_name in self._pools else ()

    def usage(self, range_name: str) -> RangeUsage | None:
        """Count a range; None where it cannot be read."""
        return self.ledger_of(range_name).snapshot(range_name) if range_name in self._pools else None

    def _enter(self, new: FloatingIPRange) -> None:
        ledger = self.space(new.address_space).ledger
        try:
            pool = self._read_pool(new)
        except IpamError as error:
            # A range that cannot be read gives out nothing; what it gave out before stays held.
            self._problems[new.name] = error
            self._pools.pop(new.name, None)
            ledger.remove_range(new.name)
            return
        self._problems.pop(new.name, None)
        self._pools[new.name] = pool
        ledger.set_range(
            Range(
                name=new.name,
                pool=pool,
                created=new.meta.created,
                descending=new.search_order is SearchOrder.DESC,
                draining=new.draining or new.meta.deleting,
            )
        )

    def _read_pool(self, new: FloatingIPRange) -> Pool:
        former = min(self._used_in.get(new.name, Counter()).keys() - {new.address_space}, default=None)
        if former is not None:
            raise AddressSpaceChangedError(range_name=new.name, former=former, space=new.address_space)
        return parse_pool(
            new.iprange,
            exclude=new.exclude,
            skip_end_ips=new.skip_end_ips,
            avoid_buggy_ips=new.avoid_buggy_ips,
        )
