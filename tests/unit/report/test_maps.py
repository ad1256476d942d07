"""Maps of ranges: what each address is, and blocks that count right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api.objects import AddressCounts
from fipop.report.maps import Block, CellState, draw_map
from tests.harness.objects import build_range, build_reservation
from tests.unit.report.snapshots import snapshot


def test_a_large_range_is_drawn_by_blocks_that_open() -> None:
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/16")], reservations=[build_reservation("10.0.5.5")]
    )
    drawn = draw_map(found, "pool")
    assert len(drawn.blocks) == 256
    assert not drawn.is_open
    assert [each.cidr for each in drawn.blocks if each.usage.used] == ["10.0.5.0/24"]
    inside = draw_map(found, "pool", "10.0.5.0/24")
    assert [each.cidr for each in inside.blocks] == ["10.0.5.0/24"]
    assert sum(each.state is CellState.HELD for each in inside.blocks[0].cells) == 1


def test_a_range_of_a_whole_eight_is_drawn_in_two_steps() -> None:
    found = snapshot(ranges=[build_range("pool", "10.0.0.0/8")])
    drawn = draw_map(found, "pool")
    assert {each.cidr.partition("/")[2] for each in drawn.blocks} == {"16"}
    assert len(drawn.blocks) == 256
    assert len(draw_map(found, "pool", "10.7.0.0/16").blocks) == 256


@pytest.mark.parametrize(
    "block",
    ["x", "10.0.0.0", "10.0.0.0/33", "10.0.0.1/24", "10.0.0.0/25", "999.0.0.0/24", "1.2.3.4.5/24", "/"],
)
def test_what_is_no_block_is_refused(block: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - it says nothing to anybody
        draw_map(snapshot(ranges=[build_range("pool", "10.0.0.0/16")]), "pool", block)


def test_many_far_parts_are_not_drawn_all() -> None:
    text = ",".join(f"10.{first}.{second}.7" for first in range(40) for second in range(7))
    drawn = draw_map(snapshot(ranges=[build_range("pool", text)]), "pool")
    assert len(drawn.blocks) == 40
    far = ",".join(f"{first}.{second}.0.7" for first in range(1, 120) for second in range(3))
    found = draw_map(snapshot(ranges=[build_range("pool", far)]), "pool")
    assert len(found.blocks) == 119


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 600)), min_size=1, max_size=5))
def test_blocks_count_what_the_range_counts(parts: list[tuple[int, int]]) -> None:
    base = 10 << 24
    text = ",".join(f"{_text(base + first)}-{_text(base + first + size)}" for first, size in parts)
    found = snapshot(ranges=[build_range("pool", text)])
    capacity = found.inventory.count()["pool"]
    drawn = draw_map(found, "pool")
    assert sum(each.usage.total for each in drawn.blocks) == capacity.whole.total
    shown = sum(each.state is CellState.FREE for one in drawn.blocks for each in one.cells)
    assert not drawn.is_open or shown == capacity.whole.total


@pytest.mark.parametrize(("held", "level"), [(0, 0), (1, 1), (500, 5), (999, 9), (1000, 10)])
def test_a_level_is_full_only_when_full(held: int, level: int) -> None:
    assert Block(cidr="", usage=AddressCounts(total=1000, used=held)).level == level


def _text(value: int) -> str:
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
