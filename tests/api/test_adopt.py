"""`fipop adopt --dry-run` foretells what the operator then does, and writes nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from localfleet.client import ApiClient
from localfleet.errors import ApiError
from localfleet.simulated import SimulatedGuest
from localfleet.stack import (
    ALL_FLOATING_IPS,
    RANGES,
    RESERVATIONS,
    Stack,
    build_floating_ip,
    build_range,
    condition,
    floating_ips,
)
from localfleet.waiting import eventually
from tests.api.cli.commands import Commands
from tests.api.emptying import clear
from tests.api.predecessor import make_reservations_younger

pytestmark = pytest.mark.xdist_group("bare")

OURS = (RANGES, RESERVATIONS, ALL_FLOATING_IPS)


@pytest_asyncio.fixture
async def stack(bare_stack: Stack) -> AsyncIterator[Stack]:
    stack = bare_stack
    yield stack
    await clear(stack)
    await stack.operators[-1].stop()


async def versions(stack: Stack) -> dict[str, str]:
    """Every object of every kind that fipop may write, with its version."""
    found = {}
    for path in (*OURS, "/api/v1/events", "/api/v1/configmaps", "/api/v1/secrets"):
        for each in await stack.client.items(path):
            metadata = each["metadata"]
            found[f"{path} {metadata.get('namespace')}/{metadata['name']}"] = metadata["resourceVersion"]
    return found


async def leave_behind(stack: Stack, one: str, other: str) -> None:
    """What kube-fip-operator leaves: duplicates, overlaps, objects without spec, addresses out of range."""
    client = stack.client
    await client.create(
        RANGES, build_range("vlan", "10.44.0.0/26", harvester="harvester-cluster1", network="vlan10")
    )
    named: dict[str, Any] = {"range_name": "vlan"}
    older = (
        (one, "first", {**named, "cluster": "one", "ipaddress": "10.44.0.10"}),
        (one, "outside", {**named, "cluster": "one", "ipaddress": "10.9.9.9"}),
        (one, "nowhere", {"range_name": "no-such-range", "cluster": "one", "ipaddress": "10.44.0.12"}),
        (one, "odd", {**named, "cluster": "one", "ipaddress": "10.44.0.999"}),
        (one, "without-address", {**named, "cluster": "one"}),
    )
    younger = (
        (other, "second", {**named, "cluster": "two", "ipaddress": "10.44.0.10"}),
        (other, "in-the-overlap", {"range_name": "overlapping", "cluster": "two", "ipaddress": "10.44.0.70"}),
        (other, "strangers", {**named, "cluster": "somebody-elses", "ipaddress": "10.44.0.15"}),
    )
    for namespace, name, fields in older:
        await leave_floating_ip(client, namespace, name, fields)
    await asyncio.sleep(1.1)  # times of creation have whole seconds, and the older one wins
    await client.create(RANGES, build_range("overlapping", "10.44.0.32-10.44.0.80"))
    for namespace, name, fields in younger:
        await leave_floating_ip(client, namespace, name, fields)


async def leave_floating_ip(client: ApiClient, namespace: str, name: str, fields: dict[str, Any]) -> None:
    try:
        await client.create(floating_ips(namespace), build_floating_ip(namespace, name, **fields))
    except ApiError:
        # What our CRD refuses by now the predecessor's let through: such an object has no spec instead.
        bare = build_floating_ip(namespace, name, range_name="vlan", cluster=fields["cluster"])
        del bare["spec"]
        await client.create(floating_ips(namespace), bare)


async def test_what_is_foretold_comes_true_and_nothing_is_written(stack: Stack) -> None:
    player, inside = stack.player, SimulatedGuest(latency_seconds=0.0)
    one = await player.create_guest(player.plan_guest("one"), inside)
    two = await player.create_guest(player.plan_guest("two"), SimulatedGuest(latency_seconds=0.0))
    await leave_behind(stack, one.cluster_id, two.cluster_id)
    data = {"cidr-global": "10.44.0.10/32", "cidr-web": "10.44.0.44/32"}
    inside.put("configmaps", {"metadata": {"name": "kubevip", "namespace": "kube-system"}, "data": data})
    await make_reservations_younger(stack)
    before = await versions(stack)
    commands = Commands(kubeconfig=stack.plane.admin_kubeconfig)
    asked = ("adopt", "--dry-run", "--guests", "-o", "json")
    ended = await commands.run(*asked)
    assert ended.code == 1, ended.out + ended.err
    assert await versions(stack) == before, "something was written"
    foretold = ended.json()
    fates = {each["name"]: each["fate"] for each in foretold["floatingIps"]}
    assert fates["first"] == "adopted"
    assert fates["second"] == "duplicate"
    assert fates["outside"] == "out-of-range"
    assert fates["without-address"] == "new-address"
    assert fates["in-the-overlap"] == "adopted"
    assert [each["range"] for each in foretold["overlaps"]] == ["overlapping"]
    guest = next(each for each in foretold["guests"] if each["guest"] == one.cluster_id)
    assert "10.44.0.44" in guest["surplus"]
    await stack.start_operator()

    async def has_come_true() -> bool:
        for each in foretold["floatingIps"]:
            found = await stack.floating_ip(each["namespace"], each["name"])
            status = found.get("status") or {}
            held = sorted(status.get("addresses") or [])
            assert held == sorted(each["after"]), (each, status)
            told = condition(found, "Allocated")
            assert (told.get("reason"), told.get("message")) == (each["reason"], each["message"]), each
        return True

    await eventually(has_come_true, seconds=60, what="what was foretold")
    real = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for each in await stack.client.items(ALL_FLOATING_IPS)
    }
    assert real == {(each["namespace"], each["name"]) for each in foretold["floatingIps"]}
    after = (await commands.run(*asked)).json()
    assert after["counts"]["created"] == 0


async def test_adopting_is_the_operators(bare_stack: Stack) -> None:
    ended = await Commands(kubeconfig=bare_stack.plane.admin_kubeconfig).run("adopt")
    assert ended.code == 2
    assert "--dry-run" in ended.err
