"""A namespace gets no address of a pool that is closed to it, in random worlds; `make night` plays 10,000."""

import pytest

from tests.provider.worlds import World

WORLDS, AT_ONCE = 1000, 50
"""A tenth of the night's."""


@pytest.mark.parametrize("first", range(0, WORLDS, AT_ONCE))
async def test_a_closed_pool_serves_no_service_and_no_change_moves_one(first: int) -> None:
    closed = 0
    for seed in range(first, first + AT_ONCE):
        world = World(seed)
        assert await world.run() == [], f"seed {seed}"
        await world.stop()
        closed += world.closed
    assert closed > AT_ONCE
