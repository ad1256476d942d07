"""What a range can still give: in its order, each address once, and what came back comes again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.ipam.free_list import FreeList
from fipop.ipam.intervals import Interval, IntervalSet


def build(*spans: tuple[int, int], taken: set[int], descending: bool = False) -> FreeList:
    addresses = IntervalSet(tuple(Interval(first, last) for first, last in spans))
    return FreeList(addresses, taken, descending=descending, closed=False)


def take_all(listed: FreeList, taken: set[int]) -> list[int]:
    found = []
    while (value := listed.next_free()) is not None:
        taken.add(value)
        found.append(value)
    return found


@pytest.mark.parametrize("descending", [False, True])
def test_addresses_come_in_the_order_of_the_range_without_what_is_taken(descending: bool) -> None:
    taken = {2, 11}
    found = take_all(build((1, 3), (10, 12), taken=taken, descending=descending), taken)
    assert found == sorted([1, 3, 10, 12], reverse=descending)


def test_what_came_back_comes_first_the_nearest_to_the_beginning_before_others() -> None:
    taken: set[int] = set()
    listed = build((1, 5), taken=taken)
    assert take_all(listed, taken) == [1, 2, 3, 4, 5]
    for value in (4, 2, 2):
        taken.discard(value)
        listed.put_back(value)
    assert take_all(listed, taken) == [2, 4]


def test_what_the_walk_has_not_met_yet_needs_no_note() -> None:
    taken: set[int] = set()
    listed = build((1, 1 << 100), taken=taken)
    listed.put_back(50)
    assert [listed.next_free(), listed.next_free()] == [1, 2]


@given(st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30)), st.booleans())
def test_whatever_comes_back_in_whatever_order_nothing_is_given_twice_or_lost(
    taken: set[int], returned: list[int], descending: bool
) -> None:
    before = set(taken)
    listed = build((0, 30), taken=taken, descending=descending)
    assert set(take_all(listed, taken)) == set(range(31)) - before
    for value in returned:
        taken.discard(value)
        listed.put_back(value)
    assert sorted(take_all(listed, taken)) == sorted(set(returned))
