"""The free addresses of one range and family, in its search order.

A free list walks once over its addresses, lazily, and keeps a heap of those that were released behind it. So the next
free address is at hand in constant memory, whatever the size of the pool: only what was released costs any.
"""

from __future__ import annotations

from collections.abc import Container
from heapq import heappop, heappush

from fipop.ipam.intervals import IntervalSet

_BEYOND = 1 << 129


class FreeList:
    """The addresses of one family that a range assigns, and its counters.

    `taken` holds all addresses of the family that have a record, of whatever range. `used` and `quarantined` count
    records of this range in `addresses`, `outside` those beside them, `foreign` records of others in `addresses`. A
    `closed` list is there to be counted only.
    """

    def __init__(
        self, addresses: IntervalSet, taken: Container[int], *, descending: bool, closed: bool
    ) -> None:
        self.addresses = addresses
        self.closed = closed
        self.used = self.quarantined = self.outside = self.foreign = 0
        self._taken = taken
        # Keys count down in a descending list, so that "before" means "smaller" in both directions.
        self._direction = -1 if descending else 1
        self._ahead = addresses.addresses(descending=descending)
        self._position = -_BEYOND * self._direction
        self._behind: list[int] = []
        self._in_behind: set[int] = set()

    @property
    def free(self) -> int:
        """How many addresses can be assigned now."""
        return self.addresses.count - self.used - self.quarantined - self.foreign

    def next_free(self) -> int | None:
        """Take the next free address off the list; the caller records it, or puts it back. None: nothing is free."""
        while self._behind:
            key = heappop(self._behind)
            self._in_behind.discard(key)
            value = key * self._direction
            if value not in self._taken:
                return value
        for value in self._ahead:
            if value not in self._taken:
                self._position = value
                return value
        self._position = _BEYOND * self._direction
        return None

    def put_back(self, value: int) -> None:
        """Make an address of the list available again; one that the walk has not met yet needs no note."""
        key = value * self._direction
        if key <= self._position * self._direction and key not in self._in_behind:
            self._in_behind.add(key)
            heappush(self._behind, key)
