"""Events on their way between threads."""

import asyncio
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from fipop.kube.resources import FLOATING_IPS, NAMESPACES
from fipop.runtime.kopf.bridge import EventBridge, EventType


class Collector:
    """A callback that remembers, and on which can be waited."""

    def __init__(self) -> None:
        self.seen: list[tuple[EventType, Any]] = []
        self.threads: set[int] = set()
        self._news = asyncio.Event()

    def __call__(self, event_type: EventType, obj: Mapping[str, Any]) -> None:
        self.seen.append((event_type, obj["number"]))
        self.threads.add(threading.get_ident())
        self._news.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.seen) < count:
                self._news.clear()
                await self._news.wait()


async def test_events_of_another_thread_arrive_in_order_and_in_the_loop_s_own_thread() -> None:
    collector = Collector()
    event_bridge = EventBridge({NAMESPACES: collector}, asyncio.get_running_loop())

    def send() -> None:
        for number in range(5000):
            event_bridge.put(NAMESPACES, EventType.ADDED, {"number": number})

    await asyncio.gather(asyncio.to_thread(send), collector.wait_for(5000))

    assert collector.seen == [(EventType.ADDED, number) for number in range(5000)]
    assert collector.threads == {threading.get_ident()}


async def test_others_get_their_turn_between_slices() -> None:
    collector, lengths = Collector(), []
    loop = asyncio.get_running_loop()
    event_bridge = EventBridge({NAMESPACES: collector}, loop, slice_length=10)

    def look() -> None:
        lengths.append(len(collector.seen))
        if lengths[-1] < 100:
            loop.call_soon(look)

    for number in range(100):
        event_bridge.put(NAMESPACES, EventType.ADDED, {"number": number})
    look()
    await collector.wait_for(100)

    assert {later - earlier for earlier, later in pairwise(lengths)} <= {0, 10}


async def test_an_event_that_cannot_be_taken_in_is_logged_and_the_others_arrive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    namespaces, floating_ips = Collector(), Collector()
    event_bridge = EventBridge(
        {NAMESPACES: namespaces, FLOATING_IPS: floating_ips}, asyncio.get_running_loop()
    )
    event_bridge.put(NAMESPACES, EventType.ADDED, {"not": "what it should be"})
    event_bridge.put(FLOATING_IPS, EventType.DELETED, {"number": 1})
    await floating_ips.wait_for(1)

    assert floating_ips.seen == [(EventType.DELETED, 1)]
    [record] = caplog.records
    assert record.resource == "namespaces"


async def test_after_the_end_of_the_loop_events_go_nowhere() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    EventBridge({NAMESPACES: lambda *_: None}, loop).put(NAMESPACES, EventType.ADDED, {})
