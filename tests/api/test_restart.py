"""A restart of the operator over a fleet in every state: nothing moves and nothing is written."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from localfleet.client import ApiClient
from localfleet.rancher_plan import Guest
from localfleet.routes import Fault
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
from tests.api.emptying import clear
from tests.api.proxied import Proxied, proxied

pytest_plugins = ("tests.api.bare_stack",)
pytestmark = pytest.mark.xdist_group("bare-stack")

TENANT = "restarted"
INTERVAL_SECONDS = 1
PASSES = 2
ADDRESSES = 7
"""Of five guest clusters, and the two that the small range has. One more is in quarantine."""


@dataclass(slots=True, kw_only=True)
class Settled:
    """A fleet at rest, and the operator that brought it there."""

    stack: Stack
    watched: Proxied
    guests: dict[str, SimulatedGuest] = field(default_factory=dict)

    async def versions(self) -> dict[str, str]:
        """The version of every object in the management cluster, and of every object in the guests."""
        found = await read_versions(self.stack.client)
        for guest_id, guest in self.guests.items():
            for (plural, namespace, name), held in guest.objects.items():
                found[f"{guest_id}: {plural} {namespace}/{name}"] = held["metadata"]["resourceVersion"]
        return found

    async def passes(self, number: int) -> None:
        """Wait until every guest that can be reached was passed over so often from now on."""
        self.stack.proxy.forget_requests()

        async def are_over() -> bool:
            counts = [
                sum(seen.path == "/api/v1/configmaps" for seen in self.stack.proxy.requests_of(guest_id))
                for guest_id in self.guests
            ]
            return all(count > number for count in counts)

        await eventually(are_over, seconds=60, what=f"{number} passes")


async def read_versions(client: ApiClient) -> dict[str, str]:
    """Read `kind namespace/name` -> resourceVersion of all that an API server serves, Leases apart."""
    groups = (await client.get("/apis"))["groups"]
    roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found = {}
    for root in roots:
        for served in (await client.get(root))["resources"]:
            plural = served["name"]
            if "/" in plural or "list" not in served["verbs"] or plural in {"leases", "componentstatuses"}:
                continue
            for each in await client.items(f"{root}/{plural}"):
                meta = each["metadata"]
                found[f"{plural} {meta.get('namespace', '')}/{meta['name']}"] = meta["resourceVersion"]
    return found


@pytest_asyncio.fixture(scope="module")
async def settled(bare_stack: Stack) -> AsyncIterator[Settled]:
    """Guests with addresses, without, unreachable and unserved; a full range, and addresses in quarantine."""
    stack = bare_stack
    await stack.set_options(
        operateGuestClusterInterval=str(INTERVAL_SECONDS), logLevel="Loud", kubevipNamespace="elsewhere"
    )
    async with proxied(stack, "again") as watched:
        settled = Settled(stack=stack, watched=watched)
        await stack.plane.create_namespace(TENANT)
        await stack.client.create(
            RANGES, build_range("vlan", "10.61.0.0/24", harvester="harvester-cluster1", network="vlan10")
        )
        await stack.client.create(RANGES, build_range("small", "10.61.1.0/30"))
        await stack.client.create(RANGES, build_range("over", "10.61.0.128/25,10.61.9.0/30"))
        await stack.client.create(RANGES, build_range("empty", "10.61.2.0/24", exclude=["10.61.2.0/24"]))
        await watched.operator.start()
        await bring_up_guests(settled)
        await ask_for_addresses(settled)
        await rest(settled)
        yield settled
        await stack.set_options(logLevel=None, kubevipNamespace=None, operateGuestClusterInterval=None)
        await clear(stack)


async def bring_up_guests(settled: Settled) -> None:
    stack = settled.stack
    for name in ("one", "two", "three"):
        target = SimulatedGuest(latency_seconds=0.0)
        plan = stack.player.plan_guest(name)
        await stack.player.create_guest(plan, target)
        settled.guests[plan.cluster_id] = target
    hanging = await create_guest(stack, "hanging")
    stack.proxy.guests[hanging.cluster_id].fault = Fault(status=500)
    gone = await create_guest(stack, "gone")
    await stack.player.disconnect(gone)
    # No range is for its network: an event says so.
    await create_guest(stack, "unserved", network="default/vlan99")

    async def has_first() -> bool:
        return await stack.client.find(f"{RESERVATIONS}/default.10.61.0.1") is not None

    await eventually(has_first, what="the first address to be held")


async def create_guest(stack: Stack, name: str, *, network: str = "default/vlan10") -> Guest:
    plan = stack.player.plan_guest(name, network=network)
    return await stack.player.create_guest(plan, SimulatedGuest(latency_seconds=0.0))


async def ask_for_addresses(settled: Settled) -> None:
    """Two addresses for four who want one, one that is taken, one out of range, one that is released."""
    client = settled.stack.client
    wishes = {
        "first": {"range_name": "small"},
        "second": {"range_name": "small"},
        "waits": {"range_name": "small"},
        "waits-too": {"range_name": "small"},
        "taken": {"range_name": "vlan", "ipaddress": "10.61.0.1"},
        "outside": {"range_name": "vlan", "ipaddress": "192.0.2.1"},
        "wrong-name": {"range_name": "vlan", "cluster": "nobody", "ipaddress": "10.61.0.200"},
        "passing": {"range_name": "vlan", "ipaddress": "10.61.0.99"},
        "nowhere": {"range_name": "none"},
    }
    for name, wish in wishes.items():
        await client.create(floating_ips(TENANT), build_floating_ip(TENANT, name, **wish))

    async def all_are_answered() -> bool:
        found = await client.items(floating_ips(TENANT))
        return all(condition(each, "Ready") for each in found)

    await eventually(all_are_answered, seconds=60)
    await client.delete(f"{floating_ips(TENANT)}/passing")


async def rest(settled: Settled) -> None:
    """Wait until several passes over each guest and as many looks in a row have changed nothing."""

    async def is_at_rest() -> bool:
        before = await settled.versions()
        await settled.passes(PASSES)
        return await settled.versions() == before

    async def holds_what_is_named() -> bool:
        reservations = await settled.stack.client.items(RESERVATIONS)
        assert len(reservations) == ADDRESSES + 1, [each["spec"] for each in reservations]
        return True

    # A claim whose answer came too late is given back 25 s later: until then the fleet only seems to rest.
    await eventually(
        holds_what_is_named, seconds=90, what="one reservation for each address and a quarantine"
    )
    await eventually(is_at_rest, seconds=60, what="the fleet to come to rest")


async def test_a_restart_writes_nothing_in_the_management_cluster_and_nothing_in_the_guests(
    settled: Settled,
) -> None:
    reservations = await settled.stack.client.items(RESERVATIONS)
    quarantined = [each["spec"] for each in reservations if "quarantinedUntil" in each["spec"]]
    assert [spec["address"] for spec in quarantined] == ["10.61.0.99"], quarantined
    assert sum("quarantinedUntil" not in each["spec"] for each in reservations) == ADDRESSES
    waiting = await settled.stack.floating_ip(TENANT, "waits")
    assert condition(waiting, "Allocated")["reason"] == "RangeFull"
    before = await settled.versions()
    asked = len(settled.watched.proxy.asked)

    assert await settled.watched.operator.stop() == 0
    await settled.watched.operator.start()
    await settled.passes(PASSES)

    assert await settled.versions() == before
    tried = {
        (each.verb, each.resource, each.name, each.status)
        for each in settled.watched.proxy.asked[asked:]
        if each.is_write and each.resource not in {"leases", "events"}
    }
    assert tried == set(), "what fails changes nothing, and yet it was tried"
