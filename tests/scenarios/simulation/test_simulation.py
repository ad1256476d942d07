"""Interleavings that hypothesis chooses, over the product's own reconcilers: a simulation, in memory.

`python -m tests.scenarios.simulation 1000000` carries on to a million addresses given out.
"""

from random import Random

import pytest
from hypothesis import given, settings

from fipop.operator.addresses.reservations import ReservationStore
from tests.scenarios.simulation.chosen import Chosen, interleavings, operators
from tests.scenarios.simulation.life import Simulation


@settings(max_examples=40, deadline=None)
@given(chance=interleavings(20), size=operators())
def test_no_interleaving_gives_an_address_to_two_or_leaks_one(chance: Chosen, size: int) -> None:
    simulation = Simulation(chance, size=size)
    simulation.run(20)
    assert simulation.memory.judge.found == []
    assert simulation.settle() == []
    assert simulation.memory.judge.found == []


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(2, 8)))]
)
def test_a_longer_life_gives_no_address_to_two_and_leaks_none(seed: int) -> None:
    simulation = Simulation(Random(seed), size=1 + seed % 2)
    simulation.run(300)
    assert simulation.settle() == []
    assert simulation.memory.judge.found == []


def test_the_simulation_shows_a_protocol_that_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReservationStore, "can_acquire", lambda *_: True)
    simulation = Simulation(Random(1))
    simulation.run(300)
    assert simulation.memory.judge.found
