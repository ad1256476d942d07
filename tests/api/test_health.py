"""What the probes say while the API server is away or fails, or watches are dead; and how the program ends."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
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

TENANT = "tenant"
GOOD_ANSWER_SECONDS = 30.0
BACK_SECONDS = 30.0
SILENT_SECONDS = 120.0
WATCHES = {
    "watch-clusters.management.cattle.io",
    "watch-clusters.provisioning.cattle.io",
    "watch-floatingipranges.kubefip.k8s.binbash.org",
    "watch-floatingipreservations.kubefip.k8s.binbash.org",
    "watch-floatingips.kubefip.k8s.binbash.org",
    "watch-kube-fip-config",
    "watch-namespaces",
}
"""The checks of liveness that are about one watch each."""


class Harm(Enum):
    """What befalls the watches of an operator whose API server answers everything else."""

    ALL_MUTE = "nothing comes through any watch; the settings, which are listed again, are refused"
    ONE_HANGS = "watching floating IPs is never answered"
    ONE_IS_CUT = "watching namespaces ends in a cut connection, again and again"


EXPECTED = {
    Harm.ALL_MUTE: WATCHES,
    Harm.ONE_HANGS: {"watch-floatingips.kubefip.k8s.binbash.org"},
    Harm.ONE_IS_CUT: {"watch-namespaces"},
}
"""What is found out."""
RULES = {
    Harm.ALL_MUTE: Rule(on=On.LIST, do=Do.STATUS, status=403, plural="configmaps", rate=1.0),
    Harm.ONE_HANGS: Rule(on=On.WATCH, do=Do.HANG, seconds=3600, plural="floatingips", rate=1.0),
    Harm.ONE_IS_CUT: Rule(on=On.WATCH, do=Do.CUT_BEFORE, plural="namespaces", rate=1.0),
}


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
            answers = {**await self._liveness(), "ready": await self.watched.operator.is_ready()}
            for probe, answer in answers.items():
                if last.get(probe) is not answer:
                    self.changes.append((time.monotonic(), probe, answer))
                last[probe] = answer
            await asyncio.sleep(0.25)

    async def _liveness(self) -> dict[str, bool]:
        """What liveness says as a whole, and check by check."""
        timeout = aiohttp.ClientTimeout(total=2)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(f"{self.watched.operator.health_url}/livez") as answer,
            ):
                checks = (await answer.json())["checks"]
                return {"live": answer.ok, **{name: check["ok"] for name, check in checks.items()}}
        return {"live": False}

    async def says(self, probe: str, answer: bool, *, since: float, seconds: float) -> float:
        """Wait until a probe changes to this answer; the seconds from `since` to then."""

        async def has_changed() -> float | None:
            return next(
                (
                    at - since
                    for at, name, said in self.changes
                    if (name, said) == (probe, answer) and at > since
                ),
                None,
            )

        return await eventually(has_changed, seconds=seconds, what=f"{probe}: {answer}")

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

        await eventually(served, seconds=seconds, what=f"{name} to be served")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """After how many seconds of the harm liveness and each check that was to fail turned red; and all that did."""

    seconds: dict[str, float]
    red: set[str]


async def open_managed(exits: AsyncExitStack, fleet: LocalFleet, name: str) -> Stack:
    """A management cluster with ranges."""
    stack = await exits.enter_async_context(open_stack(fleet, name))
    await stack.plane.create_namespace(TENANT)
    await stack.client.create(RANGES, build_range("pool", "10.0.0.0/24"))
    vlan = build_range("vlan", "10.0.1.0/28", harvester="harvester-cluster1", network="vlan10")
    await stack.client.create(RANGES, vlan)
    return stack


async def open_probed(exits: AsyncExitStack, stack: Stack, name: str) -> Probed:
    """An operator, which is ready."""
    watched = await exits.enter_async_context(proxied(stack, name))
    await watched.operator.start()
    return Probed(stack=stack, watched=watched)


async def find_out(probed: Probed, harm: Harm) -> Finding:
    """Do harm and wait until all that is expected is red."""
    proxy = probed.watched.proxy
    asking = asyncio.create_task(probed.ask_for_ever())
    try:
        proxy.schedule = Schedule((RULES[harm],))
        since = time.monotonic()
        if harm is Harm.ALL_MUTE:
            proxy.turn(State.MUTE)
        else:
            # A rule strikes a watch when it is opened: all have to be opened again.
            proxy.turn(State.AWAY)
            proxy.turn(State.WELL)
        expected = sorted({"live", *EXPECTED[harm]})
        patience = SILENT_SECONDS + 10
        seconds = await asyncio.gather(
            *(probed.says(name, False, since=since, seconds=patience) for name in expected)
        )
        return Finding(seconds=dict(zip(expected, seconds, strict=True)), red=probed.red_since(since))
    finally:
        asking.cancel()


@pytest_asyncio.fixture(scope="module")
async def findings(fleet: LocalFleet) -> AsyncIterator[dict[Harm, asyncio.Task[Finding]]]:
    """What came of dead watches: operators of one management cluster, found out at once and beside other tests."""
    async with AsyncExitStack() as exits:
        stack = await open_managed(exits, fleet, "mute")
        harmed = {harm: await open_probed(exits, stack, harm.name.lower()) for harm in Harm}
        tasks = {harm: asyncio.create_task(find_out(probed, harm)) for harm, probed in harmed.items()}
        yield tasks
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


@pytest_asyncio.fixture(scope="module")
async def probed(fleet: LocalFleet, findings: object) -> AsyncIterator[Probed]:
    async with AsyncExitStack() as exits:
        probed = await open_probed(exits, await open_managed(exits, fleet, "outages"), "probed")
        await probed.is_served("before", seconds=20)
        asking = asyncio.create_task(probed.ask_for_ever())
        yield probed
        asking.cancel()


@pytest.mark.parametrize("kind", ["away", "failing"])
async def test_an_outage_makes_the_operator_not_ready_and_live_and_it_is_back_without_a_restart(
    probed: Probed, kind: str
) -> None:
    """The API server is gone, or answers every request with a 500."""
    pid = probed.watched.pid
    since = time.monotonic()
    if kind == "away":
        await probed.stack.plane.stop_api()
    else:
        probed.watched.proxy.turn(State.FAILING)
    unready_after = await probed.says("ready", False, since=since, seconds=60)
    # The last good answer may be as old as the pause between two renewals of the Lease.
    assert GOOD_ANSWER_SECONDS - 5 < unready_after < GOOD_ANSWER_SECONDS + 5

    if kind == "away":
        await probed.stack.plane.start_api()
    else:
        probed.watched.proxy.turn(State.WELL)
    back = time.monotonic()
    await probed.is_served(f"after-{kind}", seconds=BACK_SECONDS)
    assert await probed.says("ready", True, since=since, seconds=BACK_SECONDS)
    assert time.monotonic() - back < BACK_SECONDS
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

        await eventually(works_on_both, seconds=20)
        helm = probed.watched.helm_processes()
        since = time.monotonic()
        assert await operator.stop() == 0
        assert time.monotonic() - since < 10
        assert not any(map(is_running, helm))
        messages = [line["message"] for line in probed.watched.log()[-20:]]
        assert messages[-1] == "stopped"


async def test_an_operator_whose_api_server_is_frozen_ends_within_ten_seconds(probed: Probed) -> None:
    operator = probed.watched.operator
    await probed.stack.set_options(kubevipGuestInstall="disabled")
    await operator.start()
    probed.stack.plane.pause()
    try:
        since = time.monotonic()
        assert await operator.stop() == 0
        assert time.monotonic() - since < 10
    finally:
        probed.stack.plane.resume()


@pytest.mark.parametrize("harm", Harm, ids=lambda harm: harm.name.lower())
async def test_each_dead_watch_and_no_other_turns_liveness_red_in_time_though_the_api_server_answers(
    findings: dict[Harm, asyncio.Task[Finding]], harm: Harm
) -> None:
    finding = await findings[harm]
    late = {name: seconds for name, seconds in finding.seconds.items() if seconds >= SILENT_SECONDS}
    assert late == {}
    assert finding.red == {"live", *EXPECTED[harm]}


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_helm(seen: SeenRequest) -> bool:
    return seen.user_agent.startswith("Helm")
