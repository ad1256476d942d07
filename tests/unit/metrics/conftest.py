"""A fleet whose metrics are looked at."""

import pytest

from tests.unit.metrics.samples import Scraped


@pytest.fixture
def fleet() -> Scraped:
    return Scraped()
