import pytest

from tests.unit.rancher.examples import Examples


@pytest.fixture
def examples() -> Examples:
    return Examples()
