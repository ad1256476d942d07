"""A range as a map of its addresses: block by block, and a block address by address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from fipop.api.models import FloatingIP, Reservation
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.intervals import Interval, IntervalSet
from fipop.ipam.pool import Pool
from fipop.report.addresses import AddressReport, report_one
from fipop.report.picture import Picture

CELLS = 256
"""A block that is shown address by address has so many at most."""
MOST_BLOCKS = 1024
MOST_LISTED = 1000
_SIZES = (1 << 8, 1 << 16, 1 << 24)
_OPEN_AT_ONCE = 4


class CellState(StrEnum):
    """What an address of a map is."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"
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

    `blocks` are those of IPv4 at this depth, inside `inside` ("" for the whole range), `left_out` how many more there
    are; `opened` those that are shown address by address. `ipv6` are the IPv6 addresses that somebody has, of
    `ipv6_total` that can be given out; `outside` what is held and out of range.
    """

    range: str
    inside: str
    blocks: tuple[Block, ...]
    left_out: int
    opened: tuple[OpenBlock, ...]
    ipv6: tuple[AddressReport, ...]
    ipv6_used: int
    ipv6_total: int
    outside: tuple[AddressReport, ...]


def draw_map(picture: Picture, range_name: str, cidr: str = "") -> RangeMap:
    """Draw the map of a range that can be read, or of one block of it.

    RangeUnknownError; ValueError for what is no block of a map.
    """
    board = _Board(picture, range_name)
    span = _parse_cidr(cidr) if cidr else None
    size = _SIZES[0] if span is not None and span.size <= _SIZES[0] else board.size_for(span)
    found = list(islice(board.blocks(size, span), MOST_BLOCKS + 1))
    is_open = size == _SIZES[0] and len(found) <= _OPEN_AT_ONCE
    return RangeMap(
        range=range_name,
        inside=cidr,
        blocks=tuple(block for _, block in found[:MOST_BLOCKS]),
        left_out=max(0, board.count_blocks(size, span) - MOST_BLOCKS),
        opened=tuple(OpenBlock(block=block, cells=board.cells(span)) for span, block in found)
        if is_open
        else (),
        ipv6=tuple(islice(board.reports(Family.IPV6), MOST_LISTED)),
        ipv6_used=board.count_used(Family.IPV6),
        ipv6_total=board.addresses(Family.IPV6).count,
        outside=tuple(islice(board.outside(), MOST_LISTED)),
    )


class _Board:
    """What is known of the addresses of one range, sorted for drawing."""

    def __init__(self, picture: Picture, range_name: str) -> None:
        self._picture = picture
        self._name = range_name
        ranges = picture.allocations.ranges
        self._pool: Pool = ranges.ledger_of(range_name).range(range_name).pool
        self._space = ranges.space_of(range_name) or ""
        self._entries = ranges.space(self._space).entries
        self._older = [ranges.ledger_of(each).range(each).pool for each in ranges.conflicts(range_name)]

    def addresses(self, family: Family) -> IntervalSet:
        """Give what the range gives out of a family."""
        found = self._pool.addresses.of(family)
        for each in self._older:
            found -= each.addresses.of(family)
        return found

    def size_for(self, span: Interval | None) -> int:
        """Choose the smallest blocks of which there are not too many."""
        sizes = [size for size in _SIZES if span is None or size < span.size] or [_SIZES[0]]
        return next((size for size in sizes if self.count_blocks(size, span) <= CELLS), sizes[-1])

    def count_blocks(self, size: int, span: Interval | None) -> int:
        """Count the blocks of a size in which the range's text has addresses."""
        count, last = 0, -1
        for first, end in self._stretches(span):
            low, high = max(first // size, last + 1), end // size
            count, last = count + max(0, high - low + 1), max(last, high)
        return count

    def blocks(self, size: int, span: Interval | None) -> Iterator[tuple[Interval, Block]]:
        """Yield the blocks of a size, in their order."""
        tallies = self._tally(size)
        given = self.addresses(Family.IPV4)
        last = -1
        for first, end in self._stretches(span):
            for number in range(max(first // size, last + 1), end // size + 1):
                here = Interval(number * size, number * size + size - 1)
                yield here, self._block(here, tallies.get(number, Counter()), given)
            last = max(last, end // size)

    def cells(self, span: Interval) -> tuple[Cell, ...]:
        """Give the addresses of a small block."""
        given = self.addresses(Family.IPV4)
        return tuple(
            self._cell(Address(Family.IPV4, value), given) for value in range(span.first, span.last + 1)
        )

    def reports(self, family: Family) -> Iterator[AddressReport]:
        """Report the addresses of a family that somebody has from this range, in their order."""
        for address in sorted(self._entries):
            if address.family is family and self._entries[address].holder.range == self._name:
                yield report_one(self._picture, self._space, address)

    def count_used(self, family: Family) -> int:
        """Count the addresses of a family that somebody has from this range."""
        return sum(
            address.family is family and entry.holder.range == self._name
            for address, entry in self._entries.items()
        )

    def outside(self) -> Iterator[AddressReport]:
        """Report what is held from this range and not in it."""
        for address in sorted(self._entries):
            entry = self._entries[address]
            if entry.holder.range == self._name and address not in self._pool.addresses:
                yield report_one(self._picture, self._space, address)

    def _stretches(self, span: Interval | None) -> Iterator[tuple[int, int]]:
        for each in self._pool.written.of(Family.IPV4).intervals:
            first, last = each.first, each.last
            if span is not None:
                first, last = max(first, span.first), min(last, span.last)
            if first <= last:
                yield first, last

    def _tally(self, size: int) -> Mapping[int, Counter[CellState]]:
        tallies: dict[int, Counter[CellState]] = {}
        for address, entry in self._entries.items():
            if address.family is Family.IPV4 and entry.holder.range == self._name:
                state = CellState.HELD if entry.holder.quarantined_until is None else CellState.QUARANTINED
                if address in self._pool.addresses:
                    tallies.setdefault(address.value // size, Counter())[state] += 1
        return tallies

    def _block(self, span: Interval, tally: Mapping[CellState, int], given: IntervalSet) -> Block:
        here = IntervalSet((span,))
        total = (given & here).count
        conflicts = (self._pool.addresses.of(Family.IPV4) & here).count - total
        held, quarantined = tally.get(CellState.HELD, 0), tally.get(CellState.QUARANTINED, 0)
        length = 32 - (span.size - 1).bit_length()
        taken = held + quarantined
        return Block(
            cidr=f"{format_address(Address(Family.IPV4, span.first))}/{length}",
            total=total,
            held=held,
            quarantined=quarantined,
            free=max(0, total - taken),
            conflicts=conflicts,
            percent=round(100 * taken / total, 1) if total else 0.0,
        )

    def _cell(self, address: Address, given: IntervalSet) -> Cell:
        entry = self._entries.get(address)
        owner = ""
        if entry is not None:
            holder = entry.holder
            owner = "/".join(part for part in holder.owner if part)
            is_twice = self._is_had_twice(address, entry.reservation)
            if holder.range == self._name or is_twice:
                state = _state_of(holder.quarantined_until is None, address in self._pool.addresses)
                return Cell(
                    address=format_address(address),
                    state=CellState.CONFLICT if is_twice else state,
                    owner=owner,
                )
        state = CellState.OUTSIDE
        if address.value in given:
            state = CellState.FREE if entry is None else CellState.CONFLICT
        elif address in self._pool.addresses:
            state = CellState.CONFLICT
        elif address in self._pool.written:
            state = CellState.EXCLUDED
        return Cell(address=format_address(address), state=state, owner=owner)

    def _is_had_twice(self, address: Address, reservation: Reservation | None) -> bool:
        claimants: Sequence[FloatingIP] = tuple(self._picture.claimants(self._space, address))
        text = format_address(address)
        having = {each.meta.key for each in claimants if text in each.status.addresses}
        if reservation is not None and reservation.is_held:
            having.add(reservation.owner.key)
        return len(having) > 1


def _state_of(is_held: bool, is_in_range: bool) -> CellState:
    if not is_held:
        return CellState.QUARANTINED
    return CellState.HELD if is_in_range else CellState.OUT_OF_RANGE


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
