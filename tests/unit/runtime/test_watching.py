"""kopf watches an API server that says what real ones say on their bad days; and how it is run."""

import asyncio
import contextlib
import getpass
import json
import logging
import os
import signal
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
from fipop.runtime.watching import build_settings, watch
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


def namespace(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), **metadata}}


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
        assert request.method == "GET", "kopf writes nothing"
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
        items = [namespace("one", 5, finalizers=["kopf.zalando.org/KopfFinalizerMarker"])]
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
        self.events: list[tuple[str | None, str]] = []
        self.told_to_stop = asyncio.Event()
        self._news = asyncio.Event()

    def __call__(self, event_type: str | None, obj: Mapping[str, Any]) -> None:
        self.events.append((event_type, obj["metadata"]["name"]))
        self._news.set()

    def take_signals(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.told_to_stop.set)

    async def wait_for(self, event_type: str | None, name: str) -> None:
        async with asyncio.timeout(15):
            while (event_type, name) not in self.events:
                self._news.clear()
                await self._news.wait()


def start(
    day: BadDay, seen: Seen, *others: Resource, token: str = "t", renew: Callable[[], str] | None = None
) -> asyncio.Task[None]:
    configuration = configure(day.url, ca_pem=day.ca_pem, token=token)
    if renew is not None:
        configuration.refresh_api_key_hook = lambda to: to.api_key.update(BearerToken=f"Bearer {renew()}")
    settings = build_settings(Random(1))
    settings.watching.server_timeout = 2
    settings.watching.client_timeout = 3
    settings.networking.request_timeout = 2
    settings.networking.error_backoffs = [0.05] * 100
    callbacks = dict.fromkeys((NAMESPACES, *others), seen)
    return asyncio.create_task(watch(configuration, callbacks, settings=settings, started=seen.take_signals))


@asynccontextmanager
async def watching(
    day: BadDay, *others: Resource, renew: Callable[[], str] | None = None
) -> AsyncIterator[Seen]:
    seen = Seen()
    task = start(day, seen, *others, renew=renew)
    try:
        yield seen
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)


def error_event(code: int) -> bytes:
    return event("ERROR", {"kind": "Status", "code": code, "message": "words of the server"})


@pytest_asyncio.fixture
async def day(serve: Serve) -> BadDay:
    day = BadDay()
    day.url, day.ca_pem = await serve(day.handle)
    return day


async def test_objects_arrive_and_the_signals_of_the_process_are_taken_back(
    day: BadDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of a restricted pod has no name: kopf asked for it in the image."""

    def no_such_user() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(getpass, "getuser", no_such_user)
    async with watching(day) as seen:
        await seen.wait_for(None, "one")
        await seen.wait_for("ADDED", "two")
        younger = asyncio.create_task(asyncio.Event().wait())
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(15):
            await seen.told_to_stop.wait()
        assert not younger.done()
        younger.cancel()


async def test_a_long_outage_is_waited_out(day: BadDay) -> None:
    day.lists = [lambda: web.Response(status=503)] * 15
    async with watching(day) as seen:
        await seen.wait_for("ADDED", "two")


async def test_after_a_version_that_is_too_old_everything_is_listed_again(day: BadDay) -> None:
    day.watches = [error_event(410)]
    async with watching(day) as seen:
        await seen.wait_for("ADDED", "two")
    assert day.listed == 2


async def test_a_watch_that_is_refused_is_tried_until_the_right_is_back(day: BadDay) -> None:
    day.watches = [403, 403]
    async with watching(day) as seen:
        await seen.wait_for("ADDED", "two")


async def test_a_kind_that_is_served_no_longer_ends_the_process_with_a_sentence(day: BadDay) -> None:
    day.watches = [404]
    async with asyncio.timeout(15):
        with pytest.raises(StartError, match="a kind is no longer served, such as that of a deleted CRD"):
            await start(day, Seen())


async def test_a_watch_that_ends_with_an_error_of_the_server_begins_again_with_all_others(
    day: BadDay,
) -> None:
    """And of the others, which kopf leaves alone, none is left behind."""
    before = asyncio.all_tasks()
    day.watches = [error_event(500)]
    async with watching(day, CONFIG_MAPS) as seen:
        await seen.wait_for("ADDED", "two")
        async with asyncio.timeout(15):
            while day.watched < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        watches = [each.get_name() for each in asyncio.all_tasks() if "watcher" in each.get_name()]
        assert len(watches) == len(set(watches)) == 2
    assert asyncio.all_tasks() - before == set()


@pytest.mark.parametrize("status", [400, 410])
async def test_a_list_that_is_answered_with_an_error_begins_again(day: BadDay, status: int) -> None:
    """Such as 410: kopf lists page by page, and a store that was compacted meanwhile has no next page."""
    day.lists = [lambda: web.Response(status=status)]
    async with watching(day) as seen:
        await seen.wait_for("ADDED", "two")


async def test_a_renewed_token_is_used_without_a_restart_and_no_other_credentials(
    day: BadDay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    tokens = ["t"]
    async with watching(day, renew=lambda: tokens[-1]) as seen:
        await seen.wait_for("ADDED", "two")
        tokens.append("new")
        day.accepts_token = "new"
        async with asyncio.timeout(20):
            while "Bearer new" not in day.tokens:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert set(day.tokens) == {"Bearer t", "Bearer new"}


async def test_a_kind_that_the_server_does_not_show_yet_is_watched_soon(day: BadDay) -> None:
    """kopf looks once what is served: right after a CRD was made, its list is answered before it is shown."""
    day.unserved = 2
    async with watching(day, CONFIG_MAPS) as seen:
        await seen.wait_for("ADDED", "two")
        async with asyncio.timeout(15):
            while day.watched < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def test_kopf_writes_nothing_looks_for_no_kinds_and_kills_nobody() -> None:
    settings = build_settings(Random(1))
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert settings.process.ultimate_exiting_timeout is None
    assert not settings.persistence.finalizer.startswith("kopf")


def test_objects_are_neither_copied_nor_read_for_progress() -> None:
    persistence = build_settings(Random(1)).persistence
    body = kopf.Body({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}}})
    assert persistence.diffbase_storage.build(body=body) == {}
    assert persistence.diffbase_storage.fetch(body=body) is None
    assert persistence.progress_storage.fetch(key="x", body=body) is None


def test_kopfs_own_words_are_out_of_the_log() -> None:
    build_settings(Random(1))
    for name in ("kopf.objects", "kopf.activities.authentication", "kopf._core.reactor.running"):
        assert not logging.getLogger(name).isEnabledFor(logging.ERROR)
