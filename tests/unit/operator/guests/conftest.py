"""A look at guests that a test plays."""

from collections.abc import Iterator

import pytest

from fipop.state.cache import ClusterCache
from tests.unit.operator.guests.scans import Looking


@pytest.fixture
def looking() -> Iterator[type[Looking]]:
    made: list[Looking] = []

    class Kept(Looking):
        def __init__(self, cache: ClusterCache, carried: dict[str, str | None]) -> None:
            super().__init__(cache, carried)
            made.append(self)

    yield Kept
    for each in made:
        each.task.cancel()
