"""The chart, rendered and packed by real helm."""

from pathlib import Path

import pytest

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from tests.chart.rendering import Chart


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm program, built first where it is missing."""
    return ensure("helm")


@pytest.fixture(scope="session")
def chart(helm: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    folder = copy_chart(tmp_path_factory.mktemp("chart"))
    return Chart(helm=helm, folder=folder, home=tmp_path_factory.mktemp("helm"))
