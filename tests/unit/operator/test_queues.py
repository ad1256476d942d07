"""Runs over the queues are measured under the name of their queue."""

import asyncio
from random import Random
from typing import Any, cast

from fipop.metrics.exposition import Metrics
from fipop.operator.queues import Key, Kind, build_queues


async def test_every_run_is_measured_by_its_queue_and_kind() -> None:
    metrics = Metrics(lambda: cast("Any", None), version="0")
    waits: list[str] = []
    rounds: list[tuple[str, bool]] = []
    metrics.observe_queue_wait = lambda queue, _seconds: waits.append(queue)  # type: ignore[method-assign]
    metrics.observe_reconcile = lambda kind, _seconds, success: rounds.append((kind, success))  # type: ignore[method-assign,misc,assignment]
    queues = build_queues(metrics, Random(1))

    async def work(key: Any) -> None:
        if key == Key(Kind.RANGE, "", "bad"):
            raise ValueError("a bug")

    for queue, keys in (
        (queues.objects, [Key(Kind.FLOATING_IP, "c-m-a", "web"), Key(Kind.RANGE, "", "bad")]),
        (queues.checks, [Key(Kind.QUARANTINE, "", "c-m-a")]),
        (queues.passes, ["c-m-a"]),
        (queues.installs, ["c-m-a"]),
    ):
        for key in keys:
            queue.add(key)  # type: ignore[arg-type]
    assert (waits, rounds) == ([], [])
    for queue in (queues.objects, queues.checks, queues.passes, queues.installs):
        await _drain(queue, work)
    assert waits == ["objects", "objects", "checks", "passes", "installs"]
    assert rounds == [("floatingip", True), ("range", False), ("quarantine", True)]


async def _drain(queue: Any, work: Any) -> None:
    running = asyncio.create_task(queue.run(work, concurrency=1))
    await asyncio.sleep(0)
    await queue.wait_idle()
    queue.stop(deadline_seconds=1)
    await running
