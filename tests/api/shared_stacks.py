"""Stacks that files of this folder share. A file that uses one names this module in `pytest_plugins`.

It is of the group of the stack's name, which keeps all that use it on one worker, and borrows it
(tests/api/borrowing.py).
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.certificates import build_authority
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.stack import Stack, open_stack
from tests.api.borrowing import Installs
from tests.api.chart_source import chart_repository, pack_charts
from tests.api.live_options import with_options


@pytest_asyncio.fixture(scope="session")
async def quick_stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """Guests are visited every second: the group "quick-stack"."""
    async with open_stack(
        fleet, "quick", settings={"operateGuestClusterInterval": "1", "serviceVisitSeconds": "1"}
    ) as stack:
        await stack.start_operator()
        yield stack


@pytest_asyncio.fixture(scope="session")
async def left_behind_stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """No operator runs: who starts one stops it. The group "left-behind"."""
    async with open_stack(fleet, "left-behind") as stack:
        yield stack


@pytest_asyncio.fixture(scope="session")
async def installs(
    fleet: LocalFleet, numbers: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Installs]:
    """Guests with the label get both releases, from a repository: the groups "installs" and "chart-options".

    Each group has a stack of its own.
    """
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
        async with open_stack(fleet, f"installs-{next(numbers)}", settings=settings) as stack:
            stack.installation = replace(stack.installation, environment={"SSL_CERT_FILE": str(trusted)})
            await stack.start_operator()
            async with with_options(stack, kubevipChartSecret="", kubevipChartCA=""):
                yield Installs(
                    stack=stack,
                    repository=repository,
                    archives=archives,
                    authority=authority,
                    helm=Helm(program=ensure("helm"), home=folder / "home"),
                )
