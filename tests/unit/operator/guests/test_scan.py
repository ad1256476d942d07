"""The look at all guests, before and beside new addresses."""

import asyncio

import pytest

from fipop.guest.in_use import InUseAddresses
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS
from fipop.runtime.relist import EventType
from tests.harness.objects import build_range, build_reservation
from tests.harness.terms import Listener
from tests.harness.virtual_time import in_virtual_time
from tests.unit.operator.guests.scans import Looking, pool_world


async def test_a_guest_that_connects_after_the_first_look_is_looked_at_then(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    start.connect("c-m-1", connected=False)
    await start.first()
    assert start.quarantined() == set()
    start.connect("c-m-1")
    start.scan.note_guest("c-m-1", may_carry=True)
    await start.comes_to_quarantine("default.10.0.0.8")
    assert start.scan.gate.looked, "the others need not wait for it"


@in_virtual_time
async def test_a_connected_guest_that_did_not_answer_is_asked_again(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": None})
    await start.first()
    start.carried["c-m-1"] = "10.0.0.8/32"
    await start.comes_to_quarantine("default.10.0.0.8")


async def test_an_object_that_only_a_list_shows_to_be_gone_closes_the_gate_before_its_address_is_free(
    looking: type[Looking],
) -> None:
    """A store that was restored lacks it, and the guest that has it since carries it."""
    cache = pool_world(reservations=[build_reservation("10.0.0.8")])
    start = looking(cache, {"c-m-1": "10.0.0.8/32"})
    await start.first()
    seen: list[bool] = []
    cache.listener = Listener(
        on_loss=start.scan.require_rescan,
        on_change=lambda *_: seen.append(start.scan.gate.looked),
    )
    feed = cache.feed(FLOATING_IP_RESERVATIONS)
    feed.take_list(Listing(items=(), resource_version=1_000_000), seen_before=feed.store.highest_version)
    assert seen == [False]
    await asyncio.wait_for(start.opened.wait(), 30)
    assert [(each.name, each.is_held) for each in cache.reservations.all()] == [("default.10.0.0.8", False)]


async def test_one_that_an_event_shows_to_be_gone_was_deleted_by_somebodys_will() -> None:
    gone = build_reservation("10.0.0.8")
    cache = pool_world(reservations=[gone])
    lost: list[str] = []
    cache.listener = Listener(on_loss=lambda: lost.append("lost"))
    cache.feed(FLOATING_IP_RESERVATIONS).take_event(
        EventType.DELETED, {**gone, "metadata": {**gone["metadata"], "resourceVersion": "1000000"}}
    )
    assert cache.reservations.all() == ()
    assert lost == []


async def test_doubt_that_comes_up_during_a_look_leaves_the_gate_closed_for_another(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    asked: list[bool] = []
    look = start.read_in_use

    async def look_and_doubt(guest_id: str) -> InUseAddresses:
        asked.append(start.scan.gate.looked)
        if len(asked) == 1:
            start.scan.require_rescan()
        return await look(guest_id)

    start.read_in_use = look_and_doubt  # type: ignore[method-assign]
    await start.first()
    assert asked == [False, False]
    assert start.scan.gate.looked


async def test_what_a_guest_was_seen_to_carry_is_kept_from_others_in_a_range_that_comes_later(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32,10.7.0.9/32"})
    await start.first()
    assert start.quarantined() == {"default.10.0.0.8"}
    start.cache.observe(FLOATING_IP_RANGES, build_range("later", "10.7.0.0/24"))
    start.scan.note_range("later")
    assert not start.scan.gate.looked
    await asyncio.wait_for(start.opened.wait(), 30)
    assert start.quarantined() == {"default.10.0.0.8", "default.10.7.0.9"}
    assert start.scan.gate.looked


async def test_a_guest_that_connects_while_a_range_changes_is_looked_at_all_the_same(
    looking: type[Looking],
) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    start.connect("c-m-1", connected=False)
    await start.first()
    start.connect("c-m-1")
    start.scan.note_guest("c-m-1", may_carry=True)
    start.scan.note_range("pool")
    await start.comes_to_quarantine("default.10.0.0.8")


async def test_a_range_that_changes_does_not_wait_for_a_late_guest_that_hangs(looking: type[Looking]) -> None:
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32", "c-m-2": "10.7.0.9/32"})
    start.connect("c-m-1", connected=False)
    await start.first()
    hangs, answers = asyncio.Event(), asyncio.Event()
    look = start.read_in_use

    async def look_late(guest_id: str, **_: object) -> InUseAddresses:
        if guest_id == "c-m-1":
            hangs.set()
            await answers.wait()
        return await look(guest_id)

    start.read_in_use = look_late
    start.connect("c-m-1")
    start.scan.note_guest("c-m-1", may_carry=True)
    await asyncio.wait_for(hangs.wait(), 30)
    start.cache.observe(FLOATING_IP_RANGES, build_range("later", "10.7.0.0/24"))
    start.scan.note_range("later")
    await asyncio.wait_for(start.opened.wait(), 30)
    assert start.quarantined() == {"default.10.7.0.9"}
    answers.set()
    await start.comes_to_quarantine("default.10.0.0.8")


async def holding(looking: type[Looking]) -> Looking:
    """After a first look at two guests, each of which carries what it holds."""
    held = [build_reservation("10.0.0.7"), build_reservation("10.0.0.8", namespace="c-m-2")]
    start = looking(pool_world(reservations=held), {"c-m-1": "10.0.0.7/32", "c-m-2": "10.0.0.8/32"})
    await start.first()
    assert start.quarantined() == set()
    return start


async def test_a_changed_range_takes_no_address_of_a_guest_that_is_gone_since(looking: type[Looking]) -> None:
    """What the first look saw was kept for as long as the process led, and every edit of a range brought it up."""
    start = await holding(looking)
    start.remove("c-m-1")
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == set()
    assert start.looked_at == []


async def test_a_changed_range_takes_no_address_that_a_guest_carries_no_more(looking: type[Looking]) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = ""
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == set()
    await start.change_range()
    assert start.looked_at == [], "its answer is what is known of it from then on"


async def test_what_a_guest_still_carries_though_it_is_nobodys_by_now_is_kept_from_others(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == {"default.10.0.0.7"}
    assert start.looked_at == ["c-m-1"], "of the other guest nothing would be given out"


@pytest.mark.parametrize("connected", [True, False])
async def test_what_a_guest_that_cannot_be_asked_was_seen_to_carry_is_kept_from_others(
    looking: type[Looking], connected: bool
) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = None
    if not connected:
        start.connect("c-m-1", connected=False)
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == {"default.10.0.0.7"}
    await start.change_range()
    assert start.looked_at == [], "what is kept already needs no other look"


async def hang(_guest_id: str) -> InUseAddresses:
    await asyncio.Event().wait()
    raise AssertionError


@in_virtual_time
async def test_many_that_hang_keep_no_other_guest_from_being_asked_at_last(looking: type[Looking]) -> None:
    hanging = dict.fromkeys(
        f"c-m-{number:03}" for number in range(400)
    )  # more than are looked at side by side
    start = looking(pool_world(), hanging | {"c-m-999": "10.0.0.8/32"})
    answer = start.read_in_use

    async def read(guest_id: str) -> InUseAddresses:
        await asyncio.sleep(45.0 if guest_id in hanging else 0.0)  # what a talk with a guest may take
        return await answer(guest_id)

    start.read_in_use = read  # type: ignore[method-assign]
    await start.first()
    assert start.quarantined() == {"default.10.0.0.8"}


@in_virtual_time
async def test_a_look_that_takes_too_long_leaves_in_force_what_was_seen_before(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.read_in_use = hang  # type: ignore[method-assign]
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == {"default.10.0.0.7"}


async def test_the_look_for_a_changed_range_keeps_also_what_a_guest_carries_since(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.carried["c-m-1"] = "10.0.0.7/32,10.0.0.9/32"
    start.free("default.10.0.0.7")
    await start.change_range()
    assert start.quarantined() == {"default.10.0.0.7", "default.10.0.0.9"}


async def test_a_guest_that_left_and_is_back_is_looked_at_anew(looking: type[Looking]) -> None:
    start = await holding(looking)
    start.remove("c-m-1")
    start.add("c-m-1")
    start.carried["c-m-1"] = "10.0.0.9/32"
    start.scan.note_guest("c-m-1", may_carry=True)
    await start.comes_to_quarantine("default.10.0.0.9")


async def test_a_guest_that_goes_while_it_is_looked_at_is_not_remembered(looking: type[Looking]) -> None:
    """What it carried is kept for as long as a quarantine lasts: its machines may take a while to go."""
    start = looking(pool_world(), {"c-m-1": "10.0.0.8/32"})
    look = start.read_in_use

    async def look_and_lose(guest_id: str, **_: object) -> InUseAddresses:
        found = await look(guest_id)
        start.remove(guest_id)
        return found

    start.read_in_use = look_and_lose
    await start.first()
    await start.comes_to_quarantine("default.10.0.0.8")
    start.read_in_use = look
    start.add("c-m-1")
    start.carried["c-m-1"] = "10.0.0.9/32"
    start.scan.note_guest("c-m-1", may_carry=True)
    await start.comes_to_quarantine("default.10.0.0.9")


@in_virtual_time
async def test_a_changed_range_does_not_wait_for_reports_beyond_those_that_count(
    looking: type[Looking],
) -> None:
    """A guest cluster that hangs, and reported more than 64 addresses, closed the gate at every edit of a range."""
    every = ",".join(f"10.0.0.{last}/32" for last in range(1, 100))
    start = looking(pool_world(), {"c-m-1": every})
    await start.first()
    start.read_in_use = hang  # type: ignore[method-assign]
    began = asyncio.get_running_loop().time()
    await start.change_range()
    assert asyncio.get_running_loop().time() - began < 1
    assert len(start.quarantined()) == 64


async def test_a_changed_range_does_not_wait_for_guest_clusters_that_it_could_not_serve(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.cache.observe(
        FLOATING_IP_RANGES,
        build_range("other", "10.7.0.0/24", clusterSelector={"matchLabels": {"net": "blue"}}),
    )
    start.free("default.10.0.0.7")
    await start.change_range("other")
    assert start.looked_at == []
    await start.change_range("pool")
    assert start.looked_at == ["c-m-1"]


async def test_what_waited_for_a_suspect_that_was_asked_again_is_woken_though_the_ranges_were_open_before(
    looking: type[Looking],
) -> None:
    start = await holding(looking)
    start.free("default.10.0.0.7")
    start.scan.note_guest("c-m-1")
    assert not start.scan.gate.is_open("pool")
    await asyncio.wait_for(start.opened.wait(), 30)
    assert start.scan.gate.is_open("pool")
    assert start.quarantined() == {"default.10.0.0.7"}
