"""A guest with a node that the tests of this folder share, swept between them, and where its charts come from.

The files of this folder are of the groups "guest", by helm, and "guest-charts", which hardly needs it.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.helm import PUBLISHED, Helm
from localfleet.proxy import RancherProxy
from tests.api.guest.guest_bench import GuestBench, open_bench
from tests.api.sweeping import sweep


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


@pytest.fixture(scope="session")
def plane(guest: ControlPlane) -> ControlPlane:
    return guest


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
    options = {"kubevipChartRepoUrl": repository.url}
    async with open_bench(plane, proxy, str(helm_program), guest_id, **options) as bench:
        yield bench
    await sweep(plane.client)
