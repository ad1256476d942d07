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
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import aiohttp
import kopf

from fipop.backoff import Backoff, Delays
from fipop.errors import WatcherEndedError
from fipop.jsons import JsonView
from fipop.kube.connection import Connection
from fipop.kube.resources import Resource
from fipop.runtime.kopf.bridge import Callback, EventBridge, EventType
from fipop.runtime.kopf.http import StreamSessions
from fipop.runtime.kopf.liveness import Liveness
from fipop.runtime.kopf.served import find_missing, full_name
from fipop.runtime.kopf.settings import WatchTimes, build_kopf_settings, quieten_kopf

logger = logging.getLogger(__name__)

_STEADY_SECONDS = 60.0
"""A run of kopf that lasted so long was no failed start: the next back-off begins small again."""
_LOOK_SECONDS = 1.0
"""Between two looks at whether kopf hangs."""
_ROUND_SECONDS = 0.5
"""Until what was cancelled, and did not end, is cancelled again."""


class _HangError(Exception):
    """kopf runs, and does nothing for some resources."""

    def __init__(self, resources: tuple[Resource, ...]) -> None:
        self.names = ", ".join(map(full_name, resources))
        super().__init__(f"neither a request nor a watch for {self.names}")


class Watcher:
    """Watches resources in all namespaces and calls back in the event loop of `run`.

    Callbacks get objects as served: every object at least once after each start or gap, some states twice, and no
    DELETED for what vanished in a gap. A store and its resync make up for that; `on_recovery` is called after an
    outage of the API server, for it may have come back with another store behind it.
    """

    def __init__(
        self,
        *,
        connection: Connection,
        callbacks: Mapping[Resource, Callback],
        random: Random,
        on_recovery: Callable[[], None] = lambda: None,
        times: WatchTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._callbacks = dict(callbacks)
        self._times = times or WatchTimes()
        self._delays = Delays(
            Backoff(
                first_seconds=self._times.first_backoff_seconds,
                limit_seconds=self._times.longest_backoff_seconds,
            ),
            random,
        )
        self._on_recovery = on_recovery
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._signs = Liveness(self._callbacks, clock=clock, on_recovery=self._recover)
        self._bridge: EventBridge | None = None
        self._sessions = StreamSessions(connection, self._callbacks, self._signs, self._put)
        self._server = connection.server
        self._runs = False
        self._waiting_for: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """Whether the thread that watches lives."""
        return self._runs

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Resources that the API server does not serve (yet); until then nothing is watched."""
        return self._waiting_for

    def silences(self) -> dict[str, float]:
        """For how many seconds each stream has shown no sign of life, by `plural.group`."""
        return {full_name(resource): seconds for resource, seconds in self._signs.silences().items()}

    async def run(self) -> None:
        """Watch until cancelled."""
        main_loop = self._main_loop = asyncio.get_running_loop()
        kopf_loop = asyncio.new_event_loop()
        self._bridge = EventBridge(self._callbacks, main_loop)
        stop, ended = asyncio.Event(), asyncio.Event()

        def work() -> None:
            try:
                with asyncio.Runner(loop_factory=lambda: kopf_loop) as runner:
                    runner.run(self._serve(stop))
                    self._sessions.abort()
            finally:
                self._runs = False
                with contextlib.suppress(RuntimeError):  # our loop is closed already
                    main_loop.call_soon_threadsafe(ended.set)

        self._signs.forgive()
        self._runs = True
        # A daemon: the end of the process never waits for it.
        threading.Thread(target=work, name="kopf", daemon=True).start()
        try:
            await ended.wait()
            raise WatcherEndedError
        finally:
            if not ended.is_set():
                kopf_loop.call_soon_threadsafe(stop.set)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), self._times.stop_seconds)

    def _put(self, resource: Resource, event_type: EventType, obj: JsonView) -> None:
        """Called in kopf's thread."""
        if self._bridge is not None:
            self._bridge.put(resource, event_type, obj)

    def _recover(self) -> None:
        """Called in kopf's thread."""
        if self._main_loop is not None:
            with contextlib.suppress(RuntimeError):
                self._main_loop.call_soon_threadsafe(self._on_recovery)

    async def _serve(self, stop: asyncio.Event) -> None:
        """Run in kopf's thread: start kopf as often as it ends, until `stop`."""
        quieten_kopf()
        loop = asyncio.get_running_loop()
        stopping = asyncio.create_task(stop.wait())
        waits = iter(self._delays)
        while True:
            started = loop.time()
            attempt = asyncio.create_task(self._watch())
            await asyncio.wait({attempt, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                attempt.cancel()
                await asyncio.wait({attempt}, timeout=2 * _ROUND_SECONDS)
                await self._end_kopf(stopping)
                return
            if loop.time() - started > _STEADY_SECONDS:
                waits = iter(self._delays)
            pause = next(waits)
            error = None if attempt.cancelled() else attempt.exception()
            fields = {"error": type(error).__name__, "retry_seconds": round(pause, 1)}
            if isinstance(error, _HangError):
                fields["resources"] = error.names
                logger.warning("Watching hung, restarting it", extra=fields)
            else:
                # Only by its class: kopf's errors quote what the server said.
                logger.warning("Watching broke off, restarting it", extra=fields)
            logger.debug("Cause of the broken watch", exc_info=error)
            await self._end_kopf(stopping)
            await asyncio.wait({stopping}, timeout=pause)

    async def _watch(self) -> None:
        """Run kopf until one of its tasks ends, or hangs; what is left of it then is for `_end_kopf`.

        `kopf.operator` would wait 5 s for its watches, cancel each once, and wait for ever: a watch that waits for
        its answer takes a cancellation for the end of that request alone where its stopper is cancelled too.
        """
        await self._wait_until_served()
        # Without a stop flag: kopf would wait 5 s for its waiter whenever a watch of its died.
        roots = await kopf.spawn_tasks(
            registry=self._build_registry(),
            settings=build_kopf_settings(self._times, self._delays),
            clusterwide=True,
            standalone=True,
            # For peers, of which there are none. Without it kopf asks for the user's name, which the user id of a
            # container does not have.
            identity="fipop",  # type: ignore[arg-type] # a NewType of str that kopf keeps to itself
        )
        noticing = asyncio.create_task(self._notice_hanging())
        try:
            done, _ = await asyncio.wait({*roots, noticing}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # While none has failed they end each other in good order.
            for root in roots:
                root.cancel()
            await asyncio.wait(roots, timeout=_ROUND_SECONDS)
            raise
        for task in done:
            task.result()

    async def _notice_hanging(self) -> None:
        """Raise when kopf neglects a resource.

        It always has a request under way or a watch open, or waits out a back-off, also while the API server is
        away. The time of a starved loop does not count: kopf can do nothing in it either.
        """
        patience = self._times.longest_backoff_seconds + self._times.idle_seconds
        loop = asyncio.get_running_loop()
        awake_since = looked = loop.time()
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = loop.time()
            if now - looked > 2 * _LOOK_SECONDS:
                awake_since = now
            looked = now
            idle = self._sessions.idle_seconds()
            neglected = tuple(resource for resource, seconds in idle.items() if seconds > patience)
            if neglected and now - awake_since > patience:
                raise _HangError(neglected)

    async def _end_kopf(self, ours: asyncio.Task[Any]) -> None:
        """End all tasks but ours, as often as it takes; what does not end in time is left behind, cut off."""
        loop = asyncio.get_running_loop()
        kept = {asyncio.current_task(), ours}
        deadline = loop.time() + self._times.stop_seconds
        # kopf's callbacks stumble where all is cancelled at once.
        loop.set_exception_handler(
            lambda _, context: logger.debug("Kopf failed", extra={"what": context["message"]})
        )
        while (left := asyncio.all_tasks() - kept) and loop.time() < deadline:
            for task in left:
                task.cancel()
            done, _ = await asyncio.wait(left, timeout=_ROUND_SECONDS)
            for task in done:
                if not task.cancelled():
                    task.exception()  # it is known why; asyncio would log it
        if left:
            logger.warning("Could not stop tasks of kopf", extra={"tasks": len(left)})
        await self._sessions.close()
        loop.set_exception_handler(None)

    async def _wait_until_served(self) -> None:
        """Wait until the API server serves every resource: kopf looks once, and never again."""
        failing = False
        async with self._sessions.open() as session:
            for pause in self._delays:
                try:
                    missing = await find_missing(
                        session, self._server, self._callbacks, seconds=self._times.request_seconds
                    )
                except (aiohttp.ClientError, TimeoutError) as error:
                    level = logging.DEBUG if failing else logging.WARNING
                    logger.log(
                        level, "Could not read the served resources", extra={"error": type(error).__name__}
                    )
                    failing = True
                else:
                    if missing != self._waiting_for:
                        logger.info("Waiting for resources", extra={"missing": ", ".join(missing) or "none"})
                    self._waiting_for = missing
                    if not missing:
                        return
                    # There is nothing to hear yet, and a restart would not help: readiness tells.
                    self._signs.forgive()
                await asyncio.sleep(pause)

    def _build_registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        # Nothing else logs in: kopf by itself would look for a kubeconfig on our disk.
        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=self._server, aiohttp_session=self._sessions.open())

        # kopf watches what it has handlers for; objects are taken out of its answers before they get here.
        async def ignore(**_: Any) -> None:
            pass

        for resource in self._callbacks:
            group, version, plural = resource.group, resource.version, resource.plural
            kopf.on.event(group=group, version=version, plural=plural, registry=registry)(ignore)
        return registry
