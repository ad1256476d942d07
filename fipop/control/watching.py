"""kopf's watches, wrapped: events of some resources to callbacks, for ever, and nothing else.

kopf runs in a thread with an event loop of its own. In ours it would take over SIGTERM, and cancel every task
that was started after it whenever one of its watches dies; there it can neither, and is started afresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp
import kopf

from fipop.api.names import GROUP
from fipop.control.events import Callback, EventType, Mailbox
from fipop.control.streams import SignsOfLife, StreamSessions
from fipop.kube.connection import Connection
from fipop.kube.resources import Resource

logger = logging.getLogger(__name__)

_STEADY_SECONDS = 60.0
"""A run of kopf that lasted so long was no failed start: the next back-off begins small again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTimes:
    """Seconds. The server ends each watch after `server_seconds`; what lasts longer is frozen and given up."""

    server_seconds: int = 60
    client_seconds: float = 75.0
    connect_seconds: float = 10.0
    request_seconds: float = 30.0
    first_backoff_seconds: float = 0.5
    longest_backoff_seconds: float = 10.0
    stop_seconds: float = 5.0


class EndlessBackoffs:
    """Waits between attempts: growing up to a limit, with jitter, never ending; each iteration starts anew."""

    def __init__(self, *, first_seconds: float, limit_seconds: float, random: Random) -> None:
        self._first_seconds = first_seconds
        self._limit_seconds = limit_seconds
        self._random = random

    def __iter__(self) -> Iterator[float]:
        step = self._first_seconds
        while True:
            yield step * self._random.uniform(0.5, 1.0)
            step = min(self._limit_seconds, step * 2)


class Watcher:
    """Watches resources in all namespaces and calls back in the event loop of `run`.

    Callbacks get objects as served, as the one who may keep them. They see every object at least once after each
    start or gap, some states twice, no DELETED for what vanished in a gap: a store and its resync make up for it.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        callbacks: Mapping[Resource, Callback],
        random: Random,
        times: WatchTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._callbacks = dict(callbacks)
        self._random = random
        self._times = times or WatchTimes()
        self._signs = SignsOfLife(self._callbacks, clock=clock)
        self._sessions = StreamSessions(connection, self._callbacks, self._signs)
        self._server = connection.server
        self._thread: threading.Thread | None = None
        self._waiting_for: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether the thread that watches lives."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Resources that the API server does not serve (yet); until then nothing is watched."""
        return self._waiting_for

    @property
    def recoveries(self) -> int:
        """How often a stream came back after a failure."""
        return self._signs.recoveries

    def silences(self) -> dict[str, float]:
        """For how many seconds each stream has shown no sign of life, by `plural.group`."""
        return {_full_name(resource): seconds for resource, seconds in self._signs.silences().items()}

    async def run(self) -> None:
        """Watch until cancelled."""
        main_loop = asyncio.get_running_loop()
        kopf_loop = asyncio.new_event_loop()
        mailbox = Mailbox(self._callbacks, main_loop)
        stop, ended = asyncio.Event(), asyncio.Event()

        def work() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: kopf_loop) as runner:
                    runner.run(self._serve(mailbox, stop))
            finally:
                main_loop.call_soon_threadsafe(ended.set)

        self._signs.forgive()
        # A daemon: the end of the process never waits for it.
        self._thread = threading.Thread(target=work, name="kopf", daemon=True)
        self._thread.start()
        try:
            await ended.wait()
            raise RuntimeError("the thread that watches ended by itself")
        finally:
            if not ended.is_set():
                kopf_loop.call_soon_threadsafe(stop.set)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), self._times.stop_seconds)

    async def _serve(self, mailbox: Mailbox, stop: asyncio.Event) -> None:
        """Run in kopf's thread: start kopf as often as it ends, until `stop`."""
        _quieten_kopf()
        stopping = asyncio.create_task(stop.wait())
        backoffs = self._backoffs()
        waits = iter(backoffs)
        while not stop.is_set():
            loop = asyncio.get_running_loop()
            started = loop.time()
            attempt = asyncio.create_task(self._watch(mailbox, stop))
            await asyncio.wait({attempt, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                await _end(attempt, self._times.stop_seconds)
                break
            if loop.time() - started > _STEADY_SECONDS:
                waits = iter(backoffs)
            pause = next(waits)
            fields = {"error": type(attempt.exception()).__name__, "retry_seconds": pause}
            logger.warning("watching broke off; it starts afresh", extra=fields, exc_info=attempt.exception())
            await asyncio.wait({stopping}, timeout=pause)

    async def _watch(self, mailbox: Mailbox, stop: asyncio.Event) -> None:
        await self._wait_until_served()
        await kopf.operator(
            registry=self._build_registry(mailbox),
            settings=self._build_settings(),
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
        )

    async def _wait_until_served(self) -> None:
        """Wait until the API server serves every resource: kopf looks once, and never again."""
        waits = iter(self._backoffs())
        async with self._sessions.open() as session:
            while True:
                missing = [
                    resource for resource in self._callbacks if not await self._is_served(session, resource)
                ]
                names = tuple(_full_name(resource) for resource in missing)
                if names != self._waiting_for:
                    logger.info("resources to watch are not served", extra={"missing": ", ".join(names)})
                self._waiting_for = names
                if not missing:
                    return
                self._signs.forgive()
                await asyncio.sleep(next(waits))

    async def _is_served(self, session: aiohttp.ClientSession, resource: Resource) -> bool:
        path = resource.path().rpartition("/")[0]
        timeout = aiohttp.ClientTimeout(total=self._times.request_seconds)
        async with session.get(self._server.rstrip("/") + path, timeout=timeout) as response:
            if not response.ok:
                return False
            served = await response.json()
        return any(entry["name"] == resource.plural for entry in served["resources"])

    def _build_registry(self, mailbox: Mailbox) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        # Nothing else logs in: kopf by itself would look for a kubeconfig on our disk.
        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=self._server, aiohttp_session=self._sessions.open())

        def subscribe(resource: Resource) -> None:
            @kopf.on.event(
                group=resource.group, version=resource.version, plural=resource.plural, registry=registry
            )
            async def forward(event: kopf.RawEvent, **_: Any) -> None:
                mailbox.put(resource, EventType(event["type"] or EventType.LISTED), event["object"])

        for resource in self._callbacks:
            subscribe(resource)
        return registry

    def _build_settings(self) -> kopf.OperatorSettings:
        times, settings = self._times, kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.watching.server_timeout = times.server_seconds
        settings.watching.client_timeout = times.client_seconds
        settings.watching.inactivity_timeout = times.client_seconds
        settings.watching.connect_timeout = times.connect_seconds
        settings.watching.chunk_size = 500
        settings.networking.request_timeout = times.request_seconds
        settings.networking.connect_timeout = times.connect_seconds
        settings.networking.error_backoffs = self._backoffs()
        settings.queueing.exit_timeout = 1.0
        # A worker lives for each object that has news; after a list of thousands they must be gone at once.
        settings.queueing.idle_timeout = 0.05
        # kopf's last resort is a SIGKILL to the whole process, also when a single watch of its died.
        settings.process.ultimate_exiting_timeout = None
        # kopf removes its finalizer where no handler needs one: the default name may be another operator's.
        settings.persistence.finalizer = f"{GROUP}/unused"
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        return settings

    def _backoffs(self) -> EndlessBackoffs:
        return EndlessBackoffs(
            first_seconds=self._times.first_backoff_seconds,
            limit_seconds=self._times.longest_backoff_seconds,
            random=self._random,
        )


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps kopf from copying every object of every event to compare it with what we never ask for."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Find nothing essential."""
        return {}

    def fetch(self, **_: Any) -> None:
        """Remember nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _NoProgress(kopf.ProgressStorage):
    """No handler of ours has progress: nothing is read from objects, nothing written to them."""

    def fetch(self, **_: Any) -> None:
        """Remember nothing."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Remove nothing."""

    def touch(self, **_: Any) -> None:
        """Change nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Leave all as it is."""
        return essence


def _quieten_kopf() -> None:
    """Keep kopf's own words out of the log where ours say the same, or where nobody needs to know.

    A line per event and handler; one per failed attempt with the server's words in it (`streams` says it once).
    """
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    logging.getLogger("kopf.activities").setLevel(logging.WARNING)
    logging.getLogger("kopf._core").setLevel(logging.ERROR)
    logging.getLogger("kopf._cogs").setLevel(logging.CRITICAL)


async def _end(attempt: asyncio.Task[None], seconds: float) -> None:
    """Let kopf end by its stop flag; cancel it when it does not, or was not reached yet."""
    await asyncio.wait({attempt}, timeout=seconds)
    attempt.cancel()
    await asyncio.wait({attempt})


def _full_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
