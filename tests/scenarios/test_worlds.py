"""Random worlds against a naive model of who may hold what: ranges, spaces, quotas, restarts, guests that carry."""

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.worlds import World

EDITS = (40, 90)
EDITS_BEFORE_A_REST = 15
seeds = st.integers(0, 2**32 - 1)


async def live(chance: Random) -> list[str]:
    """Live through one world; return what was wrong at a rest."""
    world = World(chance)
    await world.begin()
    for number in range(1, chance.randint(*EDITS) + 1):
        await world.edit()
        if number % EDITS_BEFORE_A_REST == 0 and (problems := await world.rest()):
            return problems
    return await world.rest()


@pytest.mark.parametrize("part", range(4))
@settings(max_examples=10)
@given(seed=seeds)
def test_in_no_world_has_an_address_two_owners_or_does_a_restart_change_who_holds_what(
    part: int, seed: int
) -> None:
    """40 worlds, in parts, as one test must not take minutes; thousands of other ones at night."""
    assert asyncio.run(live(Random(f"{part} {seed}"))) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=2_000, derandomize=False)
@given(seed=seeds)
def test_in_none_of_many_worlds_has_an_address_two_owners_or_does_a_restart_change_anything(
    seed: int,
) -> None:
    assert asyncio.run(live(Random(seed))) == []
