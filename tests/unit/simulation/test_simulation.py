"""Interleavings that hypothesis chooses, over the product's own reconcilers: a simulation, in memory.

`python -m tests.unit.simulation 1000000` carries on to a million addresses given out.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.operator.reservations import ReservationDesk
from tests.unit.simulation.operators import Simulation


class Chosen(Random):
    """Decides as the bytes say, as long as there are any; then by a seed."""

    def __init__(self, choices: bytes) -> None:
        super().__init__(1)
        self._choices = iter(choices)

    def random(self) -> float:
        fraction = super().random()
        choice = next(self._choices, None)
        return fraction if choice is None else (choice + fraction) / 256


@settings(max_examples=60, deadline=None)
@given(choices=st.binary(max_size=1500))
def test_no_interleaving_gives_an_address_to_two_or_leaks_one(choices: bytes) -> None:
    simulation = Simulation(Chosen(choices))
    simulation.run(20)
    assert simulation.memory.judge.found == []
    assert simulation.settle() == []
    assert simulation.memory.judge.found == []


@pytest.mark.parametrize("seed", range(4))
def test_a_longer_life_gives_no_address_to_two_and_leaks_none(seed: int) -> None:
    simulation = Simulation(Random(seed))
    simulation.run(300)
    assert simulation.settle() == []
    assert simulation.memory.judge.found == []


def test_the_simulation_shows_a_protocol_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReservationDesk, "may_take", lambda *_: True)
    simulation = Simulation(Random(1))
    simulation.run(300)
    assert simulation.memory.judge.found
