"""Work that is done for many at once."""

import asyncio
from collections.abc import Sequence

import pytest

from fipop.runtime.batching import Batcher


class Served:
    """Notes its batches; each ends when `go_on` is set."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.began, self.go_on = asyncio.Event(), asyncio.Event()
        self.problem: Exception | None = None

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append([*items])
        self.began.set()
        await self.go_on.wait()
        if self.problem is not None:
            raise self.problem
        return [item * 10 for item in items]


async def test_what_comes_together_or_meanwhile_is_served_together() -> None:
    served = Served()
    batcher: Batcher[int, int] = Batcher(served)
    first = [asyncio.create_task(batcher.submit(number)) for number in (1, 2)]
    await served.began.wait()
    later = [asyncio.create_task(batcher.submit(number)) for number in (3, 4)]
    await asyncio.sleep(0)
    served.go_on.set()
    assert await asyncio.gather(*first, *later) == [10, 20, 30, 40]
    assert served.batches == [[1, 2], [3, 4]]
    assert await batcher.submit(5) == 50, "it goes on after a rest"


async def test_what_fails_fails_for_all_of_the_batch_and_for_no_other() -> None:
    served = Served()
    served.go_on.set()
    batcher: Batcher[int, int] = Batcher(served)
    served.problem = ValueError("no")
    answers = await asyncio.gather(batcher.submit(1), batcher.submit(2), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["no", "no"]
    served.problem = None
    assert await batcher.submit(3) == 30


async def test_who_goes_away_takes_nothing_from_the_others() -> None:
    served = Served()
    batcher: Batcher[int, int] = Batcher(served)
    gone, stays = (asyncio.create_task(batcher.submit(number)) for number in (1, 2))
    await served.began.wait()
    gone.cancel()
    served.go_on.set()
    assert await stays == 20


async def test_closed_it_answers_nobody() -> None:
    served = Served()
    batcher: Batcher[int, int] = Batcher(served)
    asked = [asyncio.create_task(batcher.submit(1))]
    await served.began.wait()
    asked.append(asyncio.create_task(batcher.submit(2)))
    await asyncio.sleep(0)
    await batcher.close()
    for each in asked:
        with pytest.raises(asyncio.CancelledError):
            await each
