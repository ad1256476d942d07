"""The stacks that the tests of this folder share. Each starts when it is first wanted, and ends with its group.

| group | has |
|---|---|
| "default" | `stack`, an operator with the options of the chart |
| "installs" | `installs`, an operator that keeps releases by helm, and `guest`, which has a node |
| "guest" | `guest` alone: the releases in it |
| "bare" | `bare_stack`: operators that are killed, what was there before fipop, and a store that is set back |
| "management" | `management`, without fipop: the client, the CRDs, the chart, and the cloud provider |
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.stack import SETTINGS, Stack, open_stack
from tests.api.borrowing import Installs
from tests.api.chart_source import chart_repository, pack_charts
from tests.api.tenant import Tenant, open_tenant
from tests.harness.crashes import find_crashes


@pytest_asyncio.fixture(scope="session")
async def guest(fleet: LocalFleet) -> AsyncIterator[ControlPlane]:
    """A guest that tests share: one node, on which workloads become ready."""
    plane = await fleet.guest("guest", nodes=1)
    yield plane
    await fleet.remove(plane)


@pytest_asyncio.fixture(scope="session")
async def second_guest(fleet: LocalFleet) -> AsyncIterator[ControlPlane]:
    """A guest without nodes."""
    plane = await fleet.guest("second-guest")
    yield plane
    await fleet.remove(plane)


@pytest_asyncio.fixture(scope="session")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """The operator with the options of the chart, but that it visits and lists each second: the group "default".

    Each test works on names, ranges and addresses of its own (`numbers`), and asserts nothing about those of others.
    """
    options = {"operateGuestClusterInterval": "1", "serviceVisitSeconds": "1"}
    async with open_stack(fleet, "shared", settings=options) as stack:
        await stack.start_operator()
        yield stack
        check_logs(stack)


def check_logs(stack: Stack) -> None:
    """Fail if an operator crashed in a reconciliation: it goes on, and the next attempt often mends it."""
    found = [each for operator in stack.operators for each in find_crashes(operator.process.log)]
    assert not found, found[0]


@pytest_asyncio.fixture
async def tenant(stack: Stack, numbers: Iterator[int]) -> AsyncIterator[Tenant]:
    async with open_tenant(stack, numbers) as tenant:
        yield tenant


async def create_settings(stack: Stack, **others: str) -> None:
    """Create kube-fip-config before an operator does: from the defaults of the chart, with other values for some."""
    place, _, name = SETTINGS.rpartition("/")
    defaults = await stack.client.get(f"{place}/fipop-settings-defaults")
    await stack.client.create(place, {"metadata": {"name": name}, "data": {**defaults["data"], **others}})


@pytest_asyncio.fixture(scope="session")
async def bare_stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """A management cluster with the chart installed and kube-fip-config, in which no operator runs.

    Whoever uses it stops its operators and leaves no guest, no floating IP and no range.
    """
    async with open_stack(fleet, "bare") as stack:
        await create_settings(stack)
        yield stack
        check_logs(stack)


@pytest_asyncio.fixture(scope="session")
async def installs(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installs]:
    """Guests with the label get both releases, from a repository: the group "installs"."""
    folder = tmp_path_factory.mktemp("installs")
    archives = await pack_charts(folder)
    authority = build_authority("registry", datetime.now(UTC))
    trusted = folder / "trusted.pem"
    trusted.write_bytes(authority.pem)
    async with chart_repository(archives) as repository:
        settings = {
            "kubevipGuestInstall": "clusterlabel",
            "kubevipChartRepoUrl": repository.url,
            "operateGuestClusterInterval": "1",
            # The chart grants what these name. They are set where the operator is to use it.
            "kubevipChartSecret": "charts",
            "kubevipChartCA": "charts-authority",
        }
        async with open_stack(fleet, "installs", settings=settings) as stack:
            stack.installation = replace(stack.installation, environment={"SSL_CERT_FILE": str(trusted)})
            await create_settings(stack, kubevipChartSecret="", kubevipChartCA="")
            await stack.start_operator()
            yield Installs(
                stack=stack,
                repository=repository,
                archives=archives,
                authority=authority,
                helm=Helm(program=ensure("helm"), home=folder / "home"),
            )
            check_logs(stack)
