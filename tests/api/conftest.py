"""The control planes that the tests of this folder share, each real and each started when it is first wanted."""

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, RANCHER_CRDS, load_crds
from localfleet.fleet import LocalFleet
from localfleet.stack import Stack, open_stack
from tests.api.tenant import Tenant, open_tenant


@pytest_asyncio.fixture(scope="session")
async def fleet() -> AsyncIterator[LocalFleet]:
    async with LocalFleet() as fleet:
        yield fleet


@pytest_asyncio.fixture(scope="session")
async def management(fleet: LocalFleet) -> ControlPlane:
    """The management cluster that tests share:

    our CRDs and Rancher's, namespaces can be deleted, no nodes.
    """
    plane = await fleet.management()
    await load_crds(plane.client, OUR_CRDS, RANCHER_CRDS)
    return plane


@pytest_asyncio.fixture(scope="session")
async def guest(fleet: LocalFleet) -> ControlPlane:
    """A guest that tests share: one node, on which workloads become ready."""
    return await fleet.guest("guest", nodes=1)


@pytest_asyncio.fixture(scope="session")
async def second_guest(fleet: LocalFleet) -> ControlPlane:
    """A guest without nodes, for what needs two."""
    return await fleet.guest("second-guest")


@pytest_asyncio.fixture(scope="session")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """The operator with the options of the chart, for tests that need nothing else.

    The files that use it are of the group "shared-stack", which keeps them on one worker. Each test works on names,
    ranges and addresses of its own (`numbers`), and asserts nothing about those of others.
    """
    async with open_stack(fleet, "shared") as stack:
        await stack.start_operator()
        yield stack


@pytest_asyncio.fixture
async def tenant(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[Tenant]:
    async with open_tenant(stack, numbers) as tenant:
        yield tenant


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
