"""Programs in helm's place, which tell how they were run."""

from pathlib import Path

import pytest

from tests.unit.guest.helm.programs import Stub


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    return Stub(tmp_path)
