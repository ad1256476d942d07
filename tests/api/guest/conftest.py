"""A guest with a node that the tests of this folder share, swept between them, and where its charts come from."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.proxy import RancherProxy
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GuestBench, open_bench, settings_with

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_HELM_MADE = (
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/api/v1/serviceaccounts",
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
)
_BY_OTHERS = "app.kubernetes.io/managed-by=Helm"


@pytest.fixture(scope="session")
def helm_program() -> Path:
    return ensure("helm")


@pytest_asyncio.fixture(scope="session")
async def archives(tmp_path_factory: pytest.TempPathFactory, helm_program: Path) -> dict[str, Path]:
    """The published charts as archives, by `<name>-<version>`."""
    folder = tmp_path_factory.mktemp("charts")
    helm = Helm(program=helm_program, home=folder / "home")
    packed = [await helm.pack(chart, folder) for chart in PUBLISHED]
    return {path.stem: path for path in packed}


@pytest_asyncio.fixture
async def repository(archives: dict[str, Path]) -> AsyncIterator[ChartRepository]:
    async with ChartRepository() as repository:
        for archive in archives.values():
            repository.publish(archive)
        yield repository


@pytest_asyncio.fixture(scope="session")
async def proxy() -> AsyncIterator[RancherProxy]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        yield proxy


@pytest_asyncio.fixture(scope="session")
async def plane(fleet: LocalFleet) -> ControlPlane:
    return await fleet.guest("kept-guest", nodes=1)


@pytest.fixture
def guest_id(numbers: Iterator[int]) -> str:
    return f"c-m-guest{next(numbers)}"


@pytest_asyncio.fixture
async def bench(
    plane: ControlPlane,
    proxy: RancherProxy,
    repository: ChartRepository,
    helm_program: Path,
    guest_id: str,
) -> AsyncIterator[GuestBench]:
    settings = settings_with(kubevipChartRepoUrl=repository.url)
    async with open_bench(plane, proxy, settings, str(helm_program), guest_id) as bench:
        yield bench
    await sweep(plane.client)


async def sweep(client: ApiClient) -> None:
    """Take out of a guest what passes and helm left there."""
    found = [("/api/v1/secrets", {"labelSelector": "owner=helm"})]
    found += [(collection, {"labelSelector": _BY_OTHERS}) for collection in _HELM_MADE]
    found += [("/api/v1/configmaps", {"fieldSelector": "metadata.name=kubevip"})]

    async def delete(collection: str, query: dict[str, str]) -> None:
        for item in await client.items(collection, **query):
            namespace = item["metadata"].get("namespace")
            root, _, plural = collection.rpartition("/")
            place = f"{root}/namespaces/{namespace}/{plural}" if namespace else collection
            await client.delete(f"{place}/{item['metadata']['name']}")

    await asyncio.gather(*(delete(*one) for one in found))

    async def is_empty() -> bool:
        return not await client.items("/api/v1/pods")

    await eventually(is_empty, seconds=30, what="the guest to be empty")
