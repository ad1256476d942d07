"""What the watcher survives: an API server that says what real ones say on their bad days."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from fipop.kube.connection import Connection
from fipop.kube.resources import NAMESPACES
from fipop.runtime.kopf.bridge import EventType
from fipop.runtime.kopf.settings import WatchTimes
from fipop.runtime.kopf.watcher import Watcher
from tests.harness.background import until
from tests.unit.runtime.conftest import Serve

TIMES = WatchTimes(
    server_seconds=2,
    client_seconds=3,
    connect_seconds=1,
    request_seconds=2,
    first_backoff_seconds=0.05,
    longest_backoff_seconds=0.2,
)
DISCOVERY = {
    "/api": {"versions": ["v1"]},
    "/apis": {"groups": []},
    "/api/v1": {
        "resources": [
            {
                "name": "namespaces",
                "singularName": "namespace",
                "kind": "Namespace",
                "namespaced": False,
                "verbs": ["list", "watch"],
            }
        ]
    },
}


def namespace(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def event(event_type: str, obj: Mapping[str, Any]) -> bytes:
    return json.dumps({"type": event_type, "object": obj}).encode() + b"\n"


@dataclass
class BadDay:
    """An API server of one namespace. What `lists` and `watches` hold is answered first, once each."""

    url: str = ""
    ca_pem: str = ""
    lists: list[Callable[[], web.Response]] = field(default_factory=list)
    watches: list[bytes | int] = field(default_factory=list)
    listed: int = 0
    watched: int = 0
    tokens: list[str | None] = field(default_factory=list)
    unserved: int = 0
    accepts_token: str | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization")
        self.tokens.append(token)
        if self.accepts_token is not None and token != f"Bearer {self.accepts_token}":
            return web.Response(status=401)
        if request.path == "/api/v1" and self.unserved:
            self.unserved -= 1
            return web.json_response({"resources": []})
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        assert request.path == "/api/v1/namespaces"
        return await self.watch(request) if "watch" in request.query else self.list()

    def list(self) -> web.Response:
        self.listed += 1
        if self.lists:
            return self.lists.pop(0)()
        items = [namespace("one", 5)]
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": items})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        self.watched += 1
        said = self.watches.pop(0) if self.watches else event("ADDED", namespace("two", 11))
        if isinstance(said, int):
            return web.Response(status=said)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(said)
        if not self.watches:
            await asyncio.Event().wait()
        return response


class Seen:
    def __init__(self) -> None:
        self.events: list[tuple[EventType, str]] = []
        self._news = asyncio.Event()

    def __call__(self, event_type: EventType, obj: Mapping[str, Any]) -> None:
        self.events.append((event_type, obj["metadata"]["name"]))
        self._news.set()

    async def wait_for(self, event_type: EventType, name: str) -> None:
        async with asyncio.timeout(15):
            while (event_type, name) not in self.events:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(day: BadDay, **fields: Any) -> AsyncIterator[tuple[Watcher, Seen]]:
    seen = Seen()
    watcher = Watcher(
        connection=Connection(server=day.url, ca_pem=day.ca_pem, **fields),
        callbacks={NAMESPACES: seen},
        random=Random(1),
        times=TIMES,
    )
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher, seen
        assert not task.done()
        assert watcher.running
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture
async def day(serve: Serve) -> BadDay:
    day = BadDay()
    day.url, day.ca_pem = await serve(day.handle)
    return day


def error_event(code: int) -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "message": "words of the server"})


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(error_event(500), id="an ERROR event 500"),
        pytest.param(error_event(410), id="an ERROR event 410"),
        pytest.param(error_event(429), id="an ERROR event 429"),
        pytest.param(b'{"type":"ADDED","object":{"meta', id="half an event"),
        pytest.param(b"[]\n", id="no event"),
        pytest.param(b'{"type":"ADDED","object":{}}\n', id="an object without metadata"),
        pytest.param(b"", id="nothing"),
        pytest.param(401, id="HTTP 401"),
        pytest.param(403, id="HTTP 403"),
        pytest.param(404, id="HTTP 404"),
        pytest.param(410, id="HTTP 410"),
        pytest.param(500, id="HTTP 500"),
    ],
)
async def test_after_a_watch_that_went_wrong_events_arrive_again(
    day: BadDay, trouble: bytes | int, caplog: pytest.LogCaptureFixture
) -> None:
    day.watches = [trouble, trouble]
    async with watching(day) as (_, seen):
        await seen.wait_for(EventType.LISTED, "one")
        await seen.wait_for(EventType.ADDED, "two")
    assert "words of the server" not in "".join(record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda: web.Response(status=404), id="HTTP 404"),
        pytest.param(lambda: web.Response(status=410), id="HTTP 410"),
        pytest.param(lambda: web.Response(status=500), id="HTTP 500"),
        pytest.param(lambda: web.Response(text="<html>"), id="no JSON"),
        pytest.param(lambda: web.json_response([]), id="no list"),
        pytest.param(
            lambda: web.Response(status=429, headers={"Retry-After": "3600"}), id="HTTP 429 for an hour"
        ),
    ],
)
async def test_after_a_list_that_went_wrong_events_arrive_again(
    day: BadDay, answer: Callable[[], web.Response]
) -> None:
    day.lists = [answer, answer]
    async with watching(day) as (_, seen):
        await seen.wait_for(EventType.ADDED, "two")


async def test_a_long_outage_is_waited_out_without_starting_afresh(
    day: BadDay, caplog: pytest.LogCaptureFixture
) -> None:
    day.lists = [lambda: web.Response(status=503)] * 15
    async with watching(day) as (_, seen):
        await seen.wait_for(EventType.ADDED, "two")
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1, "an outage is told once"


async def test_what_broke_a_watch_is_in_the_log(day: BadDay, caplog: pytest.LogCaptureFixture) -> None:
    day.watches = [error_event(500)]
    async with watching(day) as (_, seen):
        await seen.wait_for(EventType.ADDED, "two")
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.error == "WatchingError"


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(day: BadDay) -> None:
    day.watches = [b""] * 1000
    async with watching(day) as (_, seen):
        await seen.wait_for(EventType.LISTED, "one")
        began = asyncio.get_running_loop().time()
        await until(lambda: day.watched >= 5, "a fifth watch")
        assert asyncio.get_running_loop().time() - began > 1, "there is a pause before each"


async def test_a_renewed_token_is_used_without_a_restart(day: BadDay) -> None:
    tokens = ["old"]
    day.accepts_token = "new"
    async with watching(day, token_source=lambda: tokens[-1]) as (_, seen):
        async with asyncio.timeout(10):
            while len(day.tokens) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        tokens.append("new")
        await seen.wait_for(EventType.ADDED, "two")
    assert set(day.tokens) == {"Bearer old", "Bearer new"}


async def test_no_other_credentials_are_looked_for(day: BadDay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    async with watching(day, token="ours") as (_, seen):
        await seen.wait_for(EventType.ADDED, "two")
    assert set(day.tokens) == {"Bearer ours"}


async def test_it_waits_for_what_is_not_served_yet(day: BadDay, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fipop")
    day.unserved = 3
    async with watching(day) as (watcher, seen):
        await seen.wait_for(EventType.ADDED, "two")
        assert watcher.waiting_for == ()
    assert [record.missing for record in caplog.records if hasattr(record, "missing")] == [
        "namespaces",
        "none",
    ]
