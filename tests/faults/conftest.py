"""One lane for all tests of this folder; the full run (`python -m tests.faults`) has several."""

from collections.abc import AsyncIterator

import pytest_asyncio

from localfleet.assets import ensure_all
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults.lane import Lane


@pytest_asyncio.fixture(scope="session")
async def lane() -> AsyncIterator[Lane]:
    async with LocalFleet(ensure_all(*PROGRAMS, "helm")) as fleet, Lane(fleet, 0) as lane:
        yield lane
