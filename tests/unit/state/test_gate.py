"""What must have happened before addresses are given out."""

import itertools

import pytest

from fipop.state.gate import AllocationGate


@pytest.mark.parametrize(("adopted", "looked"), list(itertools.product([False, True], repeat=2)))
def test_it_is_open_when_all_were_adopted_and_the_guests_were_looked_at(adopted: bool, looked: bool) -> None:
    assert AllocationGate(adopted=adopted, looked=looked).is_open is (adopted and looked)


def test_everything_starts_closed() -> None:
    assert not AllocationGate().is_open
