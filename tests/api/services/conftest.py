"""A guest with the cloud provider at work, as the chart of kube-vip-cloud-provider deploys it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.errors import ApiError
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.provider import ProviderProcess, install_provider
from localfleet.waiting import eventually
from tests.api.services.shop import KEYS, LEASE, OWN_LEASE, Shop
from tests.api.sweeping import is_load_balancer


@pytest_asyncio.fixture(scope="session")
async def service_guest(management: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """The cluster of the group, in which the chart is installed with fipop as its image; nothing runs yet.

    The files of this folder share it, one after the other.
    """
    folder = tmp_path_factory.mktemp("service-guest")
    await install_provider(management, Helm(program=ensure("helm"), home=folder / "helm"))
    return management


@contextmanager
def passing_over_not_found() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.reason != "NotFound":
            raise


async def clear(plane: ControlPlane) -> None:
    """Take out of a guest whose provider has stopped what providers and their users left there."""

    async def services() -> list[Json]:
        return [each for each in await plane.client.items("/api/v1/services") if is_load_balancer(each)]

    for path in (KEYS, LEASE, OWN_LEASE):
        if await plane.client.find(path) is not None:
            await plane.client.delete(path)
    for each in await services():
        path = f"/api/v1/namespaces/{each['metadata']['namespace']}/services/{each['metadata']['name']}"
        # The namespaces of earlier tests are being deleted, too: either may be first.
        with passing_over_not_found():
            if each["metadata"].get("finalizers"):
                await plane.client.patch(path, {"metadata": {"finalizers": None}})
            await plane.client.delete(path)

    async def are_gone() -> bool:
        return not await services()

    await eventually(are_gone, seconds=30, what="no Service with an address is left")


@pytest_asyncio.fixture(scope="module")
async def provider(
    fleet: LocalFleet, service_guest: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProviderProcess]:
    """The one that the tests of a file share."""
    folder = tmp_path_factory.mktemp("provider")
    running = ProviderProcess(plane=service_guest, folder=folder, ports=fleet.ports)
    await running.start()
    yield running
    assert await running.stop() == 0
    assert "Traceback" not in (folder / "provider.log").read_text()
    await clear(service_guest)


@pytest.fixture(scope="session")
def shop_numbers() -> Iterator[int]:
    return itertools.count(1)


async def open_shop(plane: ControlPlane, number: int) -> Shop:
    """Make a namespace."""
    namespace = f"shop-{number}"
    await plane.create_namespace(namespace)
    return Shop(client=plane.client, namespace=namespace, number=number)


@pytest_asyncio.fixture
async def shop(
    provider: ProviderProcess, service_guest: ControlPlane, shop_numbers: Iterator[int]
) -> AsyncIterator[Shop]:
    """A namespace of this test's own; nothing is left of its keys."""
    shop = await open_shop(service_guest, next(shop_numbers))
    await shop.ensure_keys()
    yield shop
    data = (await service_guest.client.get(KEYS)).get("data") or {}
    gone = {key: None for key in data if key.endswith(f"-{shop.namespace}") or "global" in key}
    await service_guest.client.patch(KEYS, {"data": gone})
    await service_guest.client.delete(f"/api/v1/namespaces/{shop.namespace}")


@pytest_asyncio.fixture
async def bare_guest(service_guest: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The guest for tests that start providers themselves: no other runs, and nothing is there of an earlier one."""
    yield service_guest
    await clear(service_guest)
