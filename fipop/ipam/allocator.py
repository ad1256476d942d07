"""Which address has which users, and which one each pool assigns next.

The users of an address are kept in the order of their reasons, and the first one is its holder. An existing state is
never refused: an address can have several users that exclude each other, and it is free once the last of them left.
Nothing is assigned here: `peek_free` changes nothing, and `enter` records what is known, in whatever order it comes in.
All times are those of the caller. Not for several threads at once.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import RangeUnknownError
from fipop.ipam.intervals import AddressSet, IntervalSet

OwnerT = TypeVar("OwnerT", bound=Hashable)


class Reason(enum.IntEnum):
    """Why an address is in use. The lowest reason makes its user the holder."""

    RESERVED = 0
    """A reservation assigns it, or a guest cluster uses it."""
    CLAIMED = 1
    """A claim of it is under way."""
    NAMED = 2
    """A status names it."""
    WANTED = 3
    """Only a spec names it."""


class AddressUser(NamedTuple, Generic[OwnerT]):
    """One user of an address. Users sort by reason, then by owner, and an address has each such pair once."""

    reason: Reason
    owner: OwnerT
    pool: str = ""
    """The name of the pool that counts it, if it is the holder."""
    until: datetime | None = None
    """The end of its quarantine: then `owner` is the former owner. None if it has the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPool:
    """What a name assigns, and in which order."""

    name: str
    addresses: AddressSet
    descending: bool = False

    def overlaps(self, other: AddressPool) -> bool:
        """Return whether some address is in both."""
        return bool(self.addresses & other.addresses)


PoolT = TypeVar("PoolT", bound=AddressPool)


class Usage(NamedTuple):
    """How full a pool is; total = used + free + quarantined.

    An address counts once, at the pool that its holder names: as used or quarantined if that pool assigns it, else as
    `out_of_range`, which is not in the total.
    """

    used: int = 0
    free: int = 0
    quarantined: int = 0
    out_of_range: int = 0

    @property
    def total(self) -> int:
        """The capacity: all addresses that the pool assigns."""
        return self.used + self.free + self.quarantined


class RangeUsage(NamedTuple):
    """The usage of a range, whole and by family."""

    whole: Usage = Usage()
    ipv4: Usage = Usage()
    ipv6: Usage = Usage()


class Allocator(Generic[OwnerT, PoolT]):
    """The users of addresses, with a free list and counters for each pool and family.

    Free lists are made when they are first asked for. Then each counts the addresses of its own pool, or the
    addresses in use if these are fewer. So an edit of one pool costs nothing for the others.
    """

    def __init__(self) -> None:
        self._pools: dict[str, PoolT] = {}
        self._users: dict[Family, dict[int, tuple[AddressUser[OwnerT], ...]]] = {
            family: {} for family in Family
        }
        self._counted: dict[Family, Counter[str]] = {family: Counter() for family in Family}
        """How many addresses have a holder that names a pool."""
        self._free_lists: dict[Family, dict[str, _FreeList]] = {family: {} for family in Family}

    def set_pool(self, pool: PoolT) -> None:
        """Add a pool, or change the pool of that name. Users stay as they are."""
        if self._pools.get(pool.name) != pool:
            self.remove_pool(pool.name)
            self._pools[pool.name] = pool
            self._drop_free_lists(pool)

    def remove_pool(self, name: str) -> None:
        """Forget a pool. Its users stay, and are not counted until it is added again."""
        former = self._pools.pop(name, None)
        if former is not None:
            self._drop_free_lists(former)

    def pool(self, name: str) -> PoolT:
        """Return a pool. Raises: RangeUnknownError."""
        found = self._pools.get(name)
        if found is None:
            raise RangeUnknownError(range_name=name)
        return found

    def assigned(self, name: str, family: Family) -> IntervalSet:
        """Return all addresses of a family that a pool assigns, in use or not. Raises: RangeUnknownError."""
        return self._free_list(name, family).addresses

    def usage(self, name: str, family: Family) -> Usage:
        """Count one family of a pool. Raises: RangeUnknownError."""
        free_list = self._free_list(name, family)
        used, quarantined = free_list.used, free_list.quarantined
        free = free_list.addresses.count - used - quarantined - free_list.foreign
        return Usage(used, free, quarantined, self._counted[family][name] - used - quarantined)

    def users(self, address: Address) -> tuple[AddressUser[OwnerT], ...]:
        """Return the users of an address, the holder first."""
        return self._users[address.family].get(address.value, ())

    def addresses(self) -> Iterator[Address]:
        """Iterate over the addresses in use, in their order."""
        for family, users in self._users.items():
            for value in sorted(users):
                yield Address(family, value)

    def peek_free(self, name: str, family: Family) -> Address | None:
        """Return the address that a pool assigns next, and change nothing; None if no address is free.

        Raises: RangeUnknownError.
        """
        value = self._free_list(name, family).peek()
        return None if value is None else Address(family, value)

    def free_addresses(self, name: str, family: Family) -> Iterator[Address]:
        """Iterate over the free addresses of a pool in its order. Raises: RangeUnknownError."""
        values = self.assigned(name, family).addresses(descending=self.pool(name).descending)
        return (Address(family, value) for value in values if value not in self._users[family])

    def enter(self, address: Address, user: AddressUser[OwnerT]) -> None:
        """Add a user to an address, in place of one with the same reason and owner."""
        before = self._users[address.family].get(address.value, ())
        others = [each for each in before if each.owner != user.owner or each.reason is not user.reason]
        self._replace(address, before, tuple(sorted([*others, user])) if others else (user,))

    def leave(self, address: Address, user: AddressUser[OwnerT]) -> bool:
        """Remove exactly this user from an address; return whether the address is free because of that."""
        before = self.users(address)
        if user not in before:
            return False
        self._replace(address, before, tuple(each for each in before if each != user))
        return len(before) == 1

    def _replace(
        self,
        address: Address,
        before: tuple[AddressUser[OwnerT], ...],
        after: tuple[AddressUser[OwnerT], ...],
    ) -> None:
        family, value = address
        counted = self._counted[family]
        if before:
            counted[before[0].pool] -= 1
        if after:
            self._users[family][value] = after
            counted[after[0].pool] += 1
        else:
            del self._users[family][value]
        for free_list in self._free_lists[family].values():
            if value in free_list.addresses:
                if before:
                    free_list.count(before[0], -1)
                if after:
                    free_list.count(after[0], 1)
                else:
                    free_list.put_back(value)

    def _assignable(self, pool: PoolT) -> AddressSet:
        """Return what a pool assigns beside the other pools."""
        return pool.addresses

    def _free_list(self, name: str, family: Family) -> _FreeList:
        found = self._free_lists[family].get(name)
        if found is None:
            pool = self.pool(name)
            addresses = self._assignable(pool)
            for each, free_lists in self._free_lists.items():
                free_lists[name] = _FreeList(pool, addresses.of(each), self._users[each])
            found = self._free_lists[family][name]
        return found

    def _drop_free_lists(self, changed: PoolT) -> None:
        """Forget the free lists that a change of a pool concerns."""
        for free_lists in self._free_lists.values():
            free_lists.pop(changed.name, None)


class _FreeList:
    """The addresses of one family that a pool assigns: the next free one, and counters.

    It walks over the addresses once, lazily, and keeps a heap of those that were released behind it. So the next free
    address costs constant memory, whatever the size of the pool. `users` are those of all addresses of the family.
    `used` and `quarantined` count holders of this pool, `foreign` those of others.
    """

    def __init__(
        self, pool: AddressPool, addresses: IntervalSet, users: Mapping[int, tuple[AddressUser[OwnerT], ...]]
    ) -> None:
        self.addresses = addresses
        self.used = self.quarantined = self.foreign = 0
        self._name = pool.name
        self._users: Mapping[int, object] = users
        # Keys count down in a descending list, so that "before" means "smaller" in both directions.
        self._direction = -1 if pool.descending else 1
        self._ahead = addresses.addresses(descending=pool.descending)
        self._next = next(self._ahead, None)
        self._behind: list[int] = []
        self._in_behind: set[int] = set()
        for value in users if len(users) < addresses.count else addresses.addresses():
            if value in users and value in addresses:
                self.count(users[value][0], 1)

    def count(self, holder: AddressUser[OwnerT], step: int) -> None:
        """Count a holder of one of the addresses."""
        if holder.pool != self._name:
            self.foreign += step
        elif holder.until is None:
            self.used += step
        else:
            self.quarantined += step

    def peek(self) -> int | None:
        """Return the next free address; None if there is none."""
        while self._behind:
            value = self._behind[0] * self._direction
            if value not in self._users:
                return value
            self._in_behind.discard(heappop(self._behind))
        value_ahead = self._next
        while value_ahead is not None and value_ahead in self._users:
            value_ahead = next(self._ahead, None)
        self._next = value_ahead
        return value_ahead

    def put_back(self, value: int) -> None:
        """Make a released address available again; one that the walk has not passed yet needs no note."""
        key = value * self._direction
        is_passed = self._next is None or key < self._next * self._direction
        if is_passed and key not in self._in_behind:
            self._in_behind.add(key)
            heappush(self._behind, key)
