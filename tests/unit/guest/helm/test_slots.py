"""So many turns at once as there are slots, also while their number changes."""

import asyncio

from fipop.guest.helm.slots import Slots


async def take(slots: Slots, go: asyncio.Event, running: set[int], number: int) -> None:
    async with slots:
        running.add(number)
        await go.wait()
        running.discard(number)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_number_of_turns_follows_the_number_of_slots() -> None:
    slots, go, running = Slots(2), asyncio.Event(), set[int]()
    tasks = [asyncio.create_task(take(slots, go, running, number)) for number in range(6)]
    await settle()
    assert running == {0, 1}
    slots.resize(4)
    await settle()
    assert running == {0, 1, 2, 3}
    slots.resize(1)
    tasks[0].cancel()
    await settle()
    assert running >= {1, 2, 3}, "nobody is driven out"
    assert 4 not in running
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_gives_up_waiting_takes_no_turn_with_it() -> None:
    slots, go, running = Slots(1), asyncio.Event(), set[int]()
    first = asyncio.create_task(take(slots, go, running, 0))
    waiting = asyncio.create_task(take(slots, go, running, 1))
    await settle()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    last = asyncio.create_task(take(slots, go, running, 2))
    go.set()
    await asyncio.wait_for(asyncio.gather(first, last), 5)
