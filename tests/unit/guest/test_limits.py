"""What all passes share: guests that hang keep nothing from those that answer."""

import asyncio
from dataclasses import replace

from fipop.guest.guest_pass import GuestSessions
from fipop.guest.limits import GuestLimits
from fipop.guest.reports import ConfigMapOutcome, PassReport
from localfleet.proxy import Fault, RancherProxy
from localfleet.waiting import eventually
from tests.unit.guest.passes import add_guest


async def count_free(slots: asyncio.Semaphore) -> int:
    """Take all slots that are free, and return how many they were."""
    free = 0
    while not slots.locked():
        await slots.acquire()
        free += 1
    return free


async def test_guests_that_hang_do_not_keep_the_slots_from_those_that_answer(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    limits.slots, limits.brisk_seconds, limits.request_seconds = asyncio.Semaphore(2), 0.1, 100
    sessions = GuestSessions(limits)
    hanging = [add_guest(proxy, f"c-m-hang{number}", fault=Fault(hang=True)) for number in range(6)]
    stuck = [asyncio.create_task(sessions.run_pass(task)) for task in hanging]
    reports = await asyncio.gather(*(sessions.run_pass(add_guest(proxy, f"c-m-{n}")) for n in range(20)))
    assert all(report.error is None for report in reports)
    assert not any(task.done() for task in stuck)
    for task in stuck:
        task.cancel()
    await asyncio.gather(*stuck, return_exceptions=True)
    assert await count_free(limits.slots) == 2, "every slot was given back once"


async def test_there_is_a_bound_for_slow_talks_too(proxy: RancherProxy, limits: GuestLimits) -> None:
    limits.slots, limits.brisk_seconds, limits.slow_slots = asyncio.Semaphore(1), 0.05, 2
    limits.request_seconds = 2
    sessions = GuestSessions(limits)
    tasks = [add_guest(proxy, f"c-m-{number}", fault=Fault(hang=True)) for number in range(6)]
    running = [asyncio.create_task(sessions.run_pass(task)) for task in tasks]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    assert sum(bool(proxy.requests_of(task.guest.id)) for task in tasks) == 3
    reports = await asyncio.gather(*running)
    assert not any(report.reachable for report in reports)
    assert await count_free(limits.slots) == 1


async def test_while_a_pass_waits_for_charts_its_slot_serves_others(
    proxy: RancherProxy, limits: GuestLimits
) -> None:
    limits.slots = asyncio.Semaphore(1)
    sessions = GuestSessions(limits)
    early: list[PassReport] = []
    waiting = asyncio.create_task(
        sessions.run_pass(replace(add_guest(proxy, "c-m-new"), opted_in=True), early=early.append)
    )

    async def is_told() -> bool:
        return bool(early)

    await eventually(is_told, what="the early report")
    assert [one.config_map.outcome for one in early] == [ConfigMapOutcome.WRITTEN]
    report = await sessions.run_pass(add_guest(proxy, "c-m-other"))
    assert report.config_map.outcome is ConfigMapOutcome.WRITTEN
    assert not waiting.done()
    assert (await waiting).error is not None, "the charts cannot be had"
