"""What a leader remembers of guest clusters that go, come back, connect late, or let go of another's address."""

import asyncio
from typing import Any

import pytest

from fipop.api import names
from fipop.guest.in_use import InUseAddresses
from fipop.kube.resources import (
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    PROVISIONING_CLUSTERS,
    Resource,
)
from fipop.operator.queues import Key, Kind
from fipop.rancher.objects import LABEL_PROVIDER
from tests.harness.memory import Json
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
BLUE = {"matchLabels": {"net": "blue"}}


def build(*guest_ids: str, **spec: Any) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    return operator


def hold(operator: SmallOperator, guest_id: str, address: str) -> None:
    operator.ask(guest_id, has=address)
    operator.reserve(address, guest_id)


async def go_on(operator: SmallOperator, seconds: float) -> None:
    """Let time pass; work is done as it comes."""
    await operator.settle()
    end = asyncio.get_running_loop().time() + seconds
    while (left := end - asyncio.get_running_loop().time()) > 1e-6:
        step = min(left, 0.05 if left < 20 else 5.0)
        await asyncio.sleep(step)
        await operator.pass_time(step)
        await operator.settle()


async def visit(operator: SmallOperator, guest_id: str) -> str:
    """Make the visits that are due over a guest cluster, and return what its ConfigMap says then."""
    await operator.manager.reconcile(Key(Kind.GUEST, "", guest_id))
    for _ in range(2):
        await operator.manager.passes.visit(guest_id)
    await operator.settle()
    return operator.carried.config_maps.get(guest_id, "")


def configured(operator: SmallOperator, guest_id: str) -> tuple[str, str]:
    found = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"]["conditions"]
    (each,) = (each for each in found if each["type"] == "GuestConfigured")
    return each["reason"], each["message"]


# Guests that go while they are asked, and come back under the same id


@in_virtual_time
async def test_the_answer_of_a_former_incarnation_is_none_of_the_one_that_is_back() -> None:
    operator = build(C)
    operator.add_guest(B, imported=True, named="former")
    carried, look = operator.carried, operator.carried.look

    async def answer_of_the_former(guest_id: str, kubeconfig: bytes, **options: object) -> InUseAddresses:
        if guest_id != B or operator.memory.now.timestamp() >= began + 5:
            return await look(guest_id, kubeconfig, **options)
        await asyncio.sleep(20)
        return InUseAddresses()

    carried.look = answer_of_the_former  # type: ignore[method-assign, assignment]
    began = operator.memory.now.timestamp()
    async with leading(operator):
        await go_on(operator, 5)
        operator.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, "former"))
        operator.memory.remove((MANAGEMENT_CLUSTERS.plural, "", B))
        operator.add_guest(B, imported=True, named="latter")
        carried.services[B] = X
        await go_on(operator, 30)
        operator.ask(C)
        await go_on(operator, 5)
        assert operator.holders(Y) == {C}


@in_virtual_time
async def test_one_that_is_back_is_waited_for_while_it_is_asked_after_the_former_answered() -> None:
    operator = build(C, D)
    operator.add_guest(B, imported=True, named="former")
    carried, look = operator.carried, operator.carried.look
    carried.slow[D] = 50

    async def look_slowly(guest_id: str, kubeconfig: bytes, **options: object) -> InUseAddresses:
        if guest_id != B:
            return await look(guest_id, kubeconfig, **options)
        is_former = operator.memory.now.timestamp() < began + 5
        await asyncio.sleep(20 if is_former else 35)
        return InUseAddresses() if is_former else await look(guest_id, kubeconfig, **options)

    carried.look = look_slowly  # type: ignore[method-assign, assignment]
    began = operator.memory.now.timestamp()
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 5)
        operator.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, "former"))
        operator.memory.remove((MANAGEMENT_CLUSTERS.plural, "", B))
        operator.add_guest(B, imported=True, named="latter")
        carried.services[B] = X
        await go_on(operator, 60)
        assert operator.holders(Y) == {C}


@in_virtual_time
async def test_a_disconnected_guest_that_used_an_address_of_another_keeps_nobody_waiting() -> None:
    operator = build(A, B, C)
    hold(operator, A, X)
    operator.carried.services[A] = operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        operator.disconnect(B)
        operator.manager.scan.require_rescan()
        operator.ask(C)
        await go_on(operator, 5)
        assert operator.holders(Y) == {C}


@in_virtual_time
async def test_what_a_guest_uses_that_another_holds_is_not_written_after_it_left_and_came_back() -> None:
    operator = build(A)
    operator.add_guest(B, imported=True)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert await visit(operator, A) == ""
        operator.remove_guest(B)
        await go_on(operator, 1)
        operator.add_guest(B, imported=True)
        await go_on(operator, 5)
        assert await visit(operator, A) == ""


@in_virtual_time
async def test_a_guest_that_connects_while_answers_are_taken_in_is_waited_for() -> None:
    operator = build(C, D)
    operator.add_guest(B, connected=False)
    operator.carried.services[B] = X
    operator.carried.services[D] = Z
    create = operator.client.create

    async def connect_meanwhile(resource: Resource, body: Json, **options: Any) -> Json:
        if resource == FLOATING_IP_RESERVATIONS and not connected:
            connected.append(True)
            operator.connect(B)
            await operator.manager.reconcile(Key(Kind.GUEST, "", B))
        return await create(resource, body, **options)

    connected: list[bool] = []
    operator.client.create = connect_meanwhile  # type: ignore[method-assign]
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 10)
        assert connected
        assert operator.holders(Y) == {C}, operator.held()


# One of the two clusters goes and comes


@in_virtual_time
@pytest.mark.parametrize("order", ["prov-mgmt", "mgmt-prov", "prov", "mgmt"])
@pytest.mark.parametrize("edit", [True, False])
async def test_what_a_guest_uses_stays_contested_while_rancher_has_anything_of_it(
    order: str, edit: bool
) -> None:
    operator = build(A, clusterSelector=BLUE)
    operator.add_guest(B, imported=True)
    operator.label_guest(A, net="blue")
    operator.label_guest(B, net="blue")
    hold(operator, A, X)
    operator.carried.services[B] = X
    prov = (PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{B}")
    mgmt = (MANAGEMENT_CLUSTERS.plural, "", B)
    key = prov if order.startswith("prov") else mgmt
    async with leading(operator):
        await go_on(operator, 10)
        assert await visit(operator, A) == ""
        found = operator.memory.objects[key]
        operator.memory.remove(key)
        await go_on(operator, 2)
        if edit:
            operator.change_range(iprange="10.0.0.10-10.0.0.20")
            await go_on(operator, 2)
        assert await visit(operator, A) == ""
        kept = ("name", "namespace", "annotations", "labels")
        fresh = {name: value for name, value in found["metadata"].items() if name in kept}
        operator.memory.put(key, {**found, "metadata": fresh})
        await go_on(operator, 5)
        assert await visit(operator, A) == ""


# Contested addresses


@in_virtual_time
@pytest.mark.parametrize("how", ["label", "range"])
async def test_that_a_guest_uses_an_address_of_another_is_said_no_more_once_it_does_not(how: str) -> None:
    """What a former label or range kept from counting is contested by a report of long ago."""
    operator = build(A, clusterSelector=BLUE)
    operator.add_guest(B)
    operator.label_guest(A, net="blue")
    hold(operator, A, X)
    operator.carried.services[A] = operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        if how == "label":
            operator.label_guest(B, net="blue")
        else:
            operator.change_range(clusterSelector={"matchLabels": {}})
        operator.carried.services[B] = ""
        await go_on(operator, 10)
        for _ in range(40):
            await go_on(operator, 600)
        await visit(operator, A)
        assert configured(operator, A) == ("Configured", "")


@in_virtual_time
async def test_that_a_guest_used_an_address_before_is_not_said_to_its_new_owner() -> None:
    operator = build(B, C, iprange=f"{X}-{X}", quarantineSeconds=5)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert operator.quarantined() == {f"default.{X}"}
        operator.carried.services[B] = ""
        await go_on(operator, 10)
        for _ in range(5):
            await operator.pass_time(100)
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.holders(X) == {C}
        await visit(operator, C)
        operator.label_guest(B, any="label")
        for _ in range(20):
            await go_on(operator, 600)
        await visit(operator, C)
        assert configured(operator, C) == ("Configured", "")


@in_virtual_time
@pytest.mark.parametrize("has_restarted", [True, False])
async def test_who_waits_for_a_contested_address_gets_it_once_the_other_let_go(has_restarted: bool) -> None:
    operator = build(B, C, quarantineSeconds=36_000)
    operator.carried.services[B] = operator.carried.services[C] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert operator.quarantined() == {f"default.{X}"}
        operator.ask(B, X)
        await go_on(operator, 10)
        assert operator.holders(X) == set()
        operator.carried.services[C] = ""
        for _ in range(3):
            await go_on(operator, 300)
            await operator.pass_time(1)
        if not has_restarted:
            assert operator.holders(X) == {B}
    operator = SmallOperator(operator)
    async with leading(operator):
        await go_on(operator, 10)
        assert operator.holders(X) == {B}


async def give_away(operator: SmallOperator) -> None:
    """Have B give up X, which it was seen to use, and wait until X is free: B was asked, and uses it no more."""
    await go_on(operator, 10)
    assert await visit(operator, B) == f"{X}/32"
    operator.give_up(B)
    await operator.settle()
    assert await visit(operator, B) == ""
    for _ in range(5):
        await operator.pass_time(100)
    assert operator.quarantined() == set()
    assert operator.held() == {}


@in_virtual_time
@pytest.mark.parametrize("what", ["label", "connection", "range"])
async def test_of_a_former_owner_that_gave_its_address_up_it_is_not_said_that_it_still_uses_it(
    what: str,
) -> None:
    operator = build(B, C, iprange=f"{X}-{X}", quarantineSeconds=5)
    hold(operator, B, X)
    operator.carried.config_maps[B] = f"{X}/32"
    async with leading(operator):
        await give_away(operator)
        operator.ask(C)
        await go_on(operator, 10)
        assert await visit(operator, C) == f"{X}/32"
        if what == "label":
            operator.label_guest(B, any="label")
        elif what == "range":
            operator.change_range(iprange=f"{X}-{Y}")
        else:
            operator.disconnect(B)
            await go_on(operator, 10)
            operator.connect(B)
        for _ in range(20):
            await go_on(operator, 600)
        await visit(operator, C)
        assert configured(operator, C) == ("Configured", "")


@in_virtual_time
async def test_a_new_guest_is_written_though_the_former_owner_of_its_address_is_offline() -> None:
    """The quarantine ended because the former owner was asked, and did not use the address."""
    operator = build(B, iprange=f"{X}-{X}", quarantineSeconds=5)
    hold(operator, B, X)
    operator.carried.config_maps[B] = f"{X}/32"
    async with leading(operator):
        await give_away(operator)
        operator.add_guest(C, connected=False)
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.holders(X) == {C}
        operator.disconnect(B)
        await go_on(operator, 10)
        operator.connect(C)
        for _ in range(20):
            await go_on(operator, 600)
        assert await visit(operator, C) == f"{X}/32", configured(operator, C)


@in_virtual_time
@pytest.mark.parametrize("has_restarted", [False, True])
async def test_an_address_that_its_former_owner_gave_up_stays_free_though_that_one_is_offline(
    has_restarted: bool,
) -> None:
    operator = build(B, C, iprange=f"{X}-{X}", quarantineSeconds=5)
    hold(operator, B, X)
    operator.carried.config_maps[B] = f"{X}/32"
    async with leading(operator):
        await give_away(operator)
        if not has_restarted:
            operator.disconnect(B)
            operator.ask(C)
            for _ in range(20):
                await go_on(operator, 600)
            assert operator.holders(X) == {C}
    if has_restarted:
        operator = SmallOperator(operator)
        operator.disconnect(B)
        operator.ask(C)
        async with leading(operator):
            await go_on(operator, 10)
            assert operator.holders(X) == {C}


# What is Harvester


async def quarantine_in_use(provider: str) -> SmallOperator:
    """Have X in quarantine beyond its time, because a Service of B, which had it, still uses it."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}", quarantineSeconds=5, clusterSelector={"matchLabels": {}})
    operator.add_guest(B, imported=True, provider=provider, is_served=True)
    operator.add_guest(C)
    await operator.start()
    await operator.pass_time(120)
    assert operator.holders(X) == {B}
    operator.carried.services[B] = X
    operator.memory.put(
        (PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{B}"), with_annotation(operator, "false")
    )
    operator.give_up(B, f"cluster-{B}-kubevip")
    await operator.settle()
    await operator.pass_time(600)
    assert operator.quarantined() == {f"default.{X}"}
    operator.ask(C)
    await operator.pass_time(600)
    assert operator.holders(X) == set()
    return operator


def with_annotation(operator: SmallOperator, value: str) -> Json:
    found = operator.memory.objects[PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{B}"]
    annotations = {**(found["metadata"].get("annotations") or {}), names.ANNOTATION_FLOATING_IP: value}
    return {**found, "metadata": {**found["metadata"], "annotations": annotations}}


@in_virtual_time
async def test_a_label_that_its_owner_can_set_hides_nothing_that_a_served_guest_uses() -> None:
    """Rancher does not know the kind of a kubeadm cluster, and a Cluster Owner can label it."""
    operator = await quarantine_in_use(provider="")
    operator.label_guest(B, **{LABEL_PROVIDER: "harvester"})
    await operator.settle()
    await operator.pass_time(1200)
    assert operator.holders(X) == set(), "a Service of B still uses it"


@in_virtual_time
async def test_harvester_of_an_undetected_kind_is_not_written_because_somebody_made_a_floating_ip_there() -> (
    None
):
    """Its status names the cluster of the namespace before any visit, and counts as proof that it was served."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(B, imported=True, provider="")
    operator.carried.harvesters.add(B)
    await operator.start()
    operator.ask(B)
    await operator.settle()
    await operator.pass_time(600)
    await operator.visit(B)
    assert operator.carried.config_maps == {}
