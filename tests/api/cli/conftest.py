"""An installation to look at: two guests, ranges, an operator at work under the chart's rights."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.stack import RANGES, Stack, build_range, open_stack
from tests.api.chart_source import chart_repository, pack_charts
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
async def seen(
    fleet: LocalFleet, guest: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Seen]:
    """A guest with its floating IP and both releases. The files of this folder that use it are of the group "seen"."""
    archives = await pack_charts(tmp_path_factory.mktemp("seen"))
    async with chart_repository(archives) as repository:
        settings = {"kubevipGuestInstall": "clusterlabel", "kubevipChartRepoUrl": repository.url}
        async with open_stack(fleet, "seen", settings=settings) as stack:
            await stack.start_operator()
            pool = build_range("vlan", "10.90.0.0/24", harvester="harvester-cluster1", network="vlan10")
            await stack.client.create(RANGES, pool)
            plan = stack.player.plan_guest("demo", labels={"kube-vip": "true"})
            async with bring_up(stack, guest, plan) as served:
                found = await served.has_condition(seconds=120.0)
                yield Seen(
                    stack=stack,
                    guest=served,
                    address=found["spec"]["ipaddress"],
                    commands=Commands(kubeconfig=stack.plane.admin_kubeconfig),
                )
