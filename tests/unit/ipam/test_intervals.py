from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.intervals import ALL, ENDS, ORDINARY, Interval, IntervalSet, kind_of

VALUES = st.integers(0, 800)
KINDS = st.sampled_from([ALL, ENDS, ORDINARY])
PAIRS = st.lists(st.tuples(VALUES, VALUES).map(sorted).map(tuple), max_size=5)


def enumerate_pairs(pairs: list[tuple[int, int]], kind: int) -> set[int]:
    return {
        value
        for first, last in pairs
        for value in range(first, last + 1)
        if kind == ALL or (value % 256 in (0, 255)) == (kind == ENDS)
    }


@st.composite
def sets(draw: st.DrawFn) -> tuple[IntervalSet, set[int]]:
    """A set beside its enumeration; a difference mixes the kinds of intervals."""
    found, naive = IntervalSet(), set[int]()
    for index in range(draw(st.integers(1, 3))):
        pairs, kind = draw(PAIRS), draw(KINDS)
        more, enumerated = IntervalSet.of(pairs, kind), enumerate_pairs(pairs, kind)
        found, naive = (found - more, naive - enumerated) if index else (more, enumerated)
    return found, naive


@given(sets(), sets())
def test_sets_are_exact_under_all_operations(
    left: tuple[IntervalSet, set[int]], right: tuple[IntervalSet, set[int]]
):
    for found, expected in (
        (left[0], left[1]),
        (left[0] & right[0], left[1] & right[1]),
        (left[0] - right[0], left[1] - right[1]),
    ):
        assert found.count == len(expected)
        assert bool(found) == bool(expected)
        assert list(found.addresses()) == sorted(expected)
        assert list(found.addresses(descending=True)) == sorted(expected, reverse=True)
        assert {value for value in range(-2, 803) if value in found} == expected


@given(sets(), sets())
def test_intervals_are_disjoint_ascending_and_never_empty(
    left: tuple[IntervalSet, set[int]], right: tuple[IntervalSet, set[int]]
):
    intervals = (left[0] - right[0]).intervals
    assert all(interval.size > 0 for interval in intervals)
    assert all(before.last < after.first for before, after in pairwise(intervals))


@given(VALUES)
def test_an_address_ends_in_0_or_255_or_is_ordinary(value: int):
    assert (kind_of(value) == ENDS) == (value % 256 in (0, 255))


def test_a_wide_interval_without_its_ends_is_one_interval_and_counted_exactly():
    everything = IntervalSet.of([(0, 2**32 - 1)], ORDINARY)
    assert everything.intervals == (Interval(0, 2**32 - 1, ORDINARY),)
    assert everything.count == 2**24 * 254
    ends = IntervalSet.of([(0, 2**32 - 1)]) - everything
    assert ends.count == 2**24 * 2
    assert not ends & everything
