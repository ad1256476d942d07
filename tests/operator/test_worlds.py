"""In random worlds an address never has two owners (I1, I3), and a restart changes nothing (I2, I4)."""

import pytest

from tests.operator.worlds import run_world


@pytest.mark.parametrize("part", range(8))
def test_in_no_world_has_an_address_two_owners_or_does_a_restart_change_who_holds_what(part: int) -> None:
    for seed in range(5 * part, 5 * part + 5):
        assert run_world(seed) == [], f"seed {seed}"
