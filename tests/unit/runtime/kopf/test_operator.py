"""What kopf survives here: an API server that says what real ones say on their bad days."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import kopf
import pytest
import pytest_asyncio
from aiohttp import web

from fipop.errors import StartError
from fipop.kube.resources import CONFIG_MAPS, NAMESPACES, Resource
from fipop.runtime.kopf.operator import KopfOperator, build_settings
from fipop.runtime.relist import EventType
from tests.harness.background import until
from tests.harness.reaching import configure
from tests.unit.runtime.conftest import Serve


def served(plural: str, kind: str) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": plural != "namespaces",
        "verbs": ["list", "watch"],
    }


SERVED = [served("namespaces", "Namespace"), served("configmaps", "ConfigMap")]
DISCOVERY = {"/api": {"versions": ["v1"]}, "/apis": {"groups": []}}


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
    looked: int = 0
    accepts_token: str | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization")
        self.tokens.append(token)
        if self.accepts_token is not None and token != f"Bearer {self.accepts_token}":
            return web.Response(status=401)
        if request.path == "/api/v1":
            self.looked += 1
            return web.json_response({"resources": SERVED[:1] if self.looked <= self.unserved else SERVED})
        if request.path in DISCOVERY:
            return web.json_response(DISCOVERY[request.path])
        assert request.path in {"/api/v1/namespaces", "/api/v1/configmaps"}
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
        self.gaps = 0
        self._news = asyncio.Event()

    def __call__(self, event_type: EventType, obj: Mapping[str, Any]) -> None:
        self.events.append((event_type, obj["metadata"]["name"]))
        self._news.set()

    def miss(self) -> None:
        self.gaps += 1

    async def wait_for(self, event_type: EventType, name: str) -> None:
        async with asyncio.timeout(15):
            while (event_type, name) not in self.events:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def watching(
    day: BadDay, *others: Resource, token: str = "t", renew: Callable[[], str] | None = None
) -> AsyncIterator[Seen]:
    seen, configuration = Seen(), configure(day.url, ca_pem=day.ca_pem, token=token)
    if renew is not None:
        configuration.refresh_api_key_hook = lambda to: to.api_key.update(BearerToken=f"Bearer {renew()}")
    settings = build_settings(Random(1))
    settings.watching.server_timeout = 2
    settings.watching.client_timeout = 3
    settings.networking.request_timeout = 2
    settings.networking.error_backoffs = [0.05] * 100
    watcher = KopfOperator(
        configuration,
        dict.fromkeys((NAMESPACES, *others), seen),
        settings,
        on_gap=seen.miss,
    )
    task = asyncio.create_task(watcher.run())
    try:
        yield seen
        assert not task.done()
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


async def test_after_a_watch_that_went_wrong_events_arrive_again_and_what_broke_it_is_in_the_log(
    day: BadDay, caplog: pytest.LogCaptureFixture
) -> None:
    day.watches = [error_event(500)]
    async with watching(day) as seen:
        await seen.wait_for(EventType.LISTED, "one")
        await seen.wait_for(EventType.ADDED, "two")
    [record] = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.error == "WatchingError"
    assert "words of the server" not in record.getMessage()


async def test_a_long_outage_is_waited_out_without_starting_afresh(
    day: BadDay, caplog: pytest.LogCaptureFixture
) -> None:
    day.lists = [lambda: web.Response(status=503)] * 15
    async with watching(day) as seen:
        await seen.wait_for(EventType.ADDED, "two")
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1, "an outage is told once"
    assert seen.gaps == 2, "of the outage and of the list"


async def test_a_renewed_token_is_used_without_a_restart_and_no_other_credentials(
    day: BadDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    tokens = ["old"]
    day.accepts_token = "new"
    async with watching(day, renew=lambda: tokens[-1]) as seen:
        async with asyncio.timeout(10):
            while len(day.tokens) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        tokens.append("new")
        await seen.wait_for(EventType.ADDED, "two")
    assert set(day.tokens) == {"Bearer old", "Bearer new"}


async def test_a_kind_that_the_server_does_not_show_yet_is_watched_soon(day: BadDay) -> None:
    """kopf looks once what is served: right after a CRD was made, its list is answered before it is shown."""
    day.unserved = 1
    async with watching(day, CONFIG_MAPS) as seen:
        await seen.wait_for(EventType.ADDED, "two")
        await until(lambda: day.looked == 2 and day.watched >= 3, "both to be watched")


async def test_each_list_may_hide_what_was_deleted_before_it(day: BadDay) -> None:
    day.watches = [error_event(410)]
    async with watching(day) as seen:
        await seen.wait_for(EventType.ADDED, "two")
        assert day.listed == 2
        await until(lambda: seen.gaps == 2, "a second gap")


async def test_the_end_of_the_thread_ends_the_process(day: BadDay, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(**_: object) -> None:
        raise RuntimeError("a bug of kopf")

    monkeypatch.setattr(kopf, "spawn_tasks", fail)
    configuration = configure(day.url, ca_pem=day.ca_pem)
    watcher = KopfOperator(configuration, {NAMESPACES: Seen()}, build_settings(Random(1)), lambda: None)
    async with asyncio.timeout(10):
        with pytest.raises(StartError) as raised:
            await watcher.run()
    assert "a bug of kopf" in str(raised.value.__cause__)
