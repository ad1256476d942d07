"""What the probes say while the API server is away or fails; and how the program ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from localfleet.routes import Fault, SeenRequest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    RANGES,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.chart_source import INSTALLABLE, chart_repository, pack_charts
from tests.api.emptying import wipe
from tests.api.proxied import Proxied, State, proxied

pytestmark = pytest.mark.xdist_group("bare")

TENANT = "probed"
GOOD_ANSWER_SECONDS = 30.0
"""How old the last read of an object may be."""
BACK_SECONDS = 30.0
PATIENCE = 3
"""How many times as long as documented a test waits: a machine may be loaded."""
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=20)


@dataclass(slots=True, kw_only=True)
class Probed:
    """An operator whose probes are asked all the time.

    `changes` has every change of an answer with its time: of "live" and of "ready".
    """

    stack: Stack
    watched: Proxied
    changes: list[tuple[float, str, bool]] = field(default_factory=list)

    async def ask_for_ever(self) -> None:
        last: dict[str, bool] = {}
        while True:
            answers = {"live": await self._probe("livez"), "ready": await self._probe("readyz")}
            for probe, answer in answers.items():
                if last.get(probe) is not answer:
                    self.changes.append((time.monotonic(), probe, answer))
                last[probe] = answer
            await asyncio.sleep(0.25)

    async def _probe(self, probe: str) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session,
                session.get(f"{self.watched.operator.health_url}/{probe}") as answer,
            ):
                return answer.ok
        return False

    async def says(self, probe: str, answer: bool, *, since: float, seconds: float) -> None:
        """Wait until a probe changes to this answer; `seconds` is what is documented."""

        async def has_changed() -> bool:
            return any(at > since and (name, said) == (probe, answer) for at, name, said in self.changes)

        await eventually(has_changed, seconds=PATIENCE * seconds, what=f"{probe}: {answer}")

    async def is_served(self, name: str, *, seconds: float) -> None:
        """Make a floating IP and wait for its address."""
        await self.stack.client.create(
            floating_ips(TENANT), build_floating_ip(TENANT, name, range_name="pool")
        )

        async def served() -> bool:
            found = await self.stack.floating_ip(TENANT, name)
            return condition(found, "Allocated").get("status") == "True"

        await eventually(served, seconds=PATIENCE * seconds, what=f"{name} to be served")


async def open_probed(exits: AsyncExitStack, stack: Stack, name: str, *arguments: str) -> Probed:
    """An operator, which is ready."""
    watched = await exits.enter_async_context(proxied(stack, name, *arguments))
    await watched.operator.start()
    return Probed(stack=stack, watched=watched)


@pytest_asyncio.fixture(scope="module")
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    """A management cluster with ranges; its operators see it through proxies of their own."""
    stack = bare_stack
    await stack.plane.create_namespace(TENANT)
    await stack.client.create(RANGES, build_range("pool", "10.0.0.0/24"))
    vlan = build_range("vlan", "10.0.1.0/28", harvester="harvester-cluster1", network="vlan10")
    await stack.client.create(RANGES, vlan)
    yield stack
    for guest in list(stack.player.guests.values()):
        await stack.player.delete_guest(guest)
    await wipe(stack.plane)
    left = {**dict.fromkeys(INSTALLABLE), "kubevipChartRepoUrl": None}
    await stack.set_options(**{**left, "kubevipGuestInstall": "disabled"})


@pytest_asyncio.fixture(scope="module")
async def probed(stack: Stack) -> AsyncIterator[Probed]:
    async with AsyncExitStack() as exits:
        probed = await open_probed(exits, stack, "probed", "--no-leader-election")
        await probed.is_served("before", seconds=20)
        asking = asyncio.create_task(probed.ask_for_ever())
        yield probed
        asking.cancel()


@pytest.mark.slow  # tests/unit/runtime/test_process.py and tests/operator/test_leaders.py have the same in virtual time
@pytest.mark.parametrize("kind", ["away", "failing"])
async def test_an_outage_makes_the_operator_not_ready_and_live_and_it_is_back_without_a_restart(
    probed: Probed, kind: str
) -> None:
    """Connections to the API server are cut, or it answers every request with a 500: a standby loses no Lease."""
    pid, proxy = probed.watched.pid, probed.watched.proxy
    since = time.monotonic()
    proxy.turn(State.AWAY if kind == "away" else State.FAILING)
    await probed.says("ready", False, since=since, seconds=GOOD_ANSWER_SECONDS)

    back = time.monotonic()
    proxy.turn(State.WELL)
    await probed.is_served(f"after-{kind}", seconds=BACK_SECONDS)
    await probed.says("ready", True, since=back, seconds=BACK_SECONDS)
    assert probed.watched.pid == pid
    assert [change for change in probed.changes if change[1:] == ("live", False)] == []


async def test_an_operator_with_a_hanging_guest_and_a_running_helm_ends_within_ten_seconds(
    probed: Probed,
) -> None:
    stack, operator = probed.stack, probed.watched.operator
    archives = await pack_charts(stack.fleet.folder / "health-charts")
    async with chart_repository(archives) as charts:
        await stack.set_options(kubevipGuestInstall="enabled", kubevipChartRepoUrl=charts.url, **INSTALLABLE)
        for name, fault in (("silent", Fault(hang=True)), ("slow", Fault(hang=True, only=is_helm))):
            plan = stack.player.plan_guest(name)
            route = stack.proxy.add_guest(plan.cluster_id, SimulatedGuest(latency_seconds=0.0))
            route.fault = fault
            await stack.player.create_guest(plan)

        async def works_on_both() -> bool:
            return bool(probed.watched.helm_processes()) and all(
                stack.proxy.requests_of(guest_id) for guest_id in stack.player.guests
            )

        await eventually(works_on_both, seconds=60)
        helm = probed.watched.helm_processes()
        assert await operator.stop() == 0, "killed: it did not end by itself"
        assert not any(map(is_running, helm))


# The last one, as it freezes the API server itself.


async def test_an_operator_whose_api_server_is_frozen_ends_within_ten_seconds(probed: Probed) -> None:
    operator = probed.watched.operator
    await probed.stack.set_options(kubevipGuestInstall="disabled")
    await operator.start()
    probed.stack.plane.pause()
    try:
        assert await operator.stop() == 0, "killed: it did not end by itself"
    finally:
        probed.stack.plane.resume()


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_helm(seen: SeenRequest) -> bool:
    return seen.user_agent.startswith("Helm")
