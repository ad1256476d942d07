"""How the program ends while what it talks to hangs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.routes import Fault, SeenRequest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    RANGES,
    Stack,
    build_range,
)
from localfleet.waiting import eventually
from tests.api.chart_source import INSTALLABLE, chart_repository, pack_charts
from tests.api.emptying import wipe
from tests.api.proxied import Proxied, proxied

pytestmark = pytest.mark.xdist_group("bare")


@pytest_asyncio.fixture(scope="module")
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    """A management cluster with a range."""
    stack = bare_stack
    vlan = build_range("vlan", "10.0.1.0/28", harvester="harvester-cluster1", network="vlan10")
    await stack.client.create(RANGES, vlan)
    yield stack
    for guest in list(stack.player.guests.values()):
        await stack.player.delete_guest(guest)
    await wipe(stack.plane)
    left = {**dict.fromkeys(INSTALLABLE), "kubevipChartRepoUrl": None}
    await stack.set_options(**{**left, "kubevipGuestInstall": "disabled"})


@pytest_asyncio.fixture(scope="module")
async def watched(stack: Stack) -> AsyncIterator[Proxied]:
    """An operator at work."""
    async with proxied(stack, "watched", "--no-leader-election") as watched:
        await watched.operator.start()
        yield watched


async def test_an_operator_with_a_hanging_guest_and_a_running_helm_ends_within_ten_seconds(
    stack: Stack, watched: Proxied
) -> None:
    operator = watched.operator
    archives = await pack_charts(stack.fleet.folder / "health-charts")
    async with chart_repository(archives) as charts:
        await stack.set_options(kubevipGuestInstall="enabled", kubevipChartRepoUrl=charts.url, **INSTALLABLE)
        for name, fault in (("silent", Fault(hang=True)), ("slow", Fault(hang=True, only=is_helm))):
            plan = stack.player.plan_guest(name)
            route = stack.proxy.add_guest(plan.cluster_id, SimulatedGuest(latency_seconds=0.0))
            route.fault = fault
            await stack.player.create_guest(plan)

        async def works_on_both() -> bool:
            return bool(watched.helm_processes()) and all(
                stack.proxy.requests_of(guest_id) for guest_id in stack.player.guests
            )

        await eventually(works_on_both, seconds=60)
        helm = watched.helm_processes()
        assert await operator.stop() == 0, "killed: it did not end by itself"
        assert not any(map(is_running, helm))


# The last one, as it freezes the API server itself.


async def test_an_operator_whose_api_server_is_frozen_ends_within_ten_seconds(
    stack: Stack, watched: Proxied
) -> None:
    operator = watched.operator
    await stack.set_options(kubevipGuestInstall="disabled")
    await operator.start()
    stack.plane.pause()
    try:
        assert await operator.stop() == 0, "killed: it did not end by itself"
    finally:
        stack.plane.resume()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_helm(seen: SeenRequest) -> bool:
    return seen.user_agent.startswith("Helm")
