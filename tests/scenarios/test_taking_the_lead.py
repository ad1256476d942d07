"""What a replica does with what it knew before, and with what a look found out first, when it takes the lead."""

import asyncio
import contextlib
from random import Random
from typing import Any, cast

from fipop.kube.resources import FLOATING_IP_RESERVATIONS, Resource
from fipop.metrics.exposition import Metrics
from fipop.operator.addresses.waiting import find_waiting
from fipop.operator.queues import Key, Kind, build_queues
from fipop.operator.startup import adopt_all, find_all
from fipop.runtime.workqueue import RetryAfter
from tests.harness.idle import wait_idle
from tests.harness.memory import Json
from tests.harness.small_operator import SmallOperator
from tests.harness.terms import Pending

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.11"
GUESTS = 60


async def test_a_guest_whose_links_a_look_resolved_first_gets_its_pass_all_the_same() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.ask(A)
    await operator.start()
    operator.take_lead()
    term = operator.manager
    await term.guests.discover(A)
    passes = cast("Pending", term.queues.passes)
    passes.keys.clear()
    await term.reconcile(Key(Kind.GUEST, "", A))
    assert Key(Kind.VISIT, "", A) in passes.keys
    passes.keys.clear()
    await term.reconcile(Key(Kind.GUEST, "", A))
    assert passes.keys == {}, "it is told once"


async def test_every_guest_is_visited_after_a_start_though_passes_and_looks_come_before_its_own_round() -> (
    None
):
    """Its first pass comes too early, as it is not known; and then the look at all guests is the first to know it."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.0/16")
    for number in range(GUESTS):
        operator.add_guest(f"c-m-{number:03}")
        operator.ask(f"c-m-{number:03}")
    await operator.start()
    operator.manager.end()
    queues = build_queues(Metrics(lambda: cast("Any", None), version="0"), Random(1))
    term = operator.build_manager(queues)
    visited: set[str] = set()

    async def visit(key: Key) -> RetryAfter | None:
        if term.guests.known(key.name) is not None:
            visited.add(key.name)
        return None

    looked = asyncio.Event()

    async def scan_after_passes() -> None:
        await wait_idle(queues.passes)
        await term.scan.run()

    async def reconcile(key: Key) -> RetryAfter | None:
        if key.kind is Kind.GUEST:
            await looked.wait()
        return await term.reconcile(key)

    go_on = term.scan.opened

    def open_the_gate() -> None:
        looked.set()
        go_on()

    term.scan.opened = open_the_gate
    term.begin()
    term.enqueue_all()
    tasks = [
        asyncio.create_task(queues.objects.run(reconcile, concurrency=4)),
        asyncio.create_task(queues.passes.run(visit, concurrency=128)),
        asyncio.create_task(scan_after_passes()),
    ]
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                while len(visited) < GUESTS:  # noqa: ASYNC110 - a set has no event for that
                    await asyncio.sleep(0.01)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert len(visited) == GUESTS


async def test_a_claim_that_was_cut_off_with_the_lead_keeps_no_address_when_its_owner_is_gone() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_guest(A)
    operator.add_guest(B)
    await operator.start()
    create, begun = operator.client.create, asyncio.Event()

    async def hang(resource: Resource, body: Json, **options: Any) -> Json:
        if resource == FLOATING_IP_RESERVATIONS:
            begun.set()
            await asyncio.Event().wait()
        return await create(resource, body, **options)

    operator.client.create = hang  # type: ignore[method-assign]
    operator.ask(A)
    claiming = asyncio.create_task(operator.manager.floating_ips.reconcile((A, "web")))
    await asyncio.wait_for(begun.wait(), 5)
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    operator.manager.end()
    operator.give_up(A)
    operator.pending.keys.clear()
    operator.client.create = create  # type: ignore[method-assign]
    await operator.start()
    operator.ask(B)
    await operator.settle()
    assert operator.holders(X) == {B}


async def test_what_is_as_it_should_be_is_looked_at_after_what_is_new() -> None:
    """Ten thousand floating IPs had their rounds, and all guests a pass, before a new guest got its address."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.ask(A)
    await operator.start()
    next_one = SmallOperator(former=operator)
    next_one.ask(B)
    next_one.take_lead()
    term = next_one.manager
    await adopt_all(term.guests, term.gate, term.floating_ips.reconcile)
    delays = {each.key: each.delay_seconds for each in find_all(next_one.cache)}
    concerned = {key for key in delays if key.kind in (Kind.FLOATING_IP, Kind.GUEST, Kind.VISIT)}
    at_once = {key for key in concerned if not delays[key]}
    assert at_once == {Key(Kind.FLOATING_IP, B, "web")}
    later = {Key(Kind.FLOATING_IP, A, "web"), Key(Kind.GUEST, "", A), Key(Kind.VISIT, "", A)}
    assert later <= concerned
    next_one.manager.enqueue_all()
    await next_one.look()
    assert next_one.holders(Y) == {B}


async def test_a_new_term_knows_nothing_of_who_waited_in_the_one_before() -> None:
    """Floating IPs that were deleted while the replica stood by were woken for ever."""
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    await operator.start()
    operator.ask(A)
    operator.ask(B)
    await operator.settle()
    assert len(find_waiting(operator.cache)) == 1
    operator.manager.end()
    (waiting,) = {A, B} - operator.holders(X)
    operator.give_up(waiting)
    await operator.start()
    assert find_waiting(operator.cache) == []
