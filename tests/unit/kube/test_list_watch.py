"""The watch of one object against a server that ends, refuses and loses watches."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from aiohttp import web

from fipop.kube.client import KubeClient, Listing
from fipop.kube.resources import CONFIG_MAPS
from fipop.runtime.list_watch import ListWatch

from .conftest import FakeServer, status_object


def version(number: int, uid: str = "u") -> dict:
    return {"metadata": {"name": "one", "namespace": "a", "uid": uid, "resourceVersion": str(number)}}


class Store:
    """One object's list and watch; `lists` and `watches` say how each further request is answered."""

    def __init__(self, server: FakeServer) -> None:
        server.answer = self.answer
        self.current: dict | None = version(1)
        self.failures: list[int] = []
        self.watch_lines: list[list[dict]] = []
        self.counts: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.query["fieldSelector"] == "metadata.name=one"
        kind = "watch" if "watch" in request.query else "list"
        self.counts[kind] += 1
        if self.failures:
            code = self.failures.pop(0)
            return web.json_response(status_object(code, "x"), status=code)
        if kind == "list":
            items = [] if self.current is None else [self.current]
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watch_lines:
            await asyncio.sleep(30)
        for line in self.watch_lines.pop(0):
            await response.write(json.dumps(line).encode() + b"\n")
        return response


@pytest.fixture
def store(server: FakeServer) -> Store:
    return Store(server)


def watching(client: KubeClient, longest_backoff_seconds: float = 0.05) -> ListWatch:
    return ListWatch(
        client,
        CONFIG_MAPS,
        namespace="a",
        field_selector="metadata.name=one",
        relist_seconds=0.0,
        longest_backoff_seconds=longest_backoff_seconds,
    )


async def versions_of(watch: ListWatch) -> AsyncGenerator[dict | None, None]:
    """Yield the object as each list and each event shows it."""
    async with aclosing(watch.changes()) as changes:
        async for change in changes:
            if isinstance(change, Listing):
                yield change.items[0] if change.items else None
            else:
                yield change.object


async def test_it_comes_through_every_failure_of_list_and_watch(store, client):
    store.failures = [500, 503, 429, 403, 404, 401, 410]
    watch = watching(client)
    async with aclosing(versions_of(watch)) as versions, asyncio.timeout(10):
        assert await anext(versions) == version(1)
    assert store.failures == []


@pytest.mark.parametrize("code", [410, 500])
async def test_an_error_in_the_stream_leads_to_a_fresh_look(store, client, code):
    store.watch_lines = [[{"type": "ERROR", "object": status_object(code, "x")}]]
    async with aclosing(versions_of(watching(client))) as versions, asyncio.timeout(10):
        assert await anext(versions) == version(1)
        store.current = version(2)
        assert await anext(versions) == version(2)


async def test_a_delete_that_was_missed_is_seen_by_the_next_list(store, client):
    store.watch_lines = [[]]
    async with aclosing(versions_of(watching(client))) as versions, asyncio.timeout(10):
        assert await anext(versions) == version(1)
        store.current = None
        assert await anext(versions) is None


async def test_a_new_object_under_the_same_name_is_another_one(store, client):
    store.watch_lines = [[]]
    async with aclosing(versions_of(watching(client))) as versions, asyncio.timeout(10):
        await anext(versions)
        store.current = version(1, uid="v")
        assert await anext(versions) == version(1, uid="v")


async def test_bookmarks_yield_nothing(store, client):
    store.watch_lines = [
        [
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "6"}}},
            {"type": "MODIFIED", "object": version(7)},
        ]
    ]
    async with aclosing(versions_of(watching(client))) as versions, asyncio.timeout(10):
        assert [await anext(versions), await anext(versions)] == [version(1), version(7)]


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_tight_loop(store, client):
    store.watch_lines = [[] for _ in range(1000)]
    watch = watching(client, longest_backoff_seconds=10)
    async with aclosing(versions_of(watch)) as versions:
        await anext(versions)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await anext(versions)
        assert asyncio.get_running_loop().time() - began > 0.5, "the pauses grow"


async def test_liveness_stands_still_while_nothing_answers(store, client):
    watch = watching(client)
    async with aclosing(versions_of(watch)) as versions, asyncio.timeout(10):
        store.watch_lines = [[]]
        await anext(versions)
        heard = watch.last_heard_at
        store.failures = [500] * 5
        store.current = version(2)
        following = asyncio.ensure_future(anext(versions))
        while store.failures:
            assert watch.last_heard_at == heard
            await asyncio.sleep(0.005)
        assert await following == version(2)
        assert watch.last_heard_at > heard
