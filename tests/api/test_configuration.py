"""The ConfigMap `kubevip` of every guest that has a floating IP: our keys in it, and nobody else's touched."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.rancher_plan import GuestKind
from localfleet.simulated import SimulatedGuest
from localfleet.stack import Stack, build_range, floating_ips
from localfleet.waiting import eventually
from tests.api.borrowing import borrow
from tests.api.served_guest import (
    CONFIG_MAP,
    ServedGuest,
    bring_up,
    wait_for_condition,
)

pytest_plugins = ("tests.api.shared_stacks",)
pytestmark = pytest.mark.xdist_group("quick-stack")

RANGE = "vlan"


@pytest_asyncio.fixture(scope="module")
async def stack(quick_stack: Stack) -> AsyncIterator[Stack]:
    body = build_range(RANGE, "10.77.0.0/16", harvester="harvester-cluster1", network="vlan10")
    async with borrow(quick_stack, body) as stack:
        yield stack


@pytest_asyncio.fixture
async def guest(
    stack: Stack, second_guest: ControlPlane, numbers: Iterator[int]
) -> AsyncIterator[ServedGuest]:
    """A guest with the floating IP that fipop made for it, and passes every second."""
    async with bring_up(stack, second_guest, stack.player.plan_guest(f"plain-{next(numbers)}")) as guest:
        await guest.has_condition()
        yield guest


@pytest_asyncio.fixture
async def own(stack: Stack, second_guest: ControlPlane, numbers: Iterator[int]) -> AsyncIterator[ServedGuest]:
    """A guest for which fipop makes no floating IP: the test asks for its own."""
    plan = stack.player.plan_guest(f"own-{next(numbers)}")
    plan = replace(plan, annotations={"kubefip.k8s.binbash.org/floating-ip": "false"})
    async with bring_up(stack, second_guest, plan) as guest:
        yield guest


@pytest_asyncio.fixture(scope="module")
async def witness(stack: Stack) -> AsyncIterator[ServedGuest]:
    """Another guest, in memory, with passes every second: they tell that time goes by."""
    plan = stack.player.plan_guest("witness")
    async with bring_up(stack, SimulatedGuest(latency_seconds=0.0), plan) as witness:
        await witness.has_condition()
        yield witness


@pytest.fixture
def pair(numbers: Iterator[int]) -> tuple[str, str]:
    """Two addresses that no other test asks for: what was held waits in quarantine. The second is the lower one."""
    net = f"10.77.{next(numbers) % 250 + 1}."
    return f"{net}200", f"{net}100"


async def address_of(guest: ServedGuest, name: str | None = None) -> str:
    found: str = (await guest.floating_ip(name))["status"]["addresses"][0]
    return found


def writes_of(guest: ServedGuest) -> list[str]:
    return [f"{one.method} {one.path}" for one in guest.stack.proxy.requests_of(guest.id) if one.is_write]


async def leave_behind(guest: ServedGuest, **data: str) -> None:
    """A ConfigMap as kube-fip-operator, a Go client, left it: an `Update` manager, no marks of ours."""
    named = {key.replace("_", "-"): text for key, text in data.items()}
    path = CONFIG_MAP.format("kube-system").rpartition("/")[0]
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevip"}, "data": named}
    await guest.client.request("POST", path, body=body, query={"fieldManager": "main"})


@pytest.mark.parametrize("labels", [{}, {"kube-vip": "true"}], ids=["not opted in", "opted in"])
async def test_every_guest_with_a_floating_ip_gets_its_address(
    stack: Stack, second_guest: ControlPlane, numbers: Iterator[int], labels: dict[str, str]
) -> None:
    plan = stack.player.plan_guest(f"any-{next(numbers)}", labels=labels)
    async with bring_up(stack, second_guest, plan) as guest:
        found = await guest.has_condition("GuestConfigured")
        assert await guest.data() == {"cidr-global": f"{found['status']['addresses'][0]}/32"}


async def test_a_guest_elsewhere_than_on_harvester_gets_it_too(
    stack: Stack, second_guest: ControlPlane, numbers: Iterator[int], pair: tuple[str, str]
) -> None:
    plan = stack.player.plan_guest(f"elsewhere-{next(numbers)}", kind=GuestKind.OTHER_MACHINES)
    async with bring_up(stack, second_guest, plan) as guest:
        await guest.ask("vip", RANGE, cluster=guest.name, ipaddress=pair[0])
        await guest.has_data({"cidr-global": f"{pair[0]}/32"})


@pytest.mark.parametrize("update", ["true", "false"])
async def test_what_the_predecessor_left_is_taken_over_and_after_a_move_nothing_stale_stays(
    own: ServedGuest, update: str, pair: tuple[str, str]
) -> None:
    await leave_behind(own, cidr_global=f"{pair[0]}/32", range_apps="192.168.9.1-192.168.9.9")
    await own.ask("vip", RANGE, update=update, ipaddress=pair[0])
    await own.has_condition("GuestConfigured", name="vip")
    assert await own.data() == {"cidr-global": f"{pair[0]}/32", "range-apps": "192.168.9.1-192.168.9.9"}
    await own.stack.client.patch(own.path("vip"), {"spec": {"ipaddress": pair[1]}})
    await own.has_data({"cidr-global": f"{pair[1]}/32", "range-apps": "192.168.9.1-192.168.9.9"})
    await own.stack.client.patch(own.path("vip"), {"spec": {"serviceNamespace": "apps"}})
    await own.has_data({"cidr-apps": f"{pair[1]}/32", "range-apps": "192.168.9.1-192.168.9.9"})
    await own.stack.client.delete(own.path("vip"))
    await own.has_data({"range-apps": "192.168.9.1-192.168.9.9"})


async def test_somebody_elses_value_is_overwritten_only_where_the_floating_ip_says_so(
    own: ServedGuest, pair: tuple[str, str]
) -> None:
    await leave_behind(own, cidr_global="192.168.9.0/24")
    await own.ask("vip", RANGE, update="false", ipaddress=pair[0])
    await own.has_condition(
        "GuestConfigured", "False", name="vip", reason="ForeignValue", words="cidr-global"
    )
    assert await own.data() == {"cidr-global": "192.168.9.0/24"}
    annotation = {"updateConfigMap": "true"}
    await own.stack.client.patch(own.path("vip"), {"metadata": {"annotations": annotation}})
    await own.has_data({"cidr-global": f"{pair[0]}/32"})
    await own.has_condition("GuestConfigured", name="vip")


async def test_an_edited_value_is_repaired_with_one_write_for_each_edit(guest: ServedGuest) -> None:
    address = await address_of(guest)
    edits: list[dict[str, str | None]] = [{"cidr-global": "192.168.9.0/24"}, {"cidr-global": None}]
    for edit in edits:
        guest.stack.proxy.forget_requests(guest.id)
        await guest.client.patch(CONFIG_MAP.format("kube-system"), {"data": edit})
        await guest.has_data({"cidr-global": f"{address}/32"})
        assert len(writes_of(guest)) == 1
    await guest.client.delete(CONFIG_MAP.format("kube-system"))
    await guest.has_data({"cidr-global": f"{address}/32"})
    await guest.passes(2)
    assert writes_of(guest) == []


async def test_an_edited_value_stays_where_the_floating_ip_does_not_update(
    own: ServedGuest, pair: tuple[str, str]
) -> None:
    await own.ask("vip", RANGE, update="false", ipaddress=pair[0])
    await own.has_data({"cidr-global": f"{pair[0]}/32"})
    await own.client.patch(CONFIG_MAP.format("kube-system"), {"data": {"cidr-global": "192.168.9.0/24"}})
    await own.has_condition("GuestConfigured", "False", name="vip", reason="ForeignValue")
    await own.passes(2)
    assert await own.data() == {"cidr-global": "192.168.9.0/24"}
    assert writes_of(own) == []


async def test_two_floating_ips_of_a_guest_merge_in_the_order_in_which_they_were_made(
    own: ServedGuest, pair: tuple[str, str]
) -> None:
    await own.ask("older", RANGE, ipaddress=pair[0], interface="eth0")
    await own.has_data({"cidr-global": f"{pair[0]}/32", "interface-global": "eth0"})
    created = datetime.fromisoformat((await own.floating_ip("older"))["metadata"]["creationTimestamp"])

    async def is_another_second() -> bool:
        """The API server stores whole seconds."""
        return datetime.now(UTC) >= created + timedelta(seconds=1)

    await eventually(is_another_second)
    # By its address and by its name it would come first.
    await own.ask("a-younger", RANGE, ipaddress=pair[1], interface="eth1")
    merged = {"cidr-global": f"{pair[0]}/32,{pair[1]}/32", "interface-global": "eth0"}
    await own.has_data(merged)
    await own.has_condition(name="older")
    own.stack.proxy.forget_requests(own.id)
    await own.passes(3)
    assert await own.data() == merged
    assert writes_of(own) == []
    await own.stack.client.delete(own.path("older"))
    await own.has_data({"cidr-global": f"{pair[1]}/32", "interface-global": "eth1"})
    await own.has_condition(name="a-younger")


async def test_a_floating_ip_that_names_another_namespaces_cluster_writes_no_guest(
    stack: Stack, guest: ServedGuest, pair: tuple[str, str]
) -> None:
    before = await guest.config_map()
    neighbour = stack.player.plan_guest("neighbour")
    neighbour = replace(neighbour, annotations={"kubefip.k8s.binbash.org/floating-ip": "false"})
    rancher_guest = await stack.player.create_guest(neighbour)
    stranger = ServedGuest(stack=stack, guest=rancher_guest)
    await stranger.ask("stranger", RANGE, cluster=guest.name, ipaddress=pair[0])
    found = await stranger.has_condition(
        "GuestConfigured", "False", name="stranger", reason="ClusterMismatch", words=neighbour.name
    )
    assert found["status"]["addresses"] == [pair[0]]
    assert "guest" not in found["status"]
    await guest.passes(3)
    assert await guest.config_map() == before
    assert writes_of(guest) == []
    await stack.player.delete_guest(rancher_guest)


async def test_a_floating_ip_whose_namespace_belongs_to_no_cluster_waits_and_writes_nothing(
    stack: Stack, guest: ServedGuest
) -> None:
    await stack.plane.create_namespace("nobodys")
    body = {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIP",
        "metadata": {"name": "early", "annotations": {"clustername": guest.name, "fiprange": RANGE}},
        "spec": {},
    }
    await stack.client.create(floating_ips("nobodys"), body)
    path = f"{floating_ips('nobodys')}/early"
    await wait_for_condition(stack, path, "GuestConfigured", "False", reason="GuestNotFound")
    await guest.passes(2)
    assert await guest.data() == {"cidr-global": f"{await address_of(guest)}/32"}
    await stack.client.delete(path)


@pytest.mark.parametrize("paused", ["cluster", "floating IP"])
async def test_a_paused_guest_is_only_read_until_the_pause_ends(
    guest: ServedGuest, witness: ServedGuest, paused: str
) -> None:
    address = await address_of(guest)
    name = "kubefip.k8s.binbash.org/paused"
    path = guest.cluster_path if paused == "cluster" else guest.path()
    await guest.stack.client.patch(path, {"metadata": {"annotations": {name: "true"}}})
    await witness.passes(2)  # one may have been under way
    edit = {"data": {"cidr-global": "192.168.9.0/24"}}
    await guest.client.patch(CONFIG_MAP.format("kube-system"), edit)
    guest.stack.proxy.forget_requests(guest.id)
    await witness.passes(3)
    assert {each.method for each in guest.stack.proxy.requests_of(guest.id)} == {"GET"}
    assert await guest.data() == edit["data"]
    await guest.stack.client.patch(path, {"metadata": {"annotations": {name: None}}})
    await guest.has_data({"cidr-global": f"{address}/32"})
