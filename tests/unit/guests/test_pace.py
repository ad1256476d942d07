"""The pace of requests through one Rancher: so many a second, in two classes."""

import asyncio

from fipop.guests.access import BURST, Pace

RATE = 50


async def take(pace: Pace, number: int, *, is_urgent: bool, times: list[float]) -> None:
    """Ask for so many tokens at once, and note when each came."""
    clock = asyncio.get_running_loop().time

    async def one() -> None:
        await pace.take(is_urgent=is_urgent)
        times.append(clock())

    await asyncio.gather(*(one() for _ in range(number)))


async def test_after_a_burst_tokens_come_at_the_rate() -> None:
    pace, times = Pace(rate=lambda: RATE), []
    began = asyncio.get_running_loop().time()
    await take(pace, BURST + RATE // 2, is_urgent=True, times=times)
    assert times[BURST - 1] - began < 0.1
    assert 0.45 <= times[-1] - began < 1.0


async def test_what_is_urgent_comes_first_and_the_rest_gets_a_third() -> None:
    pace = Pace(rate=lambda: 300)
    await take(pace, BURST, is_urgent=True, times=[])
    order: list[str] = []

    async def one(kind: str) -> None:
        await pace.take(is_urgent=kind == "urgent")
        order.append(kind)

    await asyncio.gather(*(one("routine") for _ in range(20)), *(one("urgent") for _ in range(20)))
    assert 8 <= order[:30].count("routine") <= 12
    assert order[:3].count("urgent") == 2


async def test_without_urgent_ones_the_rest_has_the_whole_rate() -> None:
    pace, times = Pace(rate=lambda: 200), []
    began = asyncio.get_running_loop().time()
    await take(pace, BURST + 40, is_urgent=False, times=times)
    assert times[-1] - began < 0.5


async def test_a_task_that_is_cancelled_while_it_waits_costs_nobody_a_token() -> None:
    pace = Pace(rate=lambda: 100)
    await take(pace, BURST, is_urgent=True, times=[])
    waiting = [asyncio.create_task(pace.take(is_urgent=False)) for _ in range(50)]
    await asyncio.sleep(0)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(0.5):
        await pace.take(is_urgent=False)
