"""Runs over the queues are measured under the name of their queue."""

import asyncio
from random import Random
from typing import Any, cast

from fipop.metrics.exposition import Metrics
from fipop.operator.queues import Key, Kind, Request, build_queues
from tests.harness.idle import wait_idle


async def test_every_run_is_measured_by_its_queue_and_kind() -> None:
    metrics = Metrics(lambda: cast("Any", None), version="0")
    waits: list[str] = []
    rounds: list[tuple[str, bool]] = []
    metrics.observe_queue_wait = lambda queue, _seconds: waits.append(queue)  # type: ignore[method-assign]
    metrics.observe_reconcile = lambda kind, _seconds, success: rounds.append((kind, success))  # type: ignore[method-assign,misc,assignment]
    queues = build_queues(metrics, Random(1))

    async def work(key: Any) -> None:
        if key == Key(Kind.RANGES, "", ""):
            raise ValueError("a bug")

    for queue, keys in (
        (queues.objects, [Key(Kind.FLOATING_IP, "c-m-a", "web"), Key(Kind.RANGES, "", "")]),
        (queues.visits, [Key(Kind.VISIT, "", "c-m-a")]),
        (queues.installs, [Key(Kind.INSTALL, "", "c-m-a")]),
    ):
        for key in keys:
            queues.add(Request(key))
        assert queue.depth == len(keys)
    assert (waits, rounds) == ([], [])
    for queue in (queues.objects, queues.visits, queues.installs):
        await _drain(queue, work)
    assert waits == ["objects", "objects", "visits", "installs"]
    assert rounds == [("floatingip", True), ("ranges", False)]


async def _drain(queue: Any, work: Any) -> None:
    running = asyncio.create_task(queue.run(work, concurrency=1))
    await asyncio.sleep(0)
    await wait_idle(queue)
    running.cancel()
    await asyncio.wait({running})


def test_logs_name_the_kind_and_the_object_of_a_key() -> None:
    assert str(Key(Kind.FLOATING_IP, "c-m-a", "web")) == "floatingip c-m-a/web"
    assert str(Key(Kind.VISIT, "", "c-m-a")) == "visit c-m-a"
