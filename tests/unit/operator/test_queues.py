"""Runs over the queues are measured under the name of their queue."""

import asyncio
from random import Random
from typing import Any

from fipop.addresses.ranges import KIND as RANGES
from fipop.guests.releases import KIND as INSTALL
from fipop.metrics.counters import REGISTRY
from fipop.runtime.queues import FLOATING_IP, VISIT, Key, Request, build_queues


async def test_every_run_is_measured_by_its_queue_and_kind() -> None:
    before = measured()
    queues = build_queues(Random(1))

    async def work(key: Any) -> None:
        if key == Key(RANGES, "", ""):
            raise ValueError("a bug")

    for queue, keys in (
        (queues.objects, [Key(FLOATING_IP, "c-m-a", "web"), Key(RANGES, "", "")]),
        (queues.visits, [Key(VISIT, "", "c-m-a")]),
        (queues.installs, [Key(INSTALL, "", "c-m-a")]),
    ):
        for key in keys:
            queues.of_kind[key.kind] = queue
            queues.add(Request(key))
        assert queue.depth == len(keys)
    assert measured() == before
    for queue in (queues.objects, queues.visits, queues.installs):
        await _drain(queue, work)
    assert [after - earlier for after, earlier in zip(measured(), before, strict=True)] == [
        2,
        1,
        1,
        1,
        1,
        0,
        1,
    ]


def measured() -> list[float]:
    """Return how many waits there were in each queue, and how many reconciliations and errors of two kinds."""
    counts = (
        *(("fipop_queue_wait_seconds_count", {"queue": each}) for each in ("objects", "visits", "installs")),
        *(("fipop_reconcile_duration_seconds_count", {"kind": each}) for each in ("floatingip", "ranges")),
        *(("fipop_reconcile_errors_total", {"kind": each}) for each in ("floatingip", "ranges")),
    )
    return [REGISTRY.get_sample_value(name, labels) or 0.0 for name, labels in counts]


async def _drain(queue: Any, work: Any) -> None:
    running = asyncio.create_task(queue.run(work, concurrency=1))
    for _ in range(10):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running})


def test_logs_name_the_kind_and_the_object_of_a_key() -> None:
    assert str(Key(FLOATING_IP, "c-m-a", "web")) == "floatingip c-m-a/web"
    assert str(Key(VISIT, "", "c-m-a")) == "visit c-m-a"
