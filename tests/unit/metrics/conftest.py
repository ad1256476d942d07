"""A fleet whose metrics are looked at."""

import pytest

from tests.unit.metrics.samples import Fleet


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()
