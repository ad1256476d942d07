"""No interleaving of operators that all lead assigns an address twice (I1, I3), and everything converges (I2, I4)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


LIVES: list[tuple[int, list[str]]] = [(0, []), (0, ["--demand"]), (0, ["--handover"])]
"""Each is the number of the first of two; `make night PART=simulation` has hundreds."""


@pytest.mark.parametrize(("seed", "kind"), LIVES)
def test_whatever_goes_wrong_no_address_has_two_owners_and_all_converges(seed: int, kind: list[str]) -> None:
    # A process of its own: a life is replayed by its number only if sets of texts have a fixed order.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "tests.operator.simulation", "2", *kind, "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
