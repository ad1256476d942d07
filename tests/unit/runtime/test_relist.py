"""Stores against lists, in virtual time."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from fipop.api.objects import FloatingIPRange, read_object
from fipop.errors import UnavailableError
from fipop.kube.client import Listing
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, Resource
from fipop.runtime.relist import EventType, Feed, Relister, Source
from fipop.runtime.store import Change, RestoredStoreError, Store
from fipop.state.cache import WATCHED

Virtually = Callable[[Coroutine[Any, Any, Any]], Any]


def range_object(name: str, version: int, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "managedFields": [{}]}
    return {"metadata": metadata, "spec": spec}


@dataclass
class Cluster:
    """What lists show: objects, their version, and whether they can be had."""

    version: int = 10
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    outage: bool = False
    failing: Random | None = None
    """If given, three of ten lists fail by its word, and each takes a second."""
    asked: list[tuple[float, str]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    async def list(
        self,
        resource: Resource,
        *,
        timeout_seconds: float | None = None,  # noqa: ARG002
        project: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> Listing:
        self.asked.append((round(asyncio.get_running_loop().time()), resource.plural))
        if self.failing is not None:
            await asyncio.sleep(1.0)
        if self.outage or (self.failing is not None and self.failing.random() < 0.3):
            raise UnavailableError(f"list {resource.kind}")
        assert project is not None
        items = tuple(project(item) for item in self.objects.values())
        listing = Listing(items=items, resource_version=self.version)
        self.meanwhile()
        return listing


class Bench:
    def __init__(self, *resources: Resource) -> None:
        self.cluster = Cluster()
        self.changes: list[tuple[str, Source]] = []
        self.feeds = [
            Feed(resource=resource, store=Store(self.project, kind=resource.kind), on_change=self.follow)
            for resource in resources or (FLOATING_IP_RANGES,)
        ]
        self.store = self.feeds[0].store
        self.resync = Relister(self.feeds, lister=self.cluster, random=Random(1))

    def project(self, obj: Mapping[str, Any]) -> FloatingIPRange:
        return read_object(FloatingIPRange, obj)

    def follow(self, change: Change[FloatingIPRange], source: Source) -> None:
        sign = "+" if change.old is None else "-" if change.new is None else "~"
        self.changes.append((sign + change.latest.name, source))

    async def run_for(self, seconds: float) -> None:
        task = asyncio.create_task(self.resync.run())
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("seed", range(5))
def test_a_leader_begins_soon_though_lists_fail_now_and_then(virtually: Virtually, seed: int) -> None:
    """What was listed is not listed again because a later list failed: whole rounds without a failure are rare."""

    async def scenario() -> None:
        bench = Bench(*WATCHED)
        bench.cluster.failing = Random(seed)
        running = asyncio.create_task(bench.resync.run())
        await asyncio.wait_for(bench.resync.refresh(), 60)
        assert len(bench.cluster.asked) <= 40
        running.cancel()

    virtually(scenario())


def test_events_change_the_store_and_are_told_on() -> None:
    bench = Bench()
    [feed] = bench.feeds
    feed.take_event(EventType.LISTED, range_object("a", 5))
    feed.take_event(EventType.MODIFIED, range_object("a", 6))
    feed.take_event(EventType.MODIFIED, range_object("a", 7, iprange="10.0.0.0/24"))
    feed.take_event(EventType.DELETED, range_object("a", 8))

    assert bench.changes == [("+a", Source.EVENT), ("~a", Source.EVENT), ("-a", Source.EVENT)]


def test_the_first_round_loads_every_store_in_the_order_of_the_feeds(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench(FLOATING_IP_RANGES, FLOATING_IPS)
        bench.cluster.objects["a"] = range_object("a", 5)
        assert not bench.resync.loaded
        await bench.run_for(2)

        assert bench.resync.loaded
        assert [plural for _, plural in bench.cluster.asked] == ["floatingipranges", "floatingips"]
        assert bench.changes == [("+a", Source.LIST)] * 2
        await bench.resync.wait_loaded()

    virtually(scenario())


def test_every_five_minutes_what_vanished_unseen_is_dropped(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.cluster.objects["a"] = range_object("a", 5)
        await bench.run_for(2)
        bench.cluster.objects.clear()
        bench.cluster.version = 20
        bench.cluster.asked.clear()
        await bench.run_for(700)

        assert bench.changes == [("+a", Source.LIST), ("-a", Source.LIST)]
        times = [time for time, _ in bench.cluster.asked]
        assert len(times) == 3
        assert all(270 <= later - earlier <= 333 for earlier, later in pairwise(times))

    virtually(scenario())


def test_a_failed_list_says_nothing_and_is_tried_again_soon(
    virtually: Virtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.store.put(range_object("a", 5))
        bench.cluster.outage = True
        await bench.run_for(100)

        assert not bench.resync.loaded
        assert len(bench.store) == 1
        times = [time for time, _ in bench.cluster.asked]
        first, second, third = times[:3]
        assert first == 2
        assert 2 <= second <= third <= 5
        assert times[-1] - times[-2] <= 33

    virtually(scenario())
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, "an outage is told once"


def test_while_one_list_fails_nothing_is_loaded(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench(FLOATING_IP_RANGES, FLOATING_IPS)
        bench.cluster.meanwhile = lambda: setattr(bench.cluster, "outage", True)
        await bench.run_for(10)

        assert bench.feeds[0].store.loaded
        assert not bench.resync.loaded

    virtually(scenario())


def test_an_event_that_overtakes_the_list_is_kept_and_raises_no_alarm(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.cluster.objects["a"] = range_object("a", 5)
        [feed] = bench.feeds
        bench.cluster.meanwhile = lambda: feed.take_event(
            EventType.MODIFIED, range_object("a", 12, iprange="10.0.0.0/24")
        )
        await bench.run_for(2)

        assert [one.spec.iprange for one in bench.store.all()] == ["10.0.0.0/24"]

    virtually(scenario())


def test_a_restored_store_ends_the_run(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.store.put(range_object("a", 12))
        with pytest.raises(RestoredStoreError):
            await bench.run_for(2)

    virtually(scenario())


def test_a_request_brings_the_next_round_forward_but_never_into_a_storm(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.create_task(bench.resync.run())
        await asyncio.sleep(100)
        for _ in range(20):
            bench.resync.request()
            await asyncio.sleep(1)
        await asyncio.sleep(200)
        task.cancel()

        times = [time for time, _ in bench.cluster.asked]
        assert times[:2] == [2, 100]
        assert 127 <= times[2] <= 133
        assert len(times) == 3

    virtually(scenario())


def test_a_request_during_the_least_pause_is_not_lost(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench()
        task = asyncio.create_task(bench.resync.run())
        await asyncio.sleep(5)
        bench.resync.request()
        await asyncio.sleep(40)
        task.cancel()

        times = [time for time, _ in bench.cluster.asked]
        assert times[0] == 2
        assert 28 <= times[1] <= 35

    virtually(scenario())


def test_a_refresh_lists_everything_at_once_and_insists(virtually: Virtually) -> None:
    async def scenario() -> None:
        bench = Bench(FLOATING_IP_RANGES, FLOATING_IPS)
        bench.cluster.outage = True
        running = asyncio.create_task(bench.resync.run())
        task = asyncio.create_task(bench.resync.refresh())
        await asyncio.sleep(20)
        assert not task.done()
        assert not bench.resync.loaded
        bench.cluster.outage = False
        bench.cluster.objects["a"] = range_object("a", 5)
        await asyncio.wait_for(task, 20)
        running.cancel()

        assert bench.resync.loaded
        assert bench.changes == [("+a", Source.LIST)] * 2

    virtually(scenario())


def test_a_leader_that_begins_with_the_process_lists_everything_once(virtually: Virtually) -> None:
    """Two rounds at once took twice as long, and every restart of a large fleet waited for that."""

    async def play() -> None:
        bench = Bench()
        running = asyncio.create_task(bench.run_for(20))
        await asyncio.sleep(1)
        await bench.resync.refresh()
        await running
        assert bench.resync.loaded
        assert bench.cluster.asked == [(1, "floatingipranges")]

    virtually(play())


def test_a_refresh_waits_for_a_round_that_began_after_it(virtually: Virtually) -> None:
    async def play() -> None:
        bench = Bench()
        list_all, may_answer = bench.cluster.list, asyncio.Event()

        async def list_slowly(*arguments: Any, **options: Any) -> Listing:
            listing = await list_all(*arguments, **options)
            await may_answer.wait()
            return listing

        bench.cluster.list = list_slowly  # type: ignore[method-assign]
        running = asyncio.create_task(bench.run_for(60))
        await asyncio.sleep(5)
        refresh = asyncio.create_task(bench.resync.refresh())
        await asyncio.sleep(1)
        bench.cluster.objects["a"], bench.cluster.version = range_object("a", 11), 11
        may_answer.set()
        await refresh
        assert bench.changes == [("+a", Source.LIST)]
        assert bench.cluster.asked == [(2, "floatingipranges"), (6, "floatingipranges")]
        await running

    virtually(play())


def test_a_refresh_during_an_outage_waits_for_no_pause_that_began_before_it(virtually: Virtually) -> None:
    async def play() -> None:
        bench = Bench()
        bench.cluster.outage = True
        running = asyncio.create_task(bench.run_for(400))
        await asyncio.sleep(300)
        bench.cluster.outage = False
        await asyncio.wait_for(bench.resync.refresh(), 0.1)
        running.cancel()

    virtually(play())


def test_without_a_leader_the_first_round_begins_after_the_pause(virtually: Virtually) -> None:
    async def play() -> None:
        bench = Bench()
        await bench.run_for(20)
        assert [moment for moment, _ in bench.cluster.asked] == [2]

    virtually(play())
