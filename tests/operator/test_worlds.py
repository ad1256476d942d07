"""In random worlds an address never has two owners (I1, I3), and a restart changes nothing (I2, I4)."""

import pytest

from tests.operator.worlds import run_world


@pytest.mark.parametrize("seed", range(5))
def test_in_no_world_has_an_address_two_owners_or_does_a_restart_change_who_holds_what(seed: int) -> None:
    assert run_world(seed) == []
