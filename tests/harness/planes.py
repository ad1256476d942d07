"""The fleet of a worker, and the management cluster that several folders share; each starts when it is wanted."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, RANCHER_CRDS, load_crds
from localfleet.fleet import LocalFleet


@pytest_asyncio.fixture(scope="session")
async def fleet() -> AsyncIterator[LocalFleet]:
    async with LocalFleet() as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="session")
async def management(fleet: LocalFleet) -> AsyncIterator[ControlPlane]:
    """A management cluster without fipop: the group "management".

    It has our CRDs and Rancher's and the namespaces that Rancher makes. Namespaces can be deleted, there are no nodes.
    """
    plane = await fleet.management()
    await load_crds(plane.client, OUR_CRDS, RANCHER_CRDS)
    for name in ("fleet-default", "cattle-global-data"):
        await plane.create_namespace(name)
    yield plane
    await fleet.remove(plane)


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Each number once, to make names with."""
    return itertools.count(1)


@pytest_asyncio.fixture
async def namespace(management: ControlPlane, numbers: Iterator[int]) -> AsyncIterator[str]:
    """A namespace of this test's own in the shared management cluster."""
    name = f"test-{next(numbers)}"
    await management.create_namespace(name)
    yield name
    await management.client.delete(f"/api/v1/namespaces/{name}")
