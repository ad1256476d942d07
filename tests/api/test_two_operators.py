"""Two operators at work side by side without election: the reservations alone keep every address with one owner."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.stack import ALL_FLOATING_IPS, RANGES, RESERVATIONS, Stack, condition
from localfleet.stack import floating_ips as floating_ips_of
from localfleet.waiting import eventually
from tests.api.emptying import clear
from tests.api.proxied import Proxied, proxied
from tests.api.tenant import Json, Tenant, open_tenant

pytest_plugins = ("tests.api.bare_stack",)
pytestmark = pytest.mark.xdist_group("bare-stack")

CLAIMS = 200
LOST_SHARE = 0.1
"""Of the answers to writes, each of which the API server has done."""


@pytest.fixture(scope="module")
def stack(bare_stack: Stack) -> Stack:
    return bare_stack


@pytest_asyncio.fixture(scope="module")
async def operators(stack: Stack) -> AsyncIterator[list[Proxied]]:
    """Two at work; what their proxies do to their requests is for each test to say."""
    async with AsyncExitStack() as exits:
        found = [
            await exits.enter_async_context(proxied(stack, name, "--no-leader-election"))
            for name in ("left", "right")
        ]
        await asyncio.gather(*(each.operator.start() for each in found))
        yield found
        await clear(stack)


@pytest_asyncio.fixture
async def tenant(
    stack: Stack,
    operators: list[Proxied],
    numbers: Iterator[int],
) -> AsyncIterator[Tenant]:
    async with open_tenant(stack, numbers) as tenant:
        yield tenant


@dataclass(slots=True)
class History:
    """Every version of reservations and floating IPs since `begin`, judged in the order in which they were written."""

    stack: Stack
    events: list[tuple[int, str, Json]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def begin(self) -> None:
        for path in (RESERVATIONS, ALL_FLOATING_IPS):
            version = (await self.stack.client.get(path))["metadata"]["resourceVersion"]
            self.tasks.append(asyncio.create_task(self._follow(path, version)))

    async def end(self) -> None:
        await eventually(self._has_caught_up, what="the watches to show all")
        for task in self.tasks:
            assert not task.done(), "a watch ended before the history did"
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.events.sort(key=lambda event: event[0])

    async def _has_caught_up(self) -> bool:
        seen = {version for version, _, _ in self.events}
        living = [
            each for path in (RESERVATIONS, ALL_FLOATING_IPS) for each in await self.stack.client.items(path)
        ]
        return seen.issuperset(int(each["metadata"]["resourceVersion"]) for each in living)

    def violations(self) -> list[str]:
        """What no revision may show: an address with two owners, or one that passed on without a release."""
        found: list[str] = []
        holders: dict[str, tuple[str, str]] = {}
        named: dict[str, dict[tuple[str, str], None]] = {}
        statuses: dict[tuple[str, str], list[str]] = {}
        for version, event, obj in self.events:
            if obj["kind"] == "FloatingIPReservation":
                self._judge_reservation(version, event, obj, holders, found)
            else:
                self._judge_status(version, event, obj, statuses, named, found)
        return found

    @staticmethod
    def _judge_reservation(
        version: int, event: str, obj: Json, holders: dict[str, tuple[str, str]], found: list[str]
    ) -> None:
        name, spec = obj["metadata"]["name"], obj["spec"]
        owner = (spec["owner"]["namespace"], spec["owner"]["name"])
        before = holders.get(name)
        if event == "DELETED" or "quarantinedUntil" in spec:
            holders.pop(name, None)
            return
        if before is not None and before != owner:
            found.append(f"{version}: {name} passed from {before} to {owner} without a release")
        holders[name] = owner

    @staticmethod
    def _judge_status(
        version: int,
        event: str,
        obj: Json,
        statuses: dict[tuple[str, str], list[str]],
        named: dict[str, dict[tuple[str, str], None]],
        found: list[str],
    ) -> None:
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        after = [] if event == "DELETED" else (obj.get("status") or {}).get("addresses") or []
        for address in statuses.get(key, []):
            named[address].pop(key, None)
        statuses[key] = after
        for address in after:
            named.setdefault(address, {})[key] = None
            if len(named[address]) > 1:
                found.append(f"{version}: {address} stands in the status of {sorted(named[address])}")

    async def _follow(self, path: str, version: str) -> None:
        while True:  # an API server ends a watch whose reader falls behind
            async for event in self.stack.client.watch(path, resource_version=version):
                obj = event["object"]
                version = obj["metadata"]["resourceVersion"]
                self.events.append((int(version), event["type"], obj))


@pytest.mark.slow
async def test_200_claims_side_by_side_with_lost_answers_make_no_duplicate_at_any_revision_and_leave_no_leak(
    stack: Stack, operators: list[Proxied], tenant: Tenant
) -> None:
    lost = [
        Schedule([Rule(on=On.WRITE, do=Do.CUT_AFTER, rate=LOST_SHARE)], seed=number) for number in range(2)
    ]
    for each, schedule in zip(operators, lost, strict=True):
        each.proxy.schedule = schedule
    history = History(stack)
    await history.begin()
    pool = await tenant.offer("pool", "10.251.0.0/23", quarantineSeconds=1)
    names = [f"fip-{index}" for index in range(CLAIMS)]
    await asyncio.gather(*(tenant.ask(name, pool) for name in names))
    await tenant.all_served(names)
    # While the first are let go the next come, some of them under the old names.
    await asyncio.gather(*(tenant.delete(name) for name in names[::2]))
    await asyncio.gather(*(tenant.ask(name, pool) for name in names[::4]))
    living = [name for index, name in enumerate(names) if index % 2 or index % 4 == 0]
    await tenant.all_served(living)
    await eventually(lambda: _is_settled(tenant, pool, living), seconds=60)
    await history.end()
    for each in operators:
        each.proxy.schedule = Schedule()
    assert all(schedule.struck > CLAIMS * LOST_SHARE for schedule in lost), "both lost answers"
    assert history.violations() == []
    assert len({event[2]["metadata"]["uid"] for event in history.events}) >= 2 * CLAIMS, "it was looked at"


async def _is_settled(tenant: Tenant, pool: str, living: list[str]) -> bool:
    """Whether every reservation that is held is somebody's who is alive, and is what that one's status names."""
    everywhere = await tenant.stack.client.items(RESERVATIONS)
    reservations = [each for each in everywhere if each["spec"]["range"] == pool]
    floating_ips = await tenant.stack.client.items(floating_ips_of(tenant.namespace))
    held = {
        each["spec"]["address"]: each["spec"]["owner"]["name"]
        for each in reservations
        if "quarantinedUntil" not in each["spec"]
    }
    named = {
        address: each["metadata"]["name"] for each in floating_ips for address in each["status"]["addresses"]
    }
    assert held == named
    assert sorted(held.values()) == sorted(living)
    return True


async def test_one_static_address_that_50_ask_for_at_once_goes_to_one_and_the_others_are_told_whom(
    tenant: Tenant,
) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/24")
    names = [f"fip-{index}" for index in range(50)]
    await asyncio.gather(*(tenant.ask(name, pool, ipaddress=f"{tenant.net}9") for name in names))

    async def is_decided() -> str:
        states = {name: condition(await tenant.read(name), "Allocated") for name in names}
        winners = [name for name, state in states.items() if state.get("status") == "True"]
        assert len(winners) == 1, winners
        winner = winners[0]
        losers = [state for name, state in states.items() if name != winner]
        assert all(f"{tenant.namespace}/{winner}" in state.get("message", "") for state in losers)
        return winner

    winner = await eventually(is_decided, seconds=60)
    assert await tenant.holders() == {f"{tenant.net}9": winner}


async def test_a_full_range_is_filled_to_its_last_address_by_both(tenant: Tenant) -> None:
    pool = await tenant.offer("pool", f"{tenant.net}0/27", quarantineSeconds=1)
    names = [f"fip-{index}" for index in range(35)]
    await asyncio.gather(*(tenant.ask(name, pool) for name in names))

    async def is_full() -> bool:
        counts = (await tenant.stack.client.get(f"{RANGES}/{pool}"))["status"]["capacity"]
        assert counts["used"] == counts["total"] == 30, counts
        return len(await tenant.holders()) == 30

    await eventually(is_full, seconds=60)

    async def are_told() -> bool:
        reasons = [condition(await tenant.read(name), "Allocated")["reason"] for name in names]
        assert sorted(reasons) == ["Allocated"] * 30 + ["RangeFull"] * 5
        return True

    await eventually(are_told)
