"""Random worlds against a naive model of who may hold what: ranges, spaces, quotas, restarts, guests that carry."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.simulation.chosen import Chosen
from tests.scenarios.worlds import World

EDITS = (40, 90)
EDITS_BEFORE_A_REST = 15


def worlds() -> st.SearchStrategy[Chosen]:
    choices = st.binary(min_size=100, max_size=600)
    return st.tuples(choices, st.integers(0, 2**32 - 1)).map(lambda drawn: Chosen(*drawn))


async def live(chance: Chosen) -> list[str]:
    """Live through one world; what was wrong at its rests."""
    world = World(chance)
    await world.begin()
    for number in range(1, chance.randint(*EDITS) + 1):
        await world.edit()
        if number % EDITS_BEFORE_A_REST == 0 and (problems := await world.rest()):
            return problems
    return await world.rest()


def check(chance: Chosen) -> None:
    assert asyncio.run(live(chance)) == []


@settings(max_examples=200)
@given(chance=worlds())
def test_in_no_world_has_an_address_two_owners_or_does_a_restart_change_who_holds_what(
    chance: Chosen,
) -> None:
    check(chance)


@pytest.mark.slow
@settings(max_examples=2_000)
@given(chance=worlds())
def test_in_none_of_many_worlds_has_an_address_two_owners(chance: Chosen) -> None:
    check(chance)
