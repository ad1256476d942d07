"""An installation to look at: two guests, ranges, an operator at work under the chart's rights."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.stack import RANGES, Stack, build_range, open_stack
from tests.api.cli.commands import Commands
from tests.api.served_guest import ServedGuest, bring_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the commands look at."""

    stack: Stack
    guest: ServedGuest
    address: str
    commands: Commands


@pytest_asyncio.fixture(scope="package")
async def seen(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    """A guest with its floating IP and both releases, a second floating IP that gets nothing, a range that is full."""
    folder: Path = tmp_path_factory.mktemp("seen")
    plane = await fleet.guest("seen-guest", nodes=1)
    async with ChartRepository() as repository:
        helm = Helm(program=ensure("helm"), home=folder / "home")
        for chart in PUBLISHED:
            repository.publish(await helm.pack(chart, folder))
        settings = {"kubevipGuestInstall": "clusterlabel", "kubevipChartRepoUrl": repository.url}
        async with open_stack(fleet, "seen", settings=settings) as stack:
            await stack.start_operator()
            pool = build_range("vlan", "10.90.0.0/24", harvester="harvester-cluster1", network="vlan10")
            await stack.client.create(RANGES, pool)
            plan = stack.player.plan_guest("demo", labels={"kube-vip": "true"})
            async with bring_up(stack, plane, plan) as guest:
                found = await guest.has_condition(seconds=60.0)
                yield Seen(
                    stack=stack,
                    guest=guest,
                    address=found["spec"]["ipaddress"],
                    commands=Commands(kubeconfig=stack.plane.admin_kubeconfig),
                )
    await fleet.remove(plane)
