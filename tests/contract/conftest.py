"""One control plane, one API in memory and one simulated guest, which the cases of the contract share."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.server import HttpServer
from localfleet.certificates import build_authority
from localfleet.controlplane import ControlPlane
from localfleet.proxy import RancherProxy
from localfleet.simulated import SimulatedGuest
from tests.contract.sides import MEMORY, REAL, SIMULATED, MemorySide, RealSide, Side, SimulatedSide
from tests.harness.api_in_memory import ApiInMemory, Link
from tests.harness.reaching import reach

_GUEST, _TOKEN = "c-m-contract", "u-contract:1"
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="session", params=[MEMORY, SIMULATED, REAL])
async def side(request: pytest.FixtureRequest, management: ControlPlane) -> AsyncIterator[Side]:
    """A side of the contract."""
    if request.param == REAL:
        async with KubeClient(
            HttpServer(await configure_from_kubeconfig(management.admin_kubeconfig))
        ) as client:
            yield RealSide(client)
        return
    async with {MEMORY: _memory, SIMULATED: _simulated}[request.param]() as side:
        yield side


@pytest_asyncio.fixture
async def home(side: Side) -> str:
    """A namespace of this case's own."""
    name = f"contract-{next(_numbers)}"
    await side.make_namespace(name)
    return name


@asynccontextmanager
async def _memory() -> AsyncIterator[Side]:
    async with KubeClient(Link(ApiInMemory())) as client:
        yield MemorySide(client)


@asynccontextmanager
async def _simulated() -> AsyncIterator[Side]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        proxy.add_guest(_GUEST, SimulatedGuest(latency_seconds=0.0))
        proxy.issue_token(_TOKEN)
        proxy.bind_token(_TOKEN, _GUEST)
        async with KubeClient(reach(proxy.url_of(_GUEST), ca_pem=proxy.ca_pem, token=_TOKEN)) as client:
            yield SimulatedSide(client)
