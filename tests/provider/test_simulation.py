"""No address has two holders that may not share it, in lives drawn at random; `make night` lives many more."""

import pytest

from tests.provider.simulation import Life


@pytest.mark.parametrize("seed", range(3))
async def test_no_address_is_assigned_twice_and_every_service_is_served_in_the_end(seed: int) -> None:
    life = Life(seed)
    assert await life.run() == []
    assert life.assignments > 0
