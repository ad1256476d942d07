"""A range as a map of its addresses: block by block, and a block address by address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network
from itertools import islice

from fipop.api.objects import AddressCounts
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.intervals import Interval, IntervalSet
from fipop.ipam.ranges import Range
from fipop.report.addresses import AddressState, classify, find_having
from fipop.report.snapshot import Snapshot

CELLS = 256
"""A block that is shown address by address has so many at most."""
_SIZES = (1 << 8, 1 << 16, 1 << 24)
_OPEN_AT_ONCE = 4


class CellState(StrEnum):
    """What an address of a map is."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"
    REPORTED = "reported"
    """A guest cluster uses it, and no floating IP has it: it counts as quarantined."""
    EXCLUDED = "excluded"
    """By the range; or the range is draining."""
    END = "end"
    """A network or broadcast address, .0 or .255, which the range leaves out."""
    OTHER_RANGE = "other-range"
    """Of the pool, but an older range assigns it, or it is held from another range."""
    OUTSIDE = "outside"
    """Of the block, and none of the range's text."""
    OUT_OF_RANGE = "out-of-range"
    """Held from this range, which no longer assigns it."""
    CONFLICT = "conflict"
    """Two floating IPs have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One address, and its `owner`; "" if it has none."""

    address: str
    state: CellState
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A CIDR in which the range has addresses, and the usage of those that the range can assign."""

    cidr: str
    usage: AddressCounts
    cells: tuple[Cell, ...] = ()
    """Its addresses one by one; empty if it is not opened."""

    @property
    def level(self) -> int:
        """How full it is in tenths: more than nothing is at least 1, and only what is full is 10."""
        percent = self.usage.percent
        if percent >= 100:
            return 10
        return min(9, max(1, round(percent / 10))) if percent else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMap:
    """The IPv4 addresses of a range, or of one block of it, as at most CELLS blocks."""

    inside: str
    """The block; "" for the whole range."""
    blocks: tuple[Block, ...]

    @property
    def is_open(self) -> bool:
        """Whether the addresses are shown one by one."""
        return any(each.cells for each in self.blocks)


def draw_map(snapshot: Snapshot, range_name: str, cidr: str = "") -> RangeMap | None:
    """Draw the map of a range, or of one block of it; None if the range cannot be read.

    Raises ValueError if `cidr` is no block of a map.
    """
    found = snapshot.inventory.pools.get(range_name)
    if found is None:
        return None
    board, span = _Board(snapshot, found), _parse_cidr(cidr) if cidr else None
    size = board.size_for(span)
    numbers = list(board.numbers(size, span))
    is_open = size == _SIZES[0] and len(numbers) <= _OPEN_AT_ONCE
    return RangeMap(inside=cidr, blocks=tuple(board.blocks(size, numbers, is_open=is_open)))


class _Board:
    """What is known of the addresses of one range, sorted for drawing."""

    def __init__(self, snapshot: Snapshot, found: Range) -> None:
        self._snapshot = snapshot
        self._range = found
        self._assigned = snapshot.inventory.pools.assigned(found.name)

    def size_for(self, span: Interval | None) -> int:
        """Choose the smallest blocks of which there are not too many."""
        sizes = [size for size in _SIZES if span is None or size < span.size] or [_SIZES[0]]
        few = (size for size in sizes if len(list(islice(self.numbers(size, span), CELLS + 1))) <= CELLS)
        return next(few, sizes[-1])

    def numbers(self, size: int, span: Interval | None) -> Iterator[int]:
        """Yield the numbers of the blocks of a size in which the range's text has addresses, in their order."""
        last = -1
        for each in self._range.pool.written.of(Family.IPV4).intervals:
            first, end = each.first, each.last
            if span is not None:
                first, end = max(first, span.first), min(end, span.last)
            for number in range(max(first // size, last + 1), end // size + 1) if first <= end else ():
                yield number
                last = number

    def blocks(self, size: int, numbers: Iterable[int], *, is_open: bool) -> Iterator[Block]:
        """Yield the blocks of a size with these numbers."""
        held, quarantined = self._count(size)
        for number in numbers:
            first, used, waiting = number * size, held[number], quarantined[number]
            here = IntervalSet((Interval(first, first + size - 1),))
            total = (self._assigned.of(Family.IPV4) & here).count
            free = 0 if self._range.draining else max(0, total - used - waiting)
            opened = range(first, first + size) if is_open else ()
            yield Block(
                cidr=f"{format_address(Address(Family.IPV4, first))}/{33 - size.bit_length()}",
                usage=AddressCounts(total=total, used=used, free=free, quarantined=waiting),
                cells=tuple(self._cell(Address(Family.IPV4, value)) for value in opened),
            )

    def _count(self, size: int) -> tuple[Counter[int], Counter[int]]:
        """Count by block what is held and what is in quarantine."""
        counts: tuple[Counter[int], Counter[int]] = Counter(), Counter()
        for use in self._snapshot.inventory.uses():
            is_here = (use.space, use.range) == (self._range.space, self._range.name)
            if is_here and use.address.family is Family.IPV4 and use.address in self._assigned:
                counts[not use.is_held][use.address.value // size] += 1
        return counts

    def _cell(self, address: Address) -> Cell:
        found = classify(self._snapshot, self._range.space, address)
        is_own, is_assigned = found.range == self._range.name, address in self._assigned
        if len(find_having(self._snapshot, self._range.space, address)) > 1:
            state = CellState.CONFLICT
        elif is_own and found.state in (AddressState.QUARANTINED, AddressState.REPORTED, AddressState.FREE):
            state = CellState(found.state.value)
        elif is_own and found.owner is not None:
            state = CellState.HELD if is_assigned else CellState.OUT_OF_RANGE
        elif address in self._range.pool and (found.owner or not is_assigned):
            state = CellState.OTHER_RANGE
        elif address not in self._range.pool.written:
            state = CellState.OUTSIDE
        else:
            is_excluded = address in self._range.pool or address in self._range.pool.excluded
            state = CellState.EXCLUDED if is_excluded else CellState.END
        return Cell(address=found.address, state=state, owner=str(found.owner or ""))


def _parse_cidr(text: str) -> Interval:
    """Read a block of a map, as its links have it. Raises ValueError."""
    network = IPv4Network(text)
    if network.num_addresses not in _SIZES:
        raise ValueError("no block of a map")
    return Interval(int(network[0]), int(network[-1]))
