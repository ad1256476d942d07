"""kopf against a real kube-apiserver: what arrives, what it survives, and how it shows that it is blind."""

import asyncio
import contextlib
import getpass
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Self
from urllib.parse import urlsplit

import kopf
import pytest
import pytest_asyncio
from kubernetes.aio.client.configuration import Configuration

from fipop.api.objects import FloatingIPRange, read_object
from fipop.backoff import Backoff, Delays
from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, NAMESPACES, Resource
from fipop.kube.server import HttpServer
from fipop.runtime.kopf.operator import KopfOperator, build_settings
from fipop.runtime.relist import EventType, Feed, Relister
from fipop.runtime.store import RestoredStoreError, Store
from localfleet.certificates import build_authority
from localfleet.controlplane import ControlPlane
from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.waiting import eventually
from tests.api.proxied import SeeingProxy, State
from tests.harness.background import running
from tests.harness.reaching import configure

pytestmark = pytest.mark.xdist_group("watching")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RANGES = "/apis/kubefip.k8s.binbash.org/v1/floatingipranges"


def short_settings() -> kopf.OperatorSettings:
    """Streams that would otherwise end after a minute end after two seconds: silence shows as soon."""
    settings = build_settings(Random(1))
    settings.watching.server_timeout = 2
    settings.watching.client_timeout = 4
    settings.networking.request_timeout = 3
    settings.networking.error_backoffs = Delays(Backoff(first_seconds=0.2, limit_seconds=0.5), Random(1))
    return settings


@dataclass
class Seen:
    """All events of a watcher, to wait for."""

    events: list[tuple[str, EventType, str]] = field(default_factory=list)
    objects: list[Mapping[str, Any]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    gaps: int = 0

    def callback(self, resource: Resource) -> Callable[[EventType, Mapping[str, Any]], None]:
        def take(event_type: EventType, obj: Mapping[str, Any]) -> None:
            self.events.append((resource.plural, event_type, obj["metadata"]["name"]))
            self.objects.append(obj)
            self.news.set()

        return take

    def miss(self) -> None:
        self.gaps += 1

    async def wait_for(self, plural: str, event_type: EventType, name: str, *, after: int = 0) -> None:
        async with asyncio.timeout(30):
            while (plural, event_type, name) not in self.events[after:]:
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def watching(
    configuration: Configuration, *resources: Resource, settings: kopf.OperatorSettings | None = None
) -> AsyncIterator[tuple[KopfOperator, Seen]]:
    seen = Seen()
    watcher = KopfOperator(
        configuration,
        {resource: seen.callback(resource) for resource in resources},
        settings or build_settings(Random(1)),
        on_gap=seen.miss,
    )
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher, seen
        assert not task.done()
    finally:
        threads = count_threads()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await until(lambda: count_threads() < threads)


def count_threads() -> int:
    return sum(thread.name == "kopf" for thread in threading.enumerate())


async def until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def signs_of_life(watcher: KopfOperator, name: str, *, number: int = 1) -> None:
    """Wait until a stream has shown so many signs of life from now on: its silence has begun again so often."""
    last = watcher.silences()[name]
    async with asyncio.timeout(60):
        while number:
            await asyncio.sleep(0.05)
            now = watcher.silences()[name]
            number -= now < last
            last = now


def range_named(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubefip.k8s.binbash.org/v1",
        "kind": "FloatingIPRange",
        "metadata": {"name": name} | metadata,
        "spec": {"iprange": "10.0.0.0/24"},
    }


@pytest_asyncio.fixture
async def configuration(management: ControlPlane) -> Configuration:
    return await prepare(management)


async def prepare(management: ControlPlane, *, host: str = "") -> Configuration:
    """Return the configuration for the management cluster, by another way if `host` is its URL."""
    found = await configure_from_kubeconfig(management.admin_kubeconfig)
    found.disable_strict_ssl_verification = True
    found.host = host or found.host
    return found


class Cable:
    """A TCP proxy that can be frozen: connections stand, and nothing comes through."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._flows = asyncio.Event()
        self._flows.set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._target)
        for source, sink in ((reader, there[1]), (there[0], writer)):
            self._pumps.add(asyncio.create_task(self._pump(source, sink)))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.transport.abort()


@dataclass(frozen=True)
class Detour:
    """A proxy and the way through it."""

    proxy: SeeingProxy
    configuration: Configuration


@pytest_asyncio.fixture
async def detour(management: ControlPlane, namespace: str) -> AsyncIterator[Detour]:
    authority = build_authority("watching", datetime.now(UTC))
    rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    }
    await management.client.create(rbac, binding)
    async with SeeingProxy(
        management.url,
        trust=management.ca_pem,
        pair=authority.issue_server(["127.0.0.1"]),
        send_signal=lambda _number: None,
    ) as proxy:
        token = await management.token_for(namespace, "default")
        ca_pem = authority.pem.decode()
        yield Detour(proxy, configure(proxy.url, ca_pem=ca_pem, token=token))
    await management.client.delete(f"{rbac}/{namespace}")


async def test_every_object_is_listed_and_then_followed(
    management: ControlPlane, configuration: Configuration
) -> None:
    await management.client.create(RANGES, range_named("there-before"))
    async with watching(configuration, FLOATING_IP_RANGES, FLOATING_IPS, NAMESPACES) as (watcher, seen):
        await seen.wait_for("floatingipranges", EventType.LISTED, "there-before")
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        await management.client.create(RANGES, range_named("watched"))
        await seen.wait_for("floatingipranges", EventType.ADDED, "watched")
        await management.client.patch(f"{RANGES}/watched", {"spec": {"region": "north"}})
        await seen.wait_for("floatingipranges", EventType.MODIFIED, "watched")
        await management.client.delete(f"{RANGES}/watched")
        await seen.wait_for("floatingipranges", EventType.DELETED, "watched")
        assert seen.objects[-1]["spec"]["region"] == "north"
        assert sorted(watcher.silences()) == [
            "floatingipranges.kubefip.k8s.binbash.org",
            "floatingips.kubefip.k8s.binbash.org",
            "namespaces",
        ]
    await management.client.delete(f"{RANGES}/there-before")


async def test_watching_writes_nothing_and_leaves_other_people_s_finalizers_alone(
    management: ControlPlane, configuration: Configuration
) -> None:
    foreign = "kopf.zalando.org/KopfFinalizerMarker"
    before = await management.client.create(RANGES, range_named("foreign", finalizers=[foreign]))
    async with watching(configuration, FLOATING_IP_RANGES) as (_, seen):
        await seen.wait_for("floatingipranges", EventType.LISTED, "foreign")
        await management.client.create(RANGES, range_named("marker"))
        await seen.wait_for("floatingipranges", EventType.ADDED, "marker")

    assert await management.client.get(f"{RANGES}/foreign") == before
    await management.client.patch(f"{RANGES}/foreign", {"metadata": {"finalizers": []}})
    await management.client.delete(f"{RANGES}/foreign")
    await management.client.delete(f"{RANGES}/marker")


async def test_signals_and_tasks_stay_ours(configuration: Configuration) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, told.set)
    try:
        async with watching(configuration, NAMESPACES) as (_, seen):
            task = asyncio.create_task(asyncio.Event().wait())
            await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(30):
                await told.wait()
        assert not task.done()
        task.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def test_a_user_without_a_name_can_watch(
    management: ControlPlane, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of a restricted pod stands in no /etc/passwd: seen in the image, where kopf asked for its name."""

    def no_such_user() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(getpass, "getuser", no_such_user)
    await management.client.create(RANGES, range_named("nameless"))
    try:
        async with watching(configuration, FLOATING_IP_RANGES) as (_, seen):
            await seen.wait_for("floatingipranges", EventType.LISTED, "nameless")
    finally:
        await management.client.delete(f"{RANGES}/nameless")


async def test_a_stop_takes_less_than_a_second(configuration: Configuration) -> None:
    async with contextlib.AsyncExitStack() as exits:
        _, seen = await exits.enter_async_context(watching(configuration, NAMESPACES))
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        async with asyncio.timeout(3):
            await exits.aclose()


async def test_a_quiet_stream_shows_signs_of_life(configuration: Configuration) -> None:
    async with watching(configuration, FLOATING_IPS, settings=short_settings()) as (watcher, seen):
        await signs_of_life(watcher, "floatingips.kubefip.k8s.binbash.org", number=3)
        # Other tests may have left objects, which the first list shows.
        assert {kind for _, kind, _ in seen.events} <= {EventType.LISTED}


async def test_a_frozen_stream_falls_silent_though_the_api_server_answers_and_comes_back(
    management: ControlPlane, configuration: Configuration
) -> None:
    async with (
        Cable(management.url) as cable,
        watching(await prepare(management, host=cable.url), NAMESPACES, settings=short_settings()) as (
            watcher,
            seen,
        ),
        watching(configuration, NAMESPACES, settings=short_settings()) as (healthy, _),
    ):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        cable.freeze()
        await until(lambda: watcher.silences()["namespaces"] > 8)
        await signs_of_life(healthy, "namespaces")

        await management.create_namespace("made-while-frozen")
        cable.thaw()
        await seen.wait_for("namespaces", EventType.ADDED, "made-while-frozen")
        await signs_of_life(watcher, "namespaces")


@pytest.mark.parametrize("status", [404, 410])
async def test_a_watch_that_breaks_off_takes_no_other_with_it_that_waits_for_its_answer(
    management: ControlPlane, detour: Detour, status: int
) -> None:
    """kopf ends where one watch does; it waited for ever for the others, which took that for another request's end."""
    proxy, settings = detour.proxy, short_settings()
    settings.watching.client_timeout = 60
    waits = Rule(on=On.WATCH, do=Do.HANG, seconds=3600, plural="floatingips", rate=1.0)
    breaks = Rule(on=On.WATCH, do=Do.STATUS, status=status, plural="floatingipranges", rate=1.0)
    proxy.schedule = Schedule((waits,))
    resources = (NAMESPACES, FLOATING_IP_RANGES, FLOATING_IPS)
    async with watching(detour.configuration, *resources, settings=settings) as (_, seen):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        await until(lambda: any(a.resource == "floatingips" and a.verb == "watch" for a in proxy.asked))
        before = len(seen.events)
        proxy.schedule = Schedule((waits, breaks))
        await until(lambda: any((a.verb, a.status) == ("watch", status) for a in proxy.asked))
        proxy.schedule = Schedule()
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system", after=before)


@pytest.fixture
def kopf_loops(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.AbstractEventLoop]:
    """The event loop of each kopf that was started."""
    loops, spawn_tasks = [], kopf.spawn_tasks

    async def spawn_and_tell(**options: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return await spawn_tasks(**options)

    monkeypatch.setattr(kopf, "spawn_tasks", spawn_and_tell)
    return loops


async def test_a_watch_that_nobody_runs_any_more_falls_silent_and_no_other(
    configuration: Configuration, kopf_loops: list[asyncio.AbstractEventLoop]
) -> None:
    """kopf forgets a watch that was cancelled, and lives on without it."""

    def cancel_watch() -> None:
        [task] = [
            task
            for task in asyncio.all_tasks(kopf_loops[0])
            if task.get_name().startswith("watcher for names")
        ]
        task.cancel()

    async with watching(configuration, NAMESPACES, FLOATING_IPS, settings=short_settings()) as (
        watcher,
        seen,
    ):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        kopf_loops[0].call_soon_threadsafe(cancel_watch)
        await until(lambda: watcher.silences()["namespaces"] > 8)
        assert watcher.silences()["floatingips.kubefip.k8s.binbash.org"] < 5


async def test_a_thread_that_hangs_lets_all_watches_fall_silent(
    configuration: Configuration, kopf_loops: list[asyncio.AbstractEventLoop]
) -> None:
    hanging = threading.Event()
    async with watching(configuration, NAMESPACES, FLOATING_IPS, settings=short_settings()) as (
        watcher,
        seen,
    ):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        kopf_loops[0].call_soon_threadsafe(hanging.wait, 60)
        await until(lambda: min(watcher.silences().values()) > 8)
        hanging.set()
        await signs_of_life(watcher, "namespaces")


@pytest.mark.parametrize("state", [State.AWAY, State.FAILING, State.MUTE, None])
async def test_whatever_the_api_server_does_for_a_while_kopf_goes_on_afterwards_without_a_new_start(
    management: ControlPlane, detour: Detour, state: State | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is away, fails, says nothing, or answers no watch at all."""
    name = f"after-{state.name.lower() if state else 'hanging'}"
    proxy = detour.proxy
    async with watching(detour.configuration, NAMESPACES, FLOATING_IPS, settings=short_settings()) as (
        watcher,
        seen,
    ):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        before = len(proxy.asked)
        if state is None:
            hanging = Rule(on=On.WATCH, do=Do.HANG, seconds=3600, rate=1.0)
            proxy.schedule = Schedule((hanging,))
        else:
            proxy.turn(state)
        # Longer than any stream lives.
        await until(lambda: watcher.silences()["namespaces"] > 6 or len(proxy.asked) >= before + 8)
        proxy.schedule = Schedule()
        proxy.turn(State.WELL)
        await management.create_namespace(name)
        await seen.wait_for("namespaces", EventType.ADDED, name)
        await signs_of_life(watcher, "namespaces", number=2)
    assert "Watching broke off, restarting it" not in caplog.messages


async def test_a_restart_of_the_api_server_is_survived_and_told(
    management: ControlPlane, configuration: Configuration
) -> None:
    plane = management
    async with watching(configuration, FLOATING_IP_RANGES, NAMESPACES) as (watcher, seen):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        await plane.stop_api()
        before = len(seen.events)
        await until(lambda: watcher.silences()["namespaces"] > 3)
        gaps = seen.gaps
        await plane.start_api()
        await plane.client.create(RANGES, range_named("after"))
        await until(lambda: any(name == "after" for _, _, name in seen.events[before:]), seconds=60)
        assert seen.gaps > gaps
    await plane.client.delete(f"{RANGES}/after")


async def test_a_hanging_api_server_is_survived(
    management: ControlPlane, configuration: Configuration
) -> None:
    plane = management
    async with watching(configuration, NAMESPACES, settings=short_settings()) as (watcher, seen):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        plane.pause()
        try:
            await until(lambda: watcher.silences()["namespaces"] > 8)
        finally:
            plane.resume()
        await plane.create_namespace("after-pause")
        await until(lambda: any(name == "after-pause" for _, _, name in seen.events), seconds=60)


async def test_a_resource_that_is_not_served_yet_is_waited_for(
    management: ControlPlane, configuration: Configuration
) -> None:
    plane = management
    later = Resource(group="example.test", version="v1", plural="laters", kind="Later", namespaced=True)
    async with watching(configuration, later, NAMESPACES) as (_, seen):
        await seen.wait_for("namespaces", EventType.LISTED, "kube-system")
        await plane.client.create(
            CRDS,
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": "laters.example.test"},
                "spec": {
                    "group": "example.test",
                    "scope": "Namespaced",
                    "names": {"plural": "laters", "singular": "later", "kind": "Later"},
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": True,
                            "schema": {"openAPIV3Schema": {"type": "object"}},
                        }
                    ],
                },
            },
        )
        one = {"apiVersion": "example.test/v1", "kind": "Later", "metadata": {"name": "one"}}
        await eventually(lambda: plane.client.create("/apis/example.test/v1/namespaces/default/laters", one))
        await until(lambda: any(name == "one" for _, _, name in seen.events), seconds=60)
    await plane.client.delete(f"{CRDS}/laters.example.test")


async def test_a_restored_store_is_found_out_as_soon_as_the_api_server_is_back(
    management: ControlPlane, configuration: Configuration, tmp_path: Path
) -> None:
    plane = management
    store = Store(partial(read_object, FloatingIPRange), kind="FloatingIPRange")
    feed = Feed(resource=FLOATING_IP_RANGES, store=store, on_change=lambda *_: None)
    async with KubeClient(HttpServer(configuration)) as client:
        resync = Relister([feed], lister=client, random=Random(1), every_seconds=2)
        watcher = KopfOperator(
            configuration,
            {FLOATING_IP_RANGES: feed.take_event},
            build_settings(Random(1)),
            on_gap=resync.request,
        )
        watching = asyncio.create_task(watcher.run())
        comparing = asyncio.create_task(resync.run())
        await resync.wait_loaded()
        await plane.etcd.snapshot(tmp_path / "snapshot")
        await plane.client.create(RANGES, range_named("lost"))
        for number in range(200):  # more than the API server itself writes when it starts
            await plane.client.patch(f"{RANGES}/lost", {"spec": {"iprange": f"10.0.{number}.0/24"}})
        await until(lambda: any(one.spec.iprange == "10.0.199.0/24" for one in store.all()))

        # All clients of the API server begin again with it: their caches are ahead of the store.
        await plane.stop()
        await plane.etcd.restore(tmp_path / "snapshot")
        await until(lambda: watcher.silences()["floatingipranges.kubefip.k8s.binbash.org"] > 3)
        await plane.start()
        with pytest.raises(RestoredStoreError):
            await asyncio.wait_for(comparing, 120)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def test_what_is_deleted_between_the_first_list_and_that_of_kopf_is_found_out(
    management: ControlPlane, configuration: Configuration
) -> None:
    """kopf begins after the first lists, and neither its list nor its watch shows what was deleted before."""
    plane = management
    await plane.client.create(RANGES, range_named("short-lived"))
    store = Store(partial(read_object, FloatingIPRange), kind="FloatingIPRange")
    feed = Feed(resource=FLOATING_IP_RANGES, store=store, on_change=lambda *_: None)
    async with KubeClient(HttpServer(configuration)) as client:
        relister = Relister([feed], lister=client, random=Random(1), every_seconds=2)
        watcher = KopfOperator(
            configuration, {FLOATING_IP_RANGES: feed.take_event}, build_settings(Random(1)), relister.request
        )
        async with running(relister.run()):
            await relister.wait_loaded()
            assert store.get(None, "short-lived") is not None
            await plane.client.delete(f"{RANGES}/short-lived")
            async with running(watcher.run()):
                await until(lambda: store.get(None, "short-lived") is None)
