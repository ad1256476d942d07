"""Two operators as the chart runs them: one works, the other is ready to."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.installation import NAMESPACE
from localfleet.routes import Fault, SeenRequest
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.chart_source import INSTALLABLE, chart_repository, pack_charts
from tests.api.emptying import clear, is_empty
from tests.api.proxied import Proxied, proxied

pytestmark = pytest.mark.xdist_group("bare")

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/fipop-operator"
TENANT = "tenant"
TERM_OVER = "This replica stopped leading"
EXIT_SECONDS = 2.0
"""After a clean exit another leads within this time."""
KILL_SECONDS = 20.0
"""After any other end of the leader another leads within this time."""
PATIENCE = 3
"""How many times as long as documented a test waits: a machine may be loaded."""


@dataclass(slots=True, kw_only=True)
class Election:
    """A management cluster, and what is asked of its operators."""

    stack: Stack
    asked: int = 0

    async def lease(self) -> Json:
        found: Json = (await self.stack.client.get(LEASE))["spec"]
        return found

    async def leads(self, operator: Proxied, *, seconds: float) -> None:
        """Wait until this operator holds the Lease; `seconds` is what is documented."""
        await eventually(
            lambda: self.is_held_by(operator.name),
            seconds=PATIENCE * seconds,
            what=f"{operator.name} to lead",
        )

    async def is_held_by(self, name: str) -> bool:
        """Whether an operator of that name holds the Lease; "" for nobody."""
        holder = (await self.lease())["holderIdentity"]
        return bool(holder.startswith(f"{name}_") if name else not holder)

    async def ask(self) -> str:
        """Ask for one more address; the name of the floating IP."""
        self.asked += 1
        name = f"wish-{self.asked}"
        await self.stack.client.create(
            floating_ips(TENANT), build_floating_ip(TENANT, name, range_name="pool")
        )
        return name

    async def served(self, name: str, *, seconds: float = 30.0) -> None:
        async def is_served() -> bool:
            found = await self.stack.floating_ip(TENANT, name)
            return condition(found, "Allocated").get("status") == "True"

        await eventually(is_served, seconds=seconds, what=f"{name} to be served")


@pytest_asyncio.fixture(scope="module")
async def election(bare_stack: Stack) -> Election:
    await bare_stack.plane.create_namespace(TENANT)
    pool = build_range("pool", "10.31.0.0/24", quarantineSeconds=1)
    vlan = build_range(
        "vlan", "10.31.1.0/28", harvester="harvester-cluster1", network="vlan10", quarantineSeconds=1
    )
    for body in (pool, vlan):
        await bare_stack.client.create(RANGES, body)
    return Election(stack=bare_stack)


@pytest_asyncio.fixture(scope="module")
async def operators(election: Election) -> AsyncIterator[tuple[Proxied, Proxied]]:
    async with proxied(election.stack, "one") as one, proxied(election.stack, "other") as other:
        yield one, other
        await start_those_that_ended(one, other)
        await clear(election.stack)
        await is_empty(election.stack, RESERVATIONS)


@pytest_asyncio.fixture
async def pair(election: Election, operators: tuple[Proxied, Proxied]) -> tuple[Proxied, Proxied]:
    """The operator that leads, and the one that stands by; whatever the last test left of them."""
    await start_those_that_ended(*operators)

    async def is_settled() -> bool:
        return any([await election.is_held_by(operator.name) for operator in operators])

    await eventually(is_settled, seconds=PATIENCE * KILL_SECONDS)
    await election.served(await election.ask())
    one, other = operators
    return (one, other) if await election.is_held_by(one.name) else (other, one)


async def start_those_that_ended(*operators: Proxied) -> None:
    ended = [each.operator for each in operators if not each.operator.process.is_running]
    await asyncio.gather(*(operator.start() for operator in ended))


async def test_a_leader_that_was_stopped_past_its_lease_writes_nothing_that_is_not_its_any_more(
    election: Election, pair: tuple[Proxied, Proxied]
) -> None:
    first, second = pair
    wishes = [await election.ask() for _ in range(10)]
    first.send(signal.SIGSTOP)
    await election.leads(second, seconds=KILL_SECONDS)
    for wish in wishes:
        await election.served(wish)
    later = await election.ask()
    await election.served(later)
    await election.stack.client.delete(f"{floating_ips(TENANT)}/{wishes[0]}")
    before, pid = len(first.proxy.asked), first.pid
    first.send(signal.SIGCONT)
    await eventually(partial(lost_lease, first), seconds=60, what="the process to end")
    await eventually(first.operator.is_ready, seconds=60)
    assert first.pid != pid
    for wish in [later, await election.ask()]:
        await election.served(wish)
    # A request that had begun to go out goes out; it is refused, for what it was based on is no more.
    written = [
        asked
        for asked in first.proxy.asked[before:]
        if asked.is_write and asked.resource != "leases" and asked.status not in {404, 409}
    ]
    assert written == []
    assert await election.is_held_by(second.name)
    held = await election.stack.held()
    assert (
        len(held) == len(set(held.values())) == len(await election.stack.client.items(floating_ips(TENANT)))
    )


async def test_a_leader_without_its_api_server_has_stopped_its_work_and_helm_before_another_leads(
    election: Election, pair: tuple[Proxied, Proxied]
) -> None:
    """Helm hangs in a guest, and the leader loses its API server meanwhile."""
    stack = election.stack
    archives = await pack_charts(stack.fleet.folder / "election-charts")
    first, second = pair
    async with chart_repository(archives) as charts:
        guest = await stack.player.create_guest(
            stack.player.plan_guest("stuck"), SimulatedGuest(latency_seconds=0.0)
        )
        stack.proxy.guests[guest.cluster_id].fault = Fault(hang=True, only=is_helm)
        await stack.set_options(kubevipGuestInstall="enabled", kubevipChartRepoUrl=charts.url, **INSTALLABLE)
        helm = await eventually(helm_of(first), seconds=60, what="helm to hang")
        first.proxy.schedule = Schedule((Rule(on=On.ALL, do=Do.CUT_BEFORE, rate=1.0),))
        await election.leads(second, seconds=KILL_SECONDS)
        assert await lost_lease(first)
        assert not any(map(is_running, helm)), "what runs now ran when the other one began to lead"
        first.proxy.schedule = Schedule()
        await eventually(first.operator.is_ready, seconds=60)
        left = {**dict.fromkeys(INSTALLABLE), "kubevipChartRepoUrl": None}
        await stack.set_options(**{**left, "kubevipGuestInstall": "disabled"})
        await stack.player.delete_guest(guest)


@pytest.mark.slow
async def test_a_leader_whose_requests_hang_in_all_its_connections_keeps_the_lead(
    election: Election, pair: tuple[Proxied, Proxied]
) -> None:
    """It has 40 for its work, and asks for the kubeconfig of each guest cluster when it begins to lead."""
    stack, (first, second) = election.stack, pair
    plans = [stack.player.plan_guest(f"crowd-{number}") for number in range(45)]
    guests = await asyncio.gather(
        *(stack.player.create_guest(plan, SimulatedGuest(latency_seconds=0.0)) for plan in plans)
    )
    terms = len(second.log(TERM_OVER))
    second.proxy.schedule = Schedule((Rule(on=On.GET, do=Do.HANG, seconds=3600, plural="secrets", rate=1.0),))
    await first.operator.stop()
    await election.leads(second, seconds=EXIT_SECONDS)
    await eventually(lambda: hangs_in(second, connections=40), seconds=60, what="40 requests to hang")

    renewed: set[str] = set()

    async def is_renewed_often() -> bool:
        renewed.add((await election.lease())["renewTime"])
        return len(renewed) > 10

    await eventually(is_renewed_often, seconds=60, what="ten renewals, which take longer than a lead lasts")
    assert second.log(TERM_OVER)[terms:] == []
    second.proxy.schedule = Schedule()
    await asyncio.gather(*map(stack.player.delete_guest, guests))


async def hangs_in(operator: Proxied, *, connections: int) -> bool:
    """Whether so many requests of an operator were left without an answer."""
    return operator.proxy.schedule.struck >= connections


def is_helm(seen: SeenRequest) -> bool:
    return seen.user_agent.startswith("Helm")


async def lost_lease(operator: Proxied) -> bool:
    """Return whether a process of an operator ended as it lost its Lease, with a sentence that says so."""
    return any("was lost" in line["error"] for line in operator.log("Operator failed"))


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def helm_of(operator: Proxied) -> Callable[[], Awaitable[list[int]]]:
    async def look() -> list[int]:
        return operator.helm_processes()

    return look
