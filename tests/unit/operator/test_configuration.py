"""kube-fip-config deleted, and bad through restarts, over an API server in memory and in virtual time."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import pytest

from fipop.boundary import SystemClock
from fipop.errors import ConflictError, ForbiddenError
from fipop.guest.helm.process import LocalHelm
from fipop.kube.client import KubeClient, Listing, WatchEvent
from fipop.kube.guests import GuestServers
from fipop.operator.app import OperatorOptions, build_operator
from fipop.operator.configuration import Configuration
from fipop.runtime.health import ReadRecord, judge_liveness
from tests.harness.reaching import reach
from tests.harness.recorded_events import RecordedEvents
from tests.harness.virtual_time import run_virtually

NAME = "kube-fip-config"


@dataclass
class SmallServer:
    """Has kube-fip-config or not. `may_create` says what its policy thinks; `slowness` is how long a create takes."""

    stored: dict[str, Any] | None = None
    may_create: bool = True
    slowness: float = 0.0
    tries: int = 0
    version: int = 1
    news: list[asyncio.Queue[WatchEvent]] = field(default_factory=list)
    past: list[tuple[int, WatchEvent]] = field(default_factory=list)
    events: RecordedEvents = field(default_factory=RecordedEvents)

    def put(self, **data: str) -> dict[str, Any]:
        """Store the ConfigMap, by whoever does it."""
        kind = "ADDED" if self.stored is None else "MODIFIED"
        self.version += 1
        metadata = {"name": NAME, "namespace": "kube-fip", "uid": "u", "resourceVersion": str(self.version)}
        self.stored = {"metadata": metadata, "data": data}
        self._tell(kind)
        return self.stored

    def delete(self) -> None:
        """Delete it, by whoever does it."""
        self.version += 1
        self._tell("DELETED")
        self.stored = None

    def _tell(self, kind: str) -> None:
        assert self.stored is not None
        event = WatchEvent(type=kind, object=self.stored)
        self.past.append((self.version, event))
        for queue in self.news:
            queue.put_nowait(event)

    # What the settings use of KubeClient

    async def get(self, *_: object, **__: object) -> dict[str, Any] | None:
        return self.stored

    async def list(self, *_: object, **__: object) -> Listing:
        return Listing(items=(self.stored,) if self.stored else (), resource_version=self.version)

    async def create(self, _: object, body: dict[str, Any]) -> dict[str, Any]:
        self.tries += 1
        if not self.may_create:
            raise ForbiddenError(f"create ConfigMap {NAME}", status=403)
        if self.stored is not None:
            raise ConflictError(f"create ConfigMap {NAME}", status=409, reason="AlreadyExists")
        made = self.put(**body["data"])
        await asyncio.sleep(self.slowness)
        return made

    async def watch(
        self, *_: object, resource_version: int, timeout_seconds: int, **__: object
    ) -> AsyncGenerator[WatchEvent, None]:
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        for version, event in self.past:
            if version > resource_version:
                queue.put_nowait(event)
        self.news.append(queue)
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    yield await queue.get()
        except TimeoutError:
            return
        finally:
            self.news.remove(queue)


def build_configuration(server: SmallServer) -> Configuration:
    return Configuration(
        client=cast("KubeClient", server),
        events=server.events,
        namespace="kube-fip",
        defaults={"metricsPort": "9001"},
    )


@asynccontextmanager
async def following(configuration: Configuration) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(configuration.follow())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


def no_watch(*_: object) -> Any:
    raise AssertionError("nothing is watched")


def test_settings_that_cannot_be_made_again_leave_the_process_live(caplog: pytest.LogCaptureFixture) -> None:
    """The watch stood still while the creation was tried, and was dead after 110 s: both replicas were killed."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        operator = build_operator(
            OperatorOptions(identity="me", version="0"),
            api=reach,
            guests=GuestServers(),
            watch=no_watch,
            helm=LocalHelm("helm", GuestServers()),
            clock=SystemClock(),
            random=Random(1),
        )
        operator._working_since = loop.time()
        operator._process.reads = ReadRecord(clock=loop.time)
        server = SmallServer(may_create=False)
        server.put(metricsPort="9000")
        operator._configuration = configuration = build_configuration(server)
        async with following(configuration):
            await asyncio.sleep(1)
            server.delete()
            for _ in range(40):
                await asyncio.sleep(5)
                operator._process.reads.record()

            assert loop.time() > 200
            assert operator._process.reads.reading_for > 150
            assert judge_liveness(operator._health()).ok
            assert server.tries >= 4, "each list asks again"
            assert configuration.settings.metrics_port == 9000

            server.may_create = True
            await asyncio.sleep(60)
            assert server.stored is not None
            assert configuration.settings.metrics_port == 9001

    with caplog.at_level(logging.WARNING):
        run_virtually(story())
    told = [record.error for record in caplog.records if hasattr(record, "error")]
    assert all(named in told[0] for named in (NAME, "403"))


def test_settings_that_somebody_else_makes_meanwhile_are_taken_and_nothing_is_tried_any_more() -> None:
    async def story() -> None:
        server = SmallServer(may_create=False)
        configuration = build_configuration(server)
        async with following(configuration):
            await asyncio.sleep(12)
            server.put(metricsPort="9100")
            await asyncio.sleep(0.1)
            assert configuration.settings.metrics_port == 9100
            tries = server.tries
            await asyncio.sleep(60)
            assert server.tries == tries

            server.delete()
            await asyncio.sleep(0.1)
            assert server.tries == tries + 1

    run_virtually(story())


def test_what_was_made_never_replaces_what_is_newer() -> None:
    async def story() -> None:
        server = SmallServer(slowness=5.0)
        configuration = build_configuration(server)
        async with following(configuration):
            await asyncio.sleep(1)
            assert server.stored is not None
            server.put(metricsPort="9100")
            await asyncio.sleep(30)
            assert configuration.settings.metrics_port == 9100

    run_virtually(story())


def test_a_failure_that_nobody_expects_ends_the_process_also_while_the_settings_are_made_again() -> None:
    async def story() -> None:
        server = SmallServer()
        configuration = build_configuration(server)

        def fail(*_: object) -> None:
            raise ZeroDivisionError

        configuration.listeners.append(fail)
        with pytest.raises(ZeroDivisionError):
            await configuration.follow()

    run_virtually(story())


GOOD = {"kubevipNamespace": "addresses", "kubevipGuestInstall": "enabled", "kubevipUpdate": "true"}
BAD = GOOD | {"kubevipNamespace": "No Namespace"}


def messages(server: SmallServer) -> list[str]:
    """Return what events reported of bad options since the last call."""
    found = [each.message for each in server.events.all if each.reason == "BadOption"]
    server.events.all.clear()
    return found


def test_a_bad_option_keeps_its_last_good_value_and_without_one_no_release_is_changed() -> None:
    async def story() -> None:
        server = SmallServer()
        server.put(**BAD)
        configuration = build_configuration(server)
        await configuration.load()
        assert configuration.settings.unknown_options == {"kubevipNamespace"}
        assert ["changes no releases" in each for each in messages(server)] == [True]

        heard: list[bool] = []
        configuration.listeners.append(lambda _, after: heard.append(not after.unknown_options))
        async with following(configuration):
            await asyncio.sleep(1)
            server.put(**(GOOD | {"kubevipNamespace": "kube-system"}))  # as the default is
            await asyncio.sleep(1)
            assert heard == [True]
            server.put(**BAD)
            await asyncio.sleep(1)
        assert configuration.settings.kubevip_namespace == "kube-system"
        assert not configuration.settings.unknown_options
        assert ["keeps the last valid value" in each for each in messages(server)] == [True]

    run_virtually(story())
