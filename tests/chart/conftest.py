"""The chart at the repository's root, rendered and packed by real helm."""

from pathlib import Path

import pytest

from localfleet.assets import ensure
from tests.chart.rendering import ROOT, Chart


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm program, built first where it is missing."""
    return ensure("helm")


@pytest.fixture(scope="session")
def chart(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    return Chart(helm=helm, folder=ROOT, home=tmp_path_factory.mktemp("helm"))
