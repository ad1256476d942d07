"""kopf against a real kube-apiserver: what arrives, what it survives, and when it ends."""

import asyncio
import contextlib
import getpass
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

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
from fipop.runtime.informer import Informer, Relister
from fipop.runtime.store import Store
from fipop.runtime.watching import build_settings, watch
from localfleet.certificates import build_authority
from localfleet.controlplane import ControlPlane
from localfleet.faultproxy import Do, On, Rule, Schedule
from localfleet.waiting import eventually
from tests.api.proxied import SeeingProxy, State
from tests.harness.background import running
from tests.harness.reaching import configure

pytestmark = pytest.mark.xdist_group("management")
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RANGES = "/apis/kubefip.k8s.binbash.org/v1/floatingipranges"


def short_settings() -> kopf.OperatorSettings:
    """Streams that would otherwise end after a minute end after two seconds."""
    settings = build_settings(Random(1))
    settings.watching.server_timeout = 2
    settings.watching.client_timeout = 4
    settings.networking.request_timeout = 3
    settings.networking.error_backoffs = Delays(Backoff(first_seconds=0.2, limit_seconds=0.5), Random(1))
    return settings


@dataclass
class Seen:
    """All events, to wait for."""

    events: list[tuple[str, str | None, str]] = field(default_factory=list)
    objects: list[Mapping[str, Any]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    started: Callable[[], None] = lambda: None
    """Is called once kopf has taken the signals of the process."""

    def callback(self, resource: Resource) -> Callable[[str | None, Mapping[str, Any]], None]:
        def take(event_type: str | None, obj: Mapping[str, Any]) -> None:
            self.events.append((resource.plural, event_type, obj["metadata"]["name"]))
            self.objects.append(obj)
            self.news.set()

        return take

    async def wait_for(self, plural: str, event_type: str | None, name: str, *, after: int = 0) -> None:
        async with asyncio.timeout(60):
            while (plural, event_type, name) not in self.events[after:]:
                self.news.clear()
                await self.news.wait()


def start(
    configuration: Configuration,
    seen: Seen,
    *resources: Resource,
    settings: kopf.OperatorSettings | None = None,
) -> asyncio.Task[None]:
    callbacks = {resource: seen.callback(resource) for resource in resources}
    settings = settings or build_settings(Random(1))
    watching = watch(configuration, callbacks, settings=settings, started=lambda: seen.started())
    return asyncio.create_task(watching)


@asynccontextmanager
async def watching(
    configuration: Configuration,
    *resources: Resource,
    settings: kopf.OperatorSettings | None = None,
    seen: Seen | None = None,
) -> AsyncIterator[Seen]:
    seen = seen or Seen()
    task = start(configuration, seen, *resources, settings=settings)
    try:
        yield seen
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], *, seconds: float = 30) -> None:
    """Wait for what has no event of its own."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


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
    async with watching(configuration, FLOATING_IP_RANGES, FLOATING_IPS, NAMESPACES) as seen:
        await seen.wait_for("floatingipranges", None, "there-before")
        await seen.wait_for("namespaces", None, "kube-system")
        await management.client.create(RANGES, range_named("watched"))
        await seen.wait_for("floatingipranges", "ADDED", "watched")
        await management.client.patch(f"{RANGES}/watched", {"spec": {"region": "north"}})
        await seen.wait_for("floatingipranges", "MODIFIED", "watched")
        await management.client.delete(f"{RANGES}/watched")
        await seen.wait_for("floatingipranges", "DELETED", "watched")
        assert seen.objects[-1]["spec"]["region"] == "north"
    await management.client.delete(f"{RANGES}/there-before")


async def test_watching_writes_nothing_and_leaves_other_people_s_finalizers_alone(
    management: ControlPlane, configuration: Configuration
) -> None:
    foreign = "kopf.zalando.org/KopfFinalizerMarker"
    before = await management.client.create(RANGES, range_named("foreign", finalizers=[foreign]))
    async with watching(configuration, FLOATING_IP_RANGES) as seen:
        await seen.wait_for("floatingipranges", None, "foreign")
        await management.client.create(RANGES, range_named("marker"))
        await seen.wait_for("floatingipranges", "ADDED", "marker")

    assert await management.client.get(f"{RANGES}/foreign") == before
    await management.client.patch(f"{RANGES}/foreign", {"metadata": {"finalizers": []}})
    await management.client.delete(f"{RANGES}/foreign")
    await management.client.delete(f"{RANGES}/marker")


async def test_signals_that_are_taken_back_and_younger_tasks_stay_ours(
    configuration: Configuration,
) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    seen = Seen(started=lambda: loop.add_signal_handler(signal.SIGTERM, told.set))
    try:
        async with watching(configuration, NAMESPACES, seen=seen):
            await seen.wait_for("namespaces", None, "kube-system")
            task = asyncio.create_task(asyncio.Event().wait())
            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(30):
                await told.wait()
        assert not task.done()
        task.cancel()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)


async def test_a_user_without_a_name_can_watch(
    management: ControlPlane, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of a restricted pod stands in no /etc/passwd: seen in the image, where kopf asked for its name."""

    def no_such_user() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr(getpass, "getuser", no_such_user)
    await management.client.create(RANGES, range_named("nameless"))
    try:
        async with watching(configuration, FLOATING_IP_RANGES) as seen:
            await seen.wait_for("floatingipranges", None, "nameless")
    finally:
        await management.client.delete(f"{RANGES}/nameless")


@pytest.mark.slow
@pytest.mark.parametrize("state", [State.AWAY, State.FAILING, State.MUTE, None])
async def test_whatever_the_api_server_does_for_a_while_kopf_goes_on_afterwards(
    management: ControlPlane, detour: Detour, state: State | None
) -> None:
    """It is away, fails, says nothing, or answers no watch at all."""
    name = f"after-{state.name.lower() if state else 'hanging'}"
    proxy = detour.proxy
    async with watching(detour.configuration, NAMESPACES, FLOATING_IPS, settings=short_settings()) as seen:
        await seen.wait_for("namespaces", None, "kube-system")
        before = len(proxy.asked)
        if state is None:
            hanging = Rule(on=On.WATCH, do=Do.HANG, seconds=3600, rate=1.0)
            proxy.schedule = Schedule((hanging,))
        else:
            proxy.turn(state)
        if state in {State.AWAY, State.FAILING}:
            await asyncio.sleep(6)  # longer than any stream lives
        else:
            await until(lambda: len(proxy.asked) >= before + 8)
        proxy.schedule = Schedule()
        proxy.turn(State.WELL)
        await management.create_namespace(name)
        await until(lambda: any(each == name for _, _, each in seen.events), seconds=60)


async def test_a_resource_that_is_not_served_yet_is_waited_for(
    management: ControlPlane, configuration: Configuration
) -> None:
    plane = management
    later = Resource(group="example.test", version="v1", plural="laters", kind="Later", namespaced=True)
    async with watching(configuration, later, NAMESPACES) as seen:
        await asyncio.sleep(1)  # it has looked for it by then
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


async def test_what_is_deleted_between_the_first_list_and_that_of_kopf_is_found_out(
    management: ControlPlane, configuration: Configuration
) -> None:
    """kopf begins after the first lists, and neither its list nor its watch shows what was deleted before."""
    plane = management
    await plane.client.create(RANGES, range_named("short-lived"))
    store = Store(partial(read_object, FloatingIPRange), kind="FloatingIPRange")
    async with KubeClient(HttpServer(configuration)) as client:
        informer = Informer(client, FLOATING_IP_RANGES, store, lambda _change: None)
        relister = Relister([informer], random=Random(1), every_seconds=2)
        async with running(relister.run()):
            await relister.loaded.wait()
            assert store.get(None, "short-lived") is not None
            await plane.client.delete(f"{RANGES}/short-lived")
            callbacks = {FLOATING_IP_RANGES: informer.take}
            kopf_watches = watch(
                configuration, callbacks, settings=build_settings(Random(1)), started=lambda: None
            )
            async with running(kopf_watches):
                await until(lambda: store.get(None, "short-lived") is None)
