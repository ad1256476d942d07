"""Stores against lists and watches, in virtual time, over an API server in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from fipop.api.objects import FloatingIPRange, read_object
from fipop.interfaces import ApiRequest
from fipop.kube.client import KubeClient
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from fipop.runtime.informer import Informer, Relister
from fipop.runtime.store import Change, RestoredStoreError, Store
from tests.harness.api_in_memory import ApiInMemory, Link, respond_with_text
from tests.harness.virtual_time import in_virtual_time

HOUR = 3600.0


@dataclass
class Bench:
    """A server with ranges, what an informer says of them, and the ways to it."""

    server: ApiInMemory = field(default_factory=ApiInMemory)
    changes: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.link = Link(self.server)
        self.store: Store[FloatingIPRange] = Store(partial(read_object, FloatingIPRange), kind="range")
        self.informer = self.build(FLOATING_IP_RANGES)

    def build(self, resource: object) -> Informer[FloatingIPRange]:
        store = self.store if resource is FLOATING_IP_RANGES else Store(partial(read_object, FloatingIPRange))
        return Informer(KubeClient(self.link), resource, store, self._changed)  # type: ignore[arg-type]

    def _changed(self, change: Change[FloatingIPRange]) -> None:
        sign = "+" if change.old is None else "-" if change.new is None else "~"
        self.changes.append(sign + change.latest.name)

    def put(self, name: str, iprange: str = "10.0.0.0/24") -> None:
        self.server.put(
            ("floatingipranges", "", name), {"metadata": {"name": name}, "spec": {"iprange": iprange}}
        )

    def remove(self, name: str) -> None:
        self.server.remove(("floatingipranges", "", name))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run(Random(1)))
        try:
            await asyncio.sleep(1)
            yield
            assert not task.done()
        finally:
            task.cancel()


@in_virtual_time
async def test_an_informer_shows_each_change_once() -> None:
    bench = Bench()
    bench.put("a")
    async with bench.running():
        bench.put("b")
        bench.put("a", "10.0.1.0/24")
        bench.remove("b")
        await asyncio.sleep(HOUR)
    assert bench.changes == ["+a", "+b", "~a", "-b"]


@in_virtual_time
async def test_a_right_that_is_missing_for_an_hour_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.link.refuse = lambda verb, _target, _request: verb == "list"
    async with bench.running():
        await asyncio.sleep(HOUR)
    found = [each for each in caplog.records if each.message == "Could not list or watch, retrying"]
    assert len(found) == 1
    assert found[0].levelname == "WARNING"


@pytest.mark.parametrize("verb", ["list", "watch"])
@in_virtual_time
async def test_what_happens_while_nothing_answers_is_seen_afterwards(verb: str) -> None:
    bench = Bench()
    bench.put("a")
    async with bench.running():
        bench.link.is_cut = True
        bench.link.failures[verb] = 5
        await asyncio.sleep(100)
        bench.put("b")
        bench.remove("a")
        bench.link.is_cut = False
        await asyncio.sleep(20)
    assert sorted(bench.changes) == ["+a", "+b", "-a"]


@in_virtual_time
async def test_a_server_that_refuses_everything_is_not_asked_in_a_tight_loop() -> None:
    bench = Bench()
    bench.link.is_cut = True
    async with bench.running():
        await asyncio.sleep(100)
    assert bench.link.requests["list", "floatingipranges"] < 110


@in_virtual_time
async def test_an_event_that_crashes_whoever_hears_of_it_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.informer.take("ADDED", {"metadata": {"name": "a"}})
    assert [each.message for each in caplog.records] == ["Could not process event"]
    bench.put("b")
    await bench.informer.relist()
    assert bench.changes == ["+b"]


@in_virtual_time
async def test_resources_are_listed_in_their_order_again_and_again_and_when_asked() -> None:
    bench, asked = Bench(), list[str]()
    ranges, floating_ips = bench.informer, bench.build(FLOATING_IPS)
    bench.link.refuse = lambda _verb, target, _request: bool(asked.append(target.plural))
    relister = Relister([floating_ips, ranges], random=Random(1), every_seconds=300.0)
    task = asyncio.create_task(relister.run())
    await relister.loaded.wait()
    assert asked == ["floatingips", "floatingipranges"]
    await asyncio.sleep(HOUR)
    assert 12 * 2 <= len(asked) <= 15 * 2
    del asked[:]
    bench.put("a")
    await relister.refresh()
    assert (asked, bench.changes) == (["floatingips", "floatingipranges"], ["+a"])
    task.cancel()


@in_virtual_time
async def test_a_list_that_fails_is_repeated_with_those_after_it() -> None:
    bench, asked = Bench(), list[str]()
    bench.link.refuse = lambda _verb, target, _request: bool(asked.append(target.plural))
    relister = Relister([bench.build(FLOATING_IPS), bench.informer], random=Random(1), every_seconds=300.0)
    bench.link.failures["list"] = 1
    task = asyncio.create_task(relister.run())
    await asyncio.sleep(10)
    assert relister.loaded.is_set()
    assert asked == ["floatingipranges", "floatingips", "floatingipranges"]
    task.cancel()


@in_virtual_time
async def test_a_store_that_was_restored_ends_the_relister() -> None:
    bench = Bench()
    for name in ("a", "b", "c"):
        bench.put(name)
    relister = Relister([bench.informer], random=Random(1), every_seconds=300.0)
    task = asyncio.create_task(relister.run())
    await relister.loaded.wait()
    bench.server.version -= 2
    with pytest.raises(RestoredStoreError):
        await task


@in_virtual_time
async def test_a_server_too_busy_for_watches_is_not_asked_for_the_whole_list_every_second() -> None:
    bench = Bench()
    bench.put("a")
    refused = False

    async def look(request: ApiRequest) -> None:
        nonlocal refused
        refused = request.query.get("watch") == "1"

    bench.link.before = look
    bench.link.instead = lambda: respond_with_text(429, "{}", Retry_After="30") if refused else None
    async with bench.running():
        await asyncio.sleep(600)
    assert bench.link.requests["list", "floatingipranges"] <= 60
