"""No interleaving of operators that all lead assigns an address twice (I1, I3), and everything converges (I2, I4)."""

import pytest

from tests.operator.simulation import run_life


@pytest.mark.parametrize("seed", range(10))
def test_whatever_goes_wrong_no_address_has_two_owners_and_all_converges(seed: int) -> None:
    assert run_life(seed) == []
