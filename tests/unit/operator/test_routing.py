import asyncio
from random import Random
from typing import Any

import pytest
from fipop.operator.routing import Router

from fipop.kube.resources import (
    FLOATING_IP_RANGES,
    FLOATING_IP_RESERVATIONS,
    FLOATING_IPS,
    MANAGEMENT_CLUSTERS,
    Resource,
)
from fipop.operator.queues import Key, Kind, WorkQueues
from fipop.runtime.relist import EventType
from fipop.runtime.workqueue import WorkQueue
from fipop.state.cache import ClusterCache
from tests.harness.answering_client import AnsweringClient
from tests.harness.every_guest import EveryGuest
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    floating_ip,
    held_by,
    newer,
    v4,
)
from tests.harness.terms import Listener

POOL = build_range("pool", "10.0.0.1-10.0.0.9")


def wakes(
    *changes: tuple[Resource, Json],
    given: ClusterCache | None = None,
    waiting: tuple[str, ...] = (),
    deleted: bool = False,
    unserved: tuple[str, ...] = (),
) -> tuple[set[Key], set[str]]:
    """What the last of the changes enqueues: keys of objects, and guests to pass over."""

    async def run() -> tuple[set[Key], set[str]]:
        cache = given or cache_of()
        work: WorkQueue[Key] = WorkQueue(name="objects", random=Random(0))
        passes: WorkQueue[str] = WorkQueue(name="passes", random=Random(0))
        router = _router(cache, work, passes)
        for guest_id in unserved:
            router.guests.state(guest_id).is_unserved = True
        for name in waiting:
            router.note_waiting(floating_ip(name), True)
        *before, last = changes
        for resource, obj in before:
            cache.observe(resource, obj)
        cache.attach(Listener(on_change=router.route))
        resource, obj = last
        cache.feed(resource).take_event(EventType.DELETED if deleted else EventType.MODIFIED, obj)
        return await _drain(work), await _drain(passes)

    return asyncio.run(run())


def _router(cache: ClusterCache, work: WorkQueue[Key], passes: WorkQueue[str]) -> Router:
    installs: WorkQueue[str] = WorkQueue(name="installs", random=Random(0))
    queues = WorkQueues(objects=work, checks=work, passes=passes, installs=installs)
    return Router(
        cache=cache,
        queues=queues,
        guests=EveryGuest(cache=cache, client=AnsweringClient()),
    )


async def _drain(queue: WorkQueue[Any]) -> set[Any]:
    seen = set()

    async def note(key: Any) -> None:
        seen.add(key)

    running = asyncio.create_task(queue.run(note, concurrency=1))
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while queue.delayed:  # noqa: ASYNC110 - what is gathered for a moment counts, too
            await asyncio.sleep(0.01)
    await queue.wait_idle()
    queue.stop(deadline_seconds=1)
    await running
    return seen


def fip(name: str, namespace: str = "c-m-1") -> Key:
    return Key(Kind.FLOATING_IP, namespace, name)


def test_a_changed_range_concerns_all_of_its_space_its_floating_ips_who_waits_and_unserved_guests() -> None:
    given = cache_of(
        ranges=[POOL, build_range("other", "10.1.0.1"), build_range("away", "10.2.0.1", addressSpace="away")],
        floating_ips=[
            build_floating_ip("served", status=held_by(["10.0.0.1"])),
            build_floating_ip("names-it", annotations={"fiprange": "pool"}),
            build_floating_ip("elsewhere", status=held_by(["10.1.0.1"], range_name="other")),
        ],
    )
    changed = newer(POOL, spec={"iprange": "10.0.0.1-10.0.0.5"})
    changed["metadata"]["generation"] = 2
    objects, passes = wakes(
        (FLOATING_IP_RANGES, changed), given=given, waiting=("waits",), unserved=("c-m-9",)
    )
    assert objects == {
        Key(Kind.RANGE, "", "pool"),
        Key(Kind.RANGE, "", "other"),
        fip("served"),
        fip("names-it"),
        fip("waits"),
        Key(Kind.GUEST, "", "c-m-9"),
    }
    assert passes == set()


def test_a_range_whose_status_alone_changed_concerns_nobody() -> None:
    status = {"capacity": {"total": 9, "free": 9}, "observedGeneration": 1}
    changed = newer(POOL, status=status)
    assert wakes((FLOATING_IP_RANGES, changed), given=cache_of(ranges=[POOL]), waiting=("waits",)) == (
        set(),
        set(),
    )


def test_a_changed_floating_ip_concerns_itself_and_the_range_that_counts_it() -> None:
    before = build_floating_ip("web", status=held_by(["10.0.0.1"]))
    objects, passes = wakes(
        (FLOATING_IPS, newer(before, status={})), given=cache_of(ranges=[POOL], floating_ips=[before])
    )
    assert objects == {fip("web"), Key(Kind.RANGE, "", "pool")}
    assert passes == set()


def test_a_floating_ip_that_went_concerns_its_guest_which_is_to_be_told_and_may_want_another() -> None:
    gone, other = build_floating_ip("web"), build_floating_ip("other")
    objects, passes = wakes(
        (FLOATING_IPS, newer(gone)), given=cache_of(floating_ips=[gone, other]), deleted=True
    )
    assert objects == {fip("web"), fip("other"), Key(Kind.GUEST, "", "c-m-1")}
    assert passes == {"c-m-1"}


@pytest.mark.parametrize("deleted", [False, True])
def test_an_address_that_is_released_or_freed_wakes_all_who_wait(deleted: bool) -> None:
    held = build_reservation("10.0.0.1")
    released = build_reservation("10.0.0.1", quarantined_until="2026-03-01T12:00:00Z")
    objects, _ = wakes(
        (FLOATING_IP_RESERVATIONS, newer(held if deleted else released)),
        given=cache_of(ranges=[POOL], reservations=[held]),
        waiting=("waits", "waits-too"),
        deleted=deleted,
    )
    assert objects >= {fip("waits"), fip("waits-too"), fip("web"), Key(Kind.RANGE, "", "pool")}


def test_an_address_that_is_newly_held_wakes_nobody_who_waits() -> None:
    held = build_reservation("10.0.0.1")
    given = cache_of(ranges=[POOL], floating_ips=[build_floating_ip("web")])
    objects, _ = wakes((FLOATING_IP_RESERVATIONS, held), given=given, waiting=("waits",))
    assert objects == {fip("web"), Key(Kind.RANGE, "", "pool")}


def test_a_held_reservation_without_its_floating_ip_is_looked_into() -> None:
    held = build_reservation("10.0.0.1")
    objects, _ = wakes((FLOATING_IP_RESERVATIONS, held))
    assert Key(Kind.RESERVATION, "", "default.10.0.0.1") in objects


def test_a_guest_that_comes_or_goes_concerns_its_floating_ips_and_the_quarantines_of_its_addresses() -> None:
    given = cache_of(
        floating_ips=[build_floating_ip("web")],
        reservations=[
            build_reservation("10.0.0.1"),
            build_reservation("10.0.0.2", "gone", quarantined_until="2026-03-01T12:00:00Z"),
        ],
    )
    cluster = {"metadata": {"name": "c-m-1", "uid": "uid", "resourceVersion": "999999"}, "spec": {}}
    objects, _ = wakes((MANAGEMENT_CLUSTERS, cluster), given=given)
    assert objects == {
        fip("web"),
        Key(Kind.GUEST, "", "c-m-1"),
        Key(Kind.RESERVATION, "", "default.10.0.0.2"),
    }


def test_who_waits_is_served_the_oldest_first() -> None:
    async def run() -> list[Key]:
        work: WorkQueue[Key] = WorkQueue(name="objects", random=Random(0))
        router = _router(cache_of(), work, WorkQueue(name="passes", random=Random(0)))
        for day, name in ((3, "a"), (1, "b"), (2, "c")):
            router.note_waiting(floating_ip(name, created=f"2026-01-0{day}T00:00:00Z"), True)
        router.note_waiting(floating_ip("served"), True)
        router.note_waiting(floating_ip("served"), False)
        router.wake_waiting()
        order: list[Key] = []

        async def note(key: Key) -> None:
            order.append(key)

        running = asyncio.create_task(work.run(note, concurrency=1))
        await asyncio.sleep(0)
        await work.wait_idle()
        work.stop(deadline_seconds=1)
        await running
        return order

    assert asyncio.run(run()) == [fip("b"), fip("c"), fip("a")]


def test_an_address_that_is_freed_wakes_only_whom_it_may_concern() -> None:
    async def run() -> set[Key]:
        cache = cache_of(
            ranges=[
                POOL,
                build_range("far", "10.9.0.1"),
                build_range("away", "10.9.0.2", addressSpace="away"),
            ]
        )
        work: WorkQueue[Key] = WorkQueue(name="objects", random=Random(0))
        router = _router(cache, work, WorkQueue(name="passes", random=Random(0)))
        for name, range_name, ipaddress in (
            ("of-it", "pool", ""),
            ("of-any", None, ""),
            ("of-a-missing-one", "gone", ""),
            ("of-another", "far", ""),
            ("of-another-by-name", "far", "10.0.0.1"),
        ):
            annotations = {"fiprange": range_name} if range_name else {}
            router.note_waiting(floating_ip(name, annotations=annotations, ipaddress=ipaddress), True)
        router.address_freed("default", v4("10.0.0.1"), claim_failed=False)
        return await _drain(work)

    assert asyncio.run(run()) == {
        fip("of-it"),
        fip("of-any"),
        fip("of-a-missing-one"),
        fip("of-another-by-name"),
        Key(Kind.RANGE, "", "pool"),
        Key(Kind.RANGE, "", "far"),
    }


async def test_who_has_all_that_it_asks_for_does_not_come_before_who_has_not() -> None:
    """A start woke thousands of them, guest by guest, before a new one had its address."""
    served = build_floating_ip(
        "served", namespace="c-m-1", ipaddress="10.0.0.1", status=held_by(["10.0.0.1"])
    )
    cache = cache_of(
        ranges=[POOL],
        floating_ips=[served, build_floating_ip("new", namespace="c-m-2")],
        reservations=[build_reservation("10.0.0.1", "served", namespace="c-m-1", uid="uid-c-m-1-served")],
    )
    work: WorkQueue[Key] = WorkQueue(name="objects", random=Random(0))
    router = _router(cache, work, WorkQueue(name="passes", random=Random(0)))
    seen: list[Key] = []

    async def note(key: Key) -> None:
        seen.append(key)

    for key in (("c-m-1", "served"), ("c-m-2", "new"), ("c-m-1", "gone")):
        router.add_floating_ip(key)
    running = asyncio.create_task(work.run(note, concurrency=1))
    await work.wait_idle()
    work.stop(deadline_seconds=1)
    await running
    assert seen == [fip("new", "c-m-2"), fip("gone"), fip("served")]
