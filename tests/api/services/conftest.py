"""A guest with the cloud provider at work, as the chart of kube-vip-cloud-provider deploys it."""

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.provider import ProviderProcess, install_provider
from tests.api.services.shop import KEYS, Shop


@pytest_asyncio.fixture(scope="package")
async def service_guest(
    fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A guest in which the chart is installed with fipop as its image; nothing runs yet."""
    plane = await fleet.guest("service-guest")
    folder = tmp_path_factory.mktemp("service-guest")
    await install_provider(plane, Helm(program=ensure("helm"), home=folder / "helm"))
    yield plane
    await fleet.remove(plane)


@pytest_asyncio.fixture(scope="package")
async def provider(
    fleet: LocalFleet, service_guest: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ProviderProcess]:
    """The one that tests share."""
    folder = tmp_path_factory.mktemp("provider")
    running = ProviderProcess(plane=service_guest, folder=folder, ports=fleet.ports)
    await running.start()
    yield running
    assert await running.stop() == 0
    assert "Traceback" not in (folder / "provider.log").read_text()


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
    yield shop
    data = (await service_guest.client.get(KEYS)).get("data") or {}
    gone = {key: None for key in data if key.endswith(f"-{shop.namespace}") or "global" in key}
    await service_guest.client.patch(KEYS, {"data": gone})
    await service_guest.client.delete(f"/api/v1/namespaces/{shop.namespace}")


@pytest_asyncio.fixture
async def bare_guest(
    fleet: LocalFleet, numbers: Iterator[int], tmp_path: Path
) -> AsyncIterator[ControlPlane]:
    """A guest of this test's own, with the chart and without a running provider."""
    plane = await fleet.guest(f"bare-{next(numbers)}")
    await install_provider(plane, Helm(program=ensure("helm"), home=tmp_path / "helm"))
    yield plane
    await fleet.remove(plane)
