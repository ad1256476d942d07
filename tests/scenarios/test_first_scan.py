"""What new addresses wait for after a start, and after each change of the leader: for the guests that matter."""

import asyncio
from typing import Any

import pytest

from fipop.errors import ApiServerError
from fipop.kube.resources import HARVESTER_CONFIGS, Resource
from fipop.operator.queues import Key, Kind
from tests.harness.small_operator import SmallOperator, leading
from tests.harness.virtual_time import in_virtual_time

A, B, C, D = "c-m-a", "c-m-b", "c-m-c", "c-m-d"
X, Y = "10.0.0.10", "10.0.0.11"
"""The first address of range "pool", which a new floating IP would get, and the second."""
GREEN = "10.1.0.10"
BLUE = {"matchLabels": {"net": "blue"}}
NEVER = 10_000.0


def build(*guest_ids: str, **spec: object) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**spec)  # type: ignore[arg-type]
    operator.add_range("green", f"{GREEN}-10.1.0.12", clusterSelector={"matchLabels": {"net": "green"}})
    for guest_id in guest_ids:
        operator.add_guest(guest_id)
    return operator


def hold(operator: SmallOperator, guest_id: str, address: str) -> None:
    """Have a floating IP that holds an address, as a restored store shows it."""
    operator.ask(guest_id, has=address)
    operator.reserve(address, guest_id)


def ask_green(operator: SmallOperator, guest_id: str) -> None:
    operator.ask(guest_id)
    operator.ask_for_range(guest_id, "green")


async def go_on(operator: SmallOperator, seconds: float) -> None:
    """Let the guests have so much time to answer."""
    await asyncio.sleep(seconds)
    await operator.settle()


async def written(operator: SmallOperator, guest_id: str) -> str:
    """Make a pass over a guest, and give what its ConfigMap says then."""
    await operator.pass_time(60)
    await operator.manager.reconcile(Key(Kind.GUEST, "", guest_id))
    for _ in range(2):  # the first of a new guest only notes it
        await operator.manager.passes.visit(guest_id)
    return operator.carried.config_maps.get(guest_id, "")


# A change of the leader


@in_virtual_time
async def test_after_a_change_of_the_leader_no_guest_gets_what_one_carries_that_answers_late() -> None:
    """The store was restored, and the leader before had refused to write the owner's guest."""
    operator = build(A, B)
    hold(operator, A, X)
    operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 1)
        assert await written(operator, A) == ""
    operator.carried.slow[B] = 10
    async with leading(operator):
        await go_on(operator, 9)
        assert await written(operator, A) == ""
        await go_on(operator, 3)
        assert await written(operator, A) == ""
        operator.carried.services[B], operator.carried.slow = "", {}
        assert await written(operator, A) == f"{X}/32"


@in_virtual_time
async def test_after_a_change_of_the_leader_nobody_gets_what_a_guest_carries_that_never_answered() -> None:
    operator = build(B, C)
    operator.carried.services[B] = X
    operator.carried.slow[B] = NEVER
    async with leading(operator):
        await go_on(operator, 50)
    operator.carried.slow[B] = 10
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 9)
        assert operator.held() == {}
        await go_on(operator, 3)
        assert operator.held() == {f"default.{Y}": C}


@in_virtual_time
async def test_two_changes_of_the_leader_in_a_row_wait_as_one() -> None:
    operator = build(B, C)
    operator.carried.services[B] = X
    operator.carried.slow[B] = 10
    operator.ask(C)
    for _ in range(2):
        async with leading(operator):
            await go_on(operator, 8)
            assert operator.held() == {}
    async with leading(operator):
        await go_on(operator, 12)
    assert operator.held() == {f"default.{Y}": C}


@in_virtual_time
async def test_a_guest_that_fails_to_answer_is_asked_again_within_seconds() -> None:
    operator = build(B, C)
    operator.carried.services[B] = X
    operator.carried.silent.add(B)
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 7)
        operator.carried.silent.clear()
        await go_on(operator, 10)
        assert operator.held() == {f"default.{Y}": C}
        assert operator.quarantined() == {f"default.{X}"}


# Who is waited for


@in_virtual_time
async def test_a_guest_that_hangs_delays_only_ranges_that_could_serve_it_and_by_a_minute() -> None:
    operator = build(A, B, C, D, clusterSelector=BLUE)
    operator.label_guest(A, net="blue")
    operator.carried.slow[A] = NEVER
    operator.ask(C)
    ask_green(operator, D)
    async with leading(operator):
        await go_on(operator, 1)
        assert operator.held() == {f"default.{GREEN}": D}
        await go_on(operator, 58)
        assert operator.held() == {f"default.{GREEN}": D}
        await go_on(operator, 2)
        assert operator.held() == {f"default.{GREEN}": D, f"default.{X}": C}


@in_virtual_time
async def test_a_range_that_waits_for_a_guest_is_reported_with_the_guest_and_the_end_of_the_wait() -> None:
    operator = build(A, C, clusterSelector=BLUE)
    operator.label_guest(A, net="blue")
    operator.carried.slow[A] = 30
    async with leading(operator):
        await go_on(operator, 10)
        reported = operator.manager.describe_waits()
        assert reported.startswith('Range "pool"')
        assert "green" not in reported, "it could not serve that guest"
        assert f"guest cluster {A}" in reported
        assert "2026-01-01T00:00:50Z" in reported, "60 s after the start"
        await go_on(operator, 25)
        assert operator.manager.describe_waits() == ""


@in_virtual_time
async def test_a_guest_that_hangs_delays_no_range_of_another_harvester() -> None:
    operator = build(C, D, harvester="north")
    operator.add_range("south", "10.2.0.10-10.2.0.12", harvester="south")
    for guest_id, harvester in ((A, "north"), (C, "north"), (D, "south")):
        operator.add_guest(guest_id)
        operator.put_on_harvester(guest_id, harvester)
    hold(operator, A, Y)
    operator.carried.slow[A] = NEVER
    operator.ask(C)
    operator.ask(D)
    operator.ask_for_range(D, "south")
    async with leading(operator):
        await go_on(operator, 5)
        assert operator.held() == {f"default.{Y}": A, "default.10.2.0.10": D}
        await go_on(operator, 60)
        assert operator.holders(X) == {C}


@in_virtual_time
async def test_a_range_waits_for_the_guests_of_one_that_has_some_of_its_addresses() -> None:
    operator = build(A, C, clusterSelector=BLUE)
    operator.add_range("wide", "10.0.0.0/24", clusterSelector={"matchLabels": {"net": "wide"}})
    operator.label_guest(A, net="wide")
    operator.carried.services[A] = X
    operator.carried.slow[A] = 10
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 9)
        assert operator.held() == {}
        await go_on(operator, 3)
        assert operator.held() == {f"default.{Y}": C}


# By what a guest is judged before its first round


def serve_elsewhere(operator: SmallOperator, guest_id: str) -> None:
    """Have a guest hold an address of a range that its floating IP names: nothing about it has to be resolved."""
    operator.ask(guest_id, has=GREEN)
    operator.ask_for_range(guest_id, "green")
    operator.reserve(GREEN, guest_id, range_name="green")


@pytest.mark.parametrize("by", ["selector", "harvester"])
@pytest.mark.parametrize("restored", [False, True])
@in_virtual_time
async def test_what_a_guest_carries_of_a_range_that_fits_it_is_kept_though_its_floating_ips_name_others(
    by: str, restored: bool
) -> None:
    if by == "selector":
        operator = build(A, B, C, clusterSelector=BLUE)
        operator.label_guest(B, net="blue")
    else:
        operator = build(A, B, C, harvester="north")
        operator.put_on_harvester(B, "north")
    serve_elsewhere(operator, B)
    operator.carried.services[B] = X
    if restored:
        hold(operator, A, X)
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 1)
        assert operator.holders(Y) == {C}
        if restored:
            assert await written(operator, A) == ""
        else:
            assert operator.quarantined() == {f"default.{X}"}


@in_virtual_time
async def test_what_a_guest_carries_is_kept_though_its_links_cannot_be_read() -> None:
    """It may be on any Harvester cluster then."""
    operator = build(A, B, C, harvester="north")
    operator.put_on_harvester(B, "north")
    serve_elsewhere(operator, B)
    operator.carried.services[B] = X
    get = operator.client.get

    async def get_or_fail(resource: Resource, *arguments: Any, **options: Any) -> Any:
        if resource == HARVESTER_CONFIGS:
            raise ApiServerError(verb="get", kind=resource.kind, status=500)
        return await get(resource, *arguments, **options)

    operator.client.get = get_or_fail  # type: ignore[method-assign]
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 1)
        assert operator.holders(Y) == {C}
        assert operator.quarantined() == {f"default.{X}"}


@in_virtual_time
async def test_a_report_counts_in_no_range_of_another_harvester_though_its_floating_ips_have_ranges() -> None:
    """It was not resolved before its answer was taken in: it could be on any Harvester cluster then."""
    operator = build(B, C, harvester="north")
    operator.put_on_harvester(B, "south")
    operator.put_on_harvester(C, "north")
    serve_elsewhere(operator, B)
    operator.carried.services[B] = X
    operator.ask(C)
    async with leading(operator):
        await go_on(operator, 1)
        assert operator.holders(X) == {C}
        assert operator.quarantined() == set()


# What changes while guests are asked


@in_virtual_time
async def test_a_guest_whose_labels_bring_it_to_a_range_during_the_scan_is_waited_for_there() -> None:
    operator = build(A, C, clusterSelector=BLUE)
    operator.carried.services[A] = X
    operator.carried.slow[A] = 20
    async with leading(operator):
        await go_on(operator, 5)
        operator.label_guest(A, net="blue")
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.held() == {}
        await go_on(operator, 10)
        assert operator.held() == {f"default.{Y}": C}


@in_virtual_time
async def test_what_a_guest_was_seen_to_carry_is_kept_once_its_labels_bring_it_to_a_range() -> None:
    operator = build(A, C, clusterSelector=BLUE)
    operator.carried.services[A] = X
    async with leading(operator):
        await go_on(operator, 1)
        assert operator.quarantined() == set()
        operator.label_guest(A, net="blue")
        await operator.settle()
        await go_on(operator, 1)
        operator.ask(C)
        await go_on(operator, 1)
        assert operator.held() == {f"default.{Y}": C}
        assert operator.quarantined() == {f"default.{X}"}


@in_virtual_time
async def test_a_guest_that_comes_during_the_scan_is_waited_for() -> None:
    operator = build(B, C, D, clusterSelector=BLUE)
    ask_green(operator, D)
    operator.label_guest(B, net="blue")
    operator.carried.slow[B] = 15
    async with leading(operator):
        await go_on(operator, 10)
        operator.add_guest(A, imported=True)
        operator.label_guest(A, net="blue")
        operator.carried.services[A] = X
        operator.carried.slow[A] = 15
        await go_on(operator, 1)
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.held() == {f"default.{GREEN}": D}
        await go_on(operator, 10)
        assert operator.holders(Y) == {C}


@in_virtual_time
async def test_a_range_that_is_edited_during_the_scan_waits_for_the_guests_that_it_could_serve_now() -> None:
    operator = build(A, C, clusterSelector={"matchLabels": {"net": "red"}})
    operator.label_guest(A, net="blue")
    operator.carried.services[A] = X
    operator.carried.slow[A] = 20
    async with leading(operator):
        await go_on(operator, 5)
        operator.change_range(clusterSelector=BLUE)
        operator.ask(C)
        await go_on(operator, 10)
        assert operator.held() == {}
        await go_on(operator, 10)
        assert operator.held() == {f"default.{Y}": C}


@in_virtual_time
async def test_what_a_guest_carried_before_a_loss_is_kept_though_it_hangs_afterwards() -> None:
    """A missing answer is not one that says no."""
    operator = build(A, B, C)
    operator.carried.services[B] = X
    hold(operator, B, X)
    async with leading(operator):
        await go_on(operator, 1)
        operator.carried.slow[B] = NEVER
        operator.memory.remove(("floatingips", B, "web"))
        operator.remove_reservation(f"default.{X}")
        operator.manager.lost_unseen()
        operator.ask(C)
        await go_on(operator, 70)
        assert operator.held() == {f"default.{Y}": C}


# What a guest cluster can be served by changes


@in_virtual_time
async def test_no_other_gets_what_a_guest_cluster_uses_once_its_labels_bring_it_to_the_range() -> None:
    operator = build(B, C)
    operator.ask(B)
    operator.carried.services[B] = GREEN
    await operator.start()
    operator.label_guest(B, net="green")
    ask_green(operator, C)
    await operator.settle()
    await operator.look()
    assert C not in operator.holders(GREEN)
    assert C in operator.held().values()


@in_virtual_time
async def test_a_claim_that_a_guest_cluster_gave_up_is_forgotten_though_its_owner_is_served() -> None:
    operator = build(A, B)
    hold(operator, A, X)
    operator.carried.services[A] = operator.carried.services[B] = X
    async with leading(operator):
        await go_on(operator, 1)
        reservation = operator.cache.reservations.get("", f"default.{X}")
        assert reservation is not None
        assert operator.manager.reported.reporters(reservation, but=A) == (B,)
        operator.carried.services[B] = ""
        await go_on(operator, 400)
        assert operator.manager.reported.reporters(reservation, but=A) == ()
