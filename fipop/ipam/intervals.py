"""Sets of addresses as sorted intervals: exact, and no bigger than the text that described them.

"Never .0 and .255" would cut a /8 into 65,536 pieces. So every interval records which of its addresses it means: the
ordinary ones, the ends (last octet 0 or 255), or all. Sets then stay exact under intersection and difference, and their
memory depends on how many parts were written, never on how many addresses they hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from fipop.ipam.addresses import Address, Family

ORDINARY = 1
ENDS = 2
ALL = ORDINARY | ENDS
_BLOCK = 256


def kind_of(value: int) -> int:
    """Return whether an address ends in .0 or .255 (ENDS) or not (ORDINARY)."""
    return ENDS if value % _BLOCK in (0, _BLOCK - 1) else ORDINARY


class Interval(NamedTuple):
    """The addresses of `kind` from `first` to `last`, both included."""

    first: int
    last: int
    kind: int = ALL

    @property
    def size(self) -> int:
        """How many addresses it means."""
        span = self.last + 1 - self.first
        if self.kind == ALL:
            return span
        ends = _ends_below(self.last + 1) - _ends_below(self.first)
        return ends if self.kind == ENDS else span - ends

    def has(self, value: int) -> bool:
        """Return whether it means an address that lies between its bounds."""
        return self.kind == ALL or self.kind == kind_of(value)

    def runs(self, *, descending: bool) -> Iterator[Iterable[int]]:
        """Yield its addresses in order, as lazy runs."""
        if self.kind == ALL:
            whole = range(self.first, self.last + 1)
            yield reversed(whole) if descending else whole
            return
        blocks = range(self.first - self.first % _BLOCK, self.last + 1, _BLOCK)
        for block in reversed(blocks) if descending else blocks:
            low, high = max(self.first, block), min(self.last, block + _BLOCK - 1)
            run: Sequence[int] = range(max(low, block + 1), min(high, block + _BLOCK - 2) + 1)
            if self.kind == ENDS:
                run = [end for end in (block, block + _BLOCK - 1) if low <= end <= high]
            yield reversed(run) if descending else run


def _ends_below(value: int) -> int:
    blocks, rest = divmod(value, _BLOCK)
    return 2 * blocks + (rest > 0)


@dataclass(frozen=True, slots=True)
class IntervalSet:
    """An immutable set of integers; build it with `of`, combine it with `&` and `-`."""

    intervals: tuple[Interval, ...] = ()
    count: int = field(init=False, compare=False)
    _firsts: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", sum(interval.size for interval in self.intervals))
        object.__setattr__(self, "_firsts", tuple(interval.first for interval in self.intervals))

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]], kind: int = ALL) -> IntervalSet:
        """Build the set of all addresses of `kind` in (first, last) pairs, which can overlap and come in any order."""
        merged: list[Interval] = []
        for first, last in sorted(pairs):
            if merged and first <= merged[-1].last + 1:
                merged[-1] = Interval(merged[-1].first, max(last, merged[-1].last), kind)
            else:
                merged.append(Interval(first, last, kind))
        return cls(tuple(interval for interval in merged if interval.size))

    def __contains__(self, value: int) -> bool:
        index = bisect_right(self._firsts, value) - 1
        if index < 0:
            return False
        interval = self.intervals[index]
        return value <= interval.last and interval.has(value)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def meets(self, first: int, last: int) -> bool:
        """Return whether it has an address from `first` to `last`."""
        index = bisect_right(self._firsts, last) - 1
        while index >= 0 and self.intervals[index].last >= first:
            found = self.intervals[index]
            if Interval(max(found.first, first), min(found.last, last), found.kind).size:
                return True
            index -= 1
        return False

    def __and__(self, other: IntervalSet) -> IntervalSet:
        return (
            self._combine(other, lambda mine, theirs: mine & theirs) if self._near(other) else IntervalSet()
        )

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        return self._combine(other, lambda mine, theirs: mine & ~theirs) if self._near(other) else self

    def __or__(self, other: IntervalSet) -> IntervalSet:
        return self._combine(other, lambda mine, theirs: mine | theirs)

    def addresses(self, *, descending: bool = False) -> Iterator[int]:
        """Iterate over all addresses in order, in constant memory."""
        intervals = reversed(self.intervals) if descending else self.intervals
        return chain.from_iterable(
            chain.from_iterable(each.runs(descending=descending) for each in intervals)
        )

    def _near(self, other: IntervalSet) -> bool:
        """Rule out cheaply that two sets meet: most ranges of a space lie apart."""
        mine, theirs = self.intervals, other.intervals
        return bool(mine and theirs) and mine[0].first <= theirs[-1].last and theirs[0].first <= mine[-1].last

    def _combine(self, other: IntervalSet, keep: Callable[[int, int], int]) -> IntervalSet:
        """Sweep over the bounds of both sets; between two bounds nothing changes."""
        both = (*self.intervals, *other.intervals)
        bounds = sorted({each.first for each in both} | {each.last + 1 for each in both})
        stretches = zip(bounds, bounds[1:], self._kinds(bounds), other._kinds(bounds), strict=False)
        result: list[Interval] = []
        for first, after, mine, theirs in stretches:
            kind = keep(mine, theirs)
            if result and result[-1].kind == kind and result[-1].last == first - 1:
                result[-1] = Interval(result[-1].first, after - 1, kind)
            elif kind:
                result.append(Interval(first, after - 1, kind))
        return IntervalSet(tuple(interval for interval in result if interval.size))

    def _kinds(self, bounds: list[int]) -> Iterator[int]:
        """Yield for each bound which addresses of the stretch that begins there are in this set."""
        index, size = 0, len(self.intervals)
        for bound in bounds:
            while index < size and self.intervals[index].last < bound:
                index += 1
            yield self.intervals[index].kind if index < size and self.intervals[index].first <= bound else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressSet:
    """An immutable set of addresses of both families."""

    v4: IntervalSet = IntervalSet()
    v6: IntervalSet = IntervalSet()

    def of(self, family: Family) -> IntervalSet:
        """Return the part of one family."""
        return self.v4 if family is Family.IPV4 else self.v6

    def __contains__(self, address: Address) -> bool:
        return address.value in self.of(address.family)

    def __bool__(self) -> bool:
        return bool(self.v4 or self.v6)

    def __or__(self, other: AddressSet) -> AddressSet:
        return AddressSet(v4=self.v4 | other.v4, v6=self.v6 | other.v6)

    def __and__(self, other: AddressSet) -> AddressSet:
        return AddressSet(v4=self.v4 & other.v4, v6=self.v6 & other.v6)

    def __sub__(self, other: AddressSet) -> AddressSet:
        return AddressSet(v4=self.v4 - other.v4, v6=self.v6 - other.v6)
