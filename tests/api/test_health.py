"""What the probes say while the API server is away or fails, or watches are dead; and how the program ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.fleet import LocalFleet
from localfleet.routes import Fault, SeenRequest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    RANGES,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
    open_stack,
)
from localfleet.waiting import eventually
from tests.api.chart_source import INSTALLABLE, chart_repository, pack_charts
from tests.api.proxied import Proxied, State, proxied

pytestmark = pytest.mark.xdist_group("health")

TENANT = "tenant"
GOOD_ANSWER_SECONDS = 30.0
"""How old the last read of an object may be."""
BACK_SECONDS = 30.0
SILENT_SECONDS = 120.0
PATIENCE = 3
"""How many times as long as documented a test waits: a machine may be loaded."""
WATCHES = {
    "watch-clusters.management.cattle.io",
    "watch-clusters.provisioning.cattle.io",
    "watch-floatingipranges.kubefip.k8s.binbash.org",
    "watch-floatingipreservations.kubefip.k8s.binbash.org",
    "watch-floatingips.kubefip.k8s.binbash.org",
    "watch-namespaces",
}
"""The checks of liveness that are about one watch each."""


class Harm(Enum):
    """What befalls the watches of an operator whose API server answers everything else."""

    ALL_MUTE = "nothing comes through any watch"
    ONE_HANGS = "watching floating IPs is never answered"
    ONE_IS_CUT = "watching namespaces ends in a cut connection, again and again"


EXPECTED = {
    Harm.ALL_MUTE: WATCHES,
    Harm.ONE_HANGS: {"watch-floatingips.kubefip.k8s.binbash.org"},
    Harm.ONE_IS_CUT: {"watch-namespaces"},
}
"""What is found out."""
RULES = {
    Harm.ONE_HANGS: Rule(on=On.WATCH, do=Do.HANG, seconds=3600, plural="floatingips", rate=1.0),
    Harm.ONE_IS_CUT: Rule(on=On.WATCH, do=Do.CUT_BEFORE, plural="namespaces", rate=1.0),
}


PROBE_TIMEOUT = aiohttp.ClientTimeout(total=20)


@dataclass(slots=True, kw_only=True)
class Probed:
    """An operator whose probes are asked all the time.

    `changes` has every change of an answer with its time: of "live", of "ready", and of each check of liveness.
    """

    stack: Stack
    watched: Proxied
    changes: list[tuple[float, str, bool]] = field(default_factory=list)

    async def ask_for_ever(self) -> None:
        last: dict[str, bool] = {}
        while True:
            answers = {**await self._liveness(), "ready": await self._readiness()}
            for probe, answer in answers.items():
                if last.get(probe) is not answer:
                    self.changes.append((time.monotonic(), probe, answer))
                last[probe] = answer
            await asyncio.sleep(0.25)

    async def _liveness(self) -> dict[str, bool]:
        """What liveness says as a whole, and check by check."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session,
                session.get(self._url("livez")) as answer,
            ):
                checks = (await answer.json())["checks"]
                return {"live": answer.ok, **{name: check["ok"] for name, check in checks.items()}}
        return {"live": False}

    async def _readiness(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session,
                session.get(self._url("readyz")) as answer,
            ):
                return answer.ok
        return False

    def _url(self, probe: str) -> str:
        return f"{self.watched.operator.health_url}/{probe}"

    async def says(self, probe: str, answer: bool, *, since: float, seconds: float) -> None:
        """Wait until a probe changes to this answer; `seconds` is what is documented."""

        async def has_changed() -> bool:
            return any(at > since and (name, said) == (probe, answer) for at, name, said in self.changes)

        await eventually(has_changed, seconds=PATIENCE * seconds, what=f"{probe}: {answer}")

    def red_since(self, since: float) -> set[str]:
        """What has said no since then, if only once."""
        return {probe for at, probe, said in self.changes if at > since and not said}

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


async def find_out(probed: Probed, harm: Harm) -> set[str]:
    """Do harm and wait until all that is expected is red; all that turned red."""
    proxy = probed.watched.proxy
    asking = asyncio.create_task(probed.ask_for_ever())
    try:
        since = time.monotonic()
        if harm is Harm.ALL_MUTE:
            proxy.turn(State.MUTE)
        else:
            proxy.schedule = Schedule((RULES[harm],))
            # A rule strikes a watch when it is opened: all have to be opened again.
            proxy.turn(State.AWAY)
            proxy.turn(State.WELL)
        expected = {"live", *EXPECTED[harm]}
        await asyncio.gather(
            *(probed.says(name, False, since=since, seconds=SILENT_SECONDS) for name in expected)
        )
        return probed.red_since(since)
    finally:
        asking.cancel()


@pytest_asyncio.fixture(scope="module")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    """A management cluster with ranges; its operators see it through proxies of their own."""
    async with open_stack(fleet, "health") as stack:
        await stack.plane.create_namespace(TENANT)
        await stack.client.create(RANGES, build_range("pool", "10.0.0.0/24"))
        vlan = build_range("vlan", "10.0.1.0/28", harvester="harvester-cluster1", network="vlan10")
        await stack.client.create(RANGES, vlan)
        yield stack


@pytest_asyncio.fixture(scope="module")
async def findings(
    stack: Stack, request: pytest.FixtureRequest
) -> AsyncIterator[dict[Harm, asyncio.Task[set[str]]]]:
    """What dead watches turn red: found out beside the other tests, by operators that nobody else relies on."""
    async with AsyncExitStack() as exits:
        tasks: dict[Harm, asyncio.Task[set[str]]] = {}
        for harm in harms_of(request.session.items):
            probed = await open_probed(exits, stack, harm.name.lower(), "--no-leader-election")
            tasks[harm] = asyncio.create_task(find_out(probed, harm))
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def harms_of(items: Sequence[pytest.Item]) -> list[Harm]:
    """The harms that this run has tests for."""
    functions = [item for item in items if isinstance(item, pytest.Function) and item.path == Path(__file__)]
    chosen = [function.callspec.params.get("harm") for function in functions if hasattr(function, "callspec")]
    return [harm for harm in Harm if harm in chosen]


@pytest_asyncio.fixture(scope="module")
async def probed(stack: Stack, findings: object) -> AsyncIterator[Probed]:
    async with AsyncExitStack() as exits:
        probed = await open_probed(exits, stack, "probed", "--no-leader-election")
        await probed.is_served("before", seconds=20)
        asking = asyncio.create_task(probed.ask_for_ever())
        yield probed
        asking.cancel()


@pytest.mark.parametrize("kind", ["away", pytest.param("failing", marks=pytest.mark.slow)])
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


@pytest.mark.timeout(PATIENCE * SILENT_SECONDS + 60)
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(Harm.ALL_MUTE, id="all_mute"),
        pytest.param(Harm.ONE_HANGS, id="one_hangs", marks=pytest.mark.slow),
        pytest.param(Harm.ONE_IS_CUT, id="one_is_cut", marks=pytest.mark.slow),
    ],
)
async def test_each_dead_watch_and_no_other_turns_liveness_red_in_time_though_the_api_server_answers(
    findings: dict[Harm, asyncio.Task[set[str]]], harm: Harm
) -> None:
    assert await findings[harm] == {"live", *EXPECTED[harm]}


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
