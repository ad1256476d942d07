"""What guest clusters answered counts as far, and as long, as it can be true."""

import asyncio
from collections import Counter

import pytest

from fipop.guest.in_use import InUseAddresses
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, MANAGEMENT_CLUSTERS, PROVISIONING_CLUSTERS
from fipop.operator.startup import adopt_all
from fipop.rancher.objects import LABEL_PROVIDER
from tests.harness.small_cluster import WORKSPACE
from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time
from tests.scenarios.test_changing_guests import build, configured, go_on, hold, visit

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"


def answer_late_what_was(operator: SmallOperator, slow_guest: str) -> None:
    """Have a slow guest cluster answer what it used when it was asked."""
    carried, look = operator.carried, operator.carried.look

    async def frozen(guest_id: str, kubeconfig: bytes, **options: object) -> InUseAddresses:
        if guest_id != slow_guest:
            return await look(guest_id, kubeconfig, **options)
        seconds, carried.slow[guest_id] = carried.slow[guest_id], 0.0
        answer = await look(guest_id, kubeconfig, **options)
        carried.slow[guest_id] = seconds
        await asyncio.sleep(seconds)
        return answer

    carried.look = frozen  # type: ignore[method-assign, assignment]


@in_virtual_time
async def test_no_range_waits_for_a_guest_that_is_not_connected_because_it_contested_an_address() -> None:
    operator = build(A, B, C)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        operator.disconnect(B)
        await go_on(operator, 10)
        operator.manager.scan.require_rescan()
        operator.ask(C)
        await go_on(operator, 5)
        assert operator.holders(Y) == {C}, operator.manager.gate.awaited


@in_virtual_time
async def test_each_guest_is_asked_once_at_a_start() -> None:
    operator = build(A, B, C, D)
    for each in (A, B, C, D):
        operator.carried.slow[each] = 0.3
    async with leading(operator):
        await go_on(operator, 10)
        assert Counter(operator.carried.looks) == {A: 1, B: 1, C: 1, D: 1}


@in_virtual_time
async def test_a_label_of_its_owner_hides_no_contested_address() -> None:
    operator = build(A)
    operator.add_guest(B, imported=True, provider="", is_served=False)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 120)
        assert await visit(operator, A) == ""
        operator.label_guest(B, **{LABEL_PROVIDER: "harvester"})
        await go_on(operator, 10)
        assert await visit(operator, A) == "", "a Service of B still uses it"


@in_virtual_time
async def test_a_label_of_its_owner_frees_no_unowned_address() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}", quarantineSeconds=5)
    operator.add_guest(B, imported=True, provider="")
    operator.add_guest(C)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 120)
        assert operator.quarantined() == {f"default.{X}"}
        operator.label_guest(B, **{LABEL_PROVIDER: "harvester"})
        operator.ask(C)
        await go_on(operator, 600)
        assert operator.holders(X) == set(), "a Service of B still uses it"


@in_virtual_time
async def test_what_a_floating_ip_made_by_hand_for_harvester_had_becomes_free() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}", quarantineSeconds=5)
    operator.add_guest(B, imported=True, provider="harvester")
    operator.add_guest(C)
    async with leading(operator):
        await go_on(operator, 10)
        operator.ask(B)
        await go_on(operator, 10)
        assert operator.holders(X) == {B}
        operator.give_up(B)
        operator.ask(C)
        await go_on(operator, 3600)
        assert operator.holders(X) == {C}, operator.manager.quarantine.carrier_of(f"default.{X}")


@in_virtual_time
async def test_a_guest_whose_cluster_is_gone_contests_nothing_on_other_harvester_clusters() -> None:
    operator = SmallOperator()
    operator.add_range(harvester="h1", name="one", iprange="10.0.1.10-10.0.1.20")
    operator.add_range(harvester="h2")
    operator.add_guest(A)
    operator.add_guest(B)
    operator.put_on_harvester(A, "h2")
    operator.put_on_harvester(B, "h1")
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert await visit(operator, A) == f"{X}/32"
        operator.carried.config_maps[A] = ""
        operator.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{B}"))
        await go_on(operator, 5)
        operator.disconnect(B)
        await go_on(operator, 5)
        assert await visit(operator, A) == f"{X}/32", configured(operator, A)


@in_virtual_time
@pytest.mark.parametrize("slow", [0.1, 0.3, 0.45, 2.0])
async def test_each_guest_is_asked_once_at_a_start_that_resolves_links_meanwhile(slow: float) -> None:
    operator = build(A, B, C, D)
    for each in (A, B, C, D):
        operator.carried.slow[each] = slow
    operator.take_lead()
    manager = operator.manager
    await adopt_all(manager.guests, manager.gate, manager.floating_ips.reconcile)
    scanning = asyncio.create_task(manager.scan.run())
    await asyncio.sleep(0.05)
    manager.enqueue_all()
    await operator.settle()
    await asyncio.sleep(20)
    scanning.cancel()
    await asyncio.gather(scanning, return_exceptions=True)
    assert Counter(operator.carried.looks) == {A: 1, B: 1, C: 1, D: 1}


@in_virtual_time
async def test_what_an_older_answer_lacks_is_quarantined() -> None:
    """A check asked B before it used Y, and is answered just after the scan was, before that is taken in."""
    operator = build(A, B, C)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        scan = operator.manager.scan
        operator.carried.slow[B] = 3.0
        answer_late_what_was(operator, B)
        checking = asyncio.create_task(operator.may_write(X))
        await asyncio.sleep(0.5)
        operator.carried.services[B] = Y
        operator.carried.slow[B] = 2.4
        scan.require_rescan()
        operator.carried.slow[C] = 2.55
        await asyncio.sleep(5)
        await asyncio.gather(checking, return_exceptions=True)
        assert operator.quarantined() == {f"default.{Y}"}


@in_virtual_time
async def test_a_contest_stays_if_an_older_answer_comes_last() -> None:
    operator = build(A, B, C)
    operator.add_guest(D)
    hold(operator, A, X)
    hold(operator, D, Z)
    operator.carried.services[B] = Z  # so that a check about Z asks B
    async with leading(operator):
        await go_on(operator, 10)
        scan = operator.manager.scan
        operator.carried.slow[B] = 8.0
        answer_late_what_was(operator, B)
        checking = asyncio.create_task(operator.may_write(Z))
        await asyncio.sleep(0.5)
        operator.carried.services[B] = X
        operator.carried.slow[B] = 0.0
        scan.require_rescan()
        await asyncio.sleep(2)
        assert operator.manager.guests.contesting(f"default.{X}") == [B]
        await asyncio.gather(checking, return_exceptions=True)
        operator.label_guest(B, any="label")
        await go_on(operator, 5)
        assert await visit(operator, A) == "", "a Service of B uses it"


@in_virtual_time
async def test_a_guest_that_uses_a_contested_address_in_a_pool_as_well_is_not_forgotten() -> None:
    """B has X by a Service first, then as a member of a pool of its ConfigMap."""
    operator = build(A, B)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert await visit(operator, A) == ""
        operator.carried.services[B] = ""
        operator.carried.config_maps[B] = f"{X}-{Y}"
        assert await visit(operator, A) == ""
        operator.label_guest(B, any="label")
        await go_on(operator, 5)
        assert await visit(operator, A) == "", "the ConfigMap of B names it"


@in_virtual_time
async def test_a_report_before_the_first_reconciliation_counts_after_the_cluster_is_gone() -> None:
    operator = build(A, clusterSelector={"matchLabels": {"net": "blue"}})
    operator.add_guest(B, imported=True)
    operator.label_guest(A, net="blue")
    operator.label_guest(B, net="blue")
    hold(operator, A, X)
    operator.carried.services[B] = X
    operator.take_lead()
    manager = operator.manager

    await adopt_all(manager.guests, manager.gate, manager.floating_ips.reconcile)
    await operator.look_until(lambda: manager.gate.looked)
    assert manager.guests.contesting(f"default.{X}") == [B]
    operator.memory.remove((PROVISIONING_CLUSTERS.plural, WORKSPACE, f"cluster-{B}"))
    await operator.settle()
    operator.disconnect(B)
    await operator.settle()
    assert manager.guests.contesting(f"default.{X}") == [B]


@in_virtual_time
async def test_harvester_holding_an_address_does_not_keep_another_guest_from_being_written() -> None:
    """B was asked while its kind was unknown; then Rancher finds that it is Harvester."""
    operator = build(A)
    operator.add_guest(B, imported=True, provider="")
    operator.ask(B)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        assert await visit(operator, A) == ""
        operator.carried.services[B] = ""
        key = (MANAGEMENT_CLUSTERS.plural, "", B)
        found = operator.memory.objects[key]
        operator.memory.put(key, {**found, "status": {**found["status"], "provider": "harvester"}})
        await go_on(operator, 400)
        assert await visit(operator, A) == f"{X}/32", configured(operator, A)


@in_virtual_time
@pytest.mark.parametrize("seconds", [0.0, 10.0])
async def test_a_disconnected_guest_delays_no_new_guest_after_objects_were_lost(seconds: float) -> None:
    operator = build(A, B, C)
    operator.add_guest(D)
    hold(operator, A, X)
    hold(operator, D, Z)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 10)
        operator.disconnect(B)
        await go_on(operator, 1)

        operator.miss(FLOATING_IP_RESERVATIONS, [D])
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.holders(Y) == {C}, operator.manager.gate.awaited
