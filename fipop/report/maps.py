"""A range as a map of its addresses: block by block, and a block address by address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.errors import RangeUnknownError
from fipop.ipam.intervals import Interval, IntervalSet
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
    OUTSIDE = "outside"
    """Of the block, and none of the range's text."""
    OUT_OF_RANGE = "out-of-range"
    """Held from this range, which would not give it out any more."""
    CONFLICT = "conflict"
    """Of an older range, too, or had by two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One address; `owner` says who has it, "" for nobody."""

    address: str
    state: CellState
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A CIDR in which the range has addresses, with how many are what; `total` are those that can be given out."""

    cidr: str
    total: int
    held: int
    quarantined: int
    free: int
    conflicts: int
    percent: float

    @property
    def level(self) -> int:
        """How full it is in tenths, 0 to 10: more than nothing is at least 1, and only what is full is 10."""
        if self.percent >= 100:
            return 10
        return min(9, max(1, round(self.percent / 10))) if self.percent else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBlock:
    """A block shown address by address."""

    block: Block
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMap:
    """The map of a range.

    `blocks` are those of IPv4 at this depth, inside `inside` ("" for the whole range), never more than CELLS; `opened`
    those that are shown address by address.
    """

    range: str
    inside: str
    blocks: tuple[Block, ...]
    opened: tuple[OpenBlock, ...]


def draw_map(snapshot: Snapshot, range_name: str, cidr: str = "") -> RangeMap:
    """Draw the map of a range that can be read, or of one block of it.

    RangeUnknownError; ValueError for what is no block of a map.
    """
    board = _Board(snapshot, range_name)
    span = _parse_cidr(cidr) if cidr else None
    size = _SIZES[0] if span is not None and span.size <= _SIZES[0] else board.size_for(span)
    found = list(board.blocks(size, span))
    is_open = size == _SIZES[0] and len(found) <= _OPEN_AT_ONCE
    return RangeMap(
        range=range_name,
        inside=cidr,
        blocks=tuple(block for _, block in found),
        opened=tuple(OpenBlock(block=block, cells=board.cells(span)) for span, block in found)
        if is_open
        else (),
    )


class _Board:
    """What is known of the addresses of one range, sorted for drawing."""

    def __init__(self, snapshot: Snapshot, range_name: str) -> None:
        self._snapshot = snapshot
        self._name = range_name
        ranges = snapshot.cache.ledger.ranges
        found = ranges.get(range_name)
        if found is None:
            raise RangeUnknownError(range_name=range_name)
        self._range = found
        self._assigned = ranges.assigned(range_name)

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

    def blocks(self, size: int, span: Interval | None) -> Iterator[tuple[Interval, Block]]:
        """Yield the blocks of a size, in their order."""
        tallies = self._tally(size)
        for number in self.numbers(size, span):
            here = Interval(number * size, number * size + size - 1)
            yield here, self._block(here, tallies.get(number, Counter()))

    def cells(self, span: Interval) -> tuple[Cell, ...]:
        """Give the addresses of a small block."""
        return tuple(self._cell(Address(Family.IPV4, value)) for value in range(span.first, span.last + 1))

    def is_assigned(self, address: Address) -> bool:
        """Return whether the range assigns an address, in use or not."""
        return address in self._assigned

    def _tally(self, size: int) -> Mapping[int, Counter[CellState]]:
        tallies: dict[int, Counter[CellState]] = {}
        for use in self._snapshot.cache.ledger.uses():
            is_here = (use.space, use.range) == (self._range.space, self._name) and self.is_assigned(
                use.address
            )
            if is_here and use.address.family is Family.IPV4:
                state = CellState.HELD if use.is_held else CellState.QUARANTINED
                tallies.setdefault(use.address.value // size, Counter())[state] += 1
        return tallies

    def _block(self, span: Interval, tally: Mapping[CellState, int]) -> Block:
        here = IntervalSet((span,))
        total = (self._assigned.of(Family.IPV4) & here).count
        conflicts = (self._range.pool.addresses.of(Family.IPV4) & here).count - total
        held, quarantined = tally.get(CellState.HELD, 0), tally.get(CellState.QUARANTINED, 0)
        length = 32 - (span.size - 1).bit_length()
        taken = held + quarantined
        return Block(
            cidr=f"{format_address(Address(Family.IPV4, span.first))}/{length}",
            total=total,
            held=held,
            quarantined=quarantined,
            free=0 if self._range.draining else max(0, total - taken),
            conflicts=conflicts,
            percent=round(100 * taken / total, 1) if total else 0.0,
        )

    def _cell(self, address: Address) -> Cell:
        found = classify(self._snapshot, self._range.space, address)
        owner = "" if found.owner is None else f"{found.owner.namespace}/{found.owner.name}".strip("/")
        if len(find_having(self._snapshot, self._range.space, address)) > 1:
            state = CellState.CONFLICT
        elif found.owner is not None and found.range == self._name:
            state = CellState.HELD if self.is_assigned(address) else CellState.OUT_OF_RANGE
            if found.state in (AddressState.QUARANTINED, AddressState.REPORTED):
                state = CellState(found.state.value)
        elif found.state is AddressState.FREE and found.range == self._name:
            state = CellState.FREE
        elif address in self._range.pool and (found.owner or not self.is_assigned(address)):
            state = CellState.CONFLICT
        else:
            state = CellState.EXCLUDED if address in self._range.pool.written else CellState.OUTSIDE
        return Cell(address=found.address, state=state, owner=owner)


def _parse_cidr(text: str) -> Interval:
    """Read a block of a map, as its links have it."""
    first, _, length = text.partition("/")
    parts = first.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and len(part) <= 3 for part in (*parts, length)):
        raise ValueError("no block of a map")
    value = 0
    for part in parts:
        value = value << 8 | int(part)
    bits = 32 - int(length)
    if bits not in (8, 16, 24) or value >> 32 or value % (1 << bits):
        raise ValueError("no block of a map")
    return Interval(value, value + (1 << bits) - 1)
