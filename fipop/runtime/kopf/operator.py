"""kopf in a thread: it lists, watches and calls the handlers. It writes nothing, and has no say in how we end.

In our event loop it would take over SIGTERM, and cancel every task that was started after it whenever a watch dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import aiohttp
import kopf
from kubernetes.aio.client.configuration import Configuration

from fipop.api.names import GROUP
from fipop.backoff import Backoff, Delays
from fipop.deadlines import LONGEST_WATCH_SECONDS, WATCH_GRACE_SECONDS
from fipop.errors import StartError
from fipop.jsons import JsonView
from fipop.kube.resources import Resource
from fipop.kube.server import open_session
from fipop.runtime.kopf.handlers import build_registry
from fipop.runtime.kopf.watch_signs import WatchSigns
from fipop.runtime.relist import Callback, EventType

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""Before kopf logs in again, in another run or after an answer 401, and between two looks at what it has asked for."""
GATHER_SECONDS = 0.01
"""So long events are gathered that are handed over together: to wake the other thread for each is not cheap."""


class KopfOperator:
    """Runs kopf for some resources in all namespaces; its callbacks are called in the event loop that built it.

    Callbacks get every object at least once after each start or gap, some states twice, and no DELETED for what
    vanished in a gap. `on_gap` is called after each, for an authoritative list to show that.
    """

    def __init__(
        self,
        configuration: Configuration,
        callbacks: Mapping[Resource, Callback],
        settings: kopf.OperatorSettings,
        on_gap: Callable[[], None],
    ) -> None:
        self._configuration = configuration
        self._callbacks = callbacks
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        longest_seconds = 0.9 * (settings.watching.client_timeout or 0.0)
        self._signs = WatchSigns(callbacks, configuration.host, longest_seconds, lambda: self._call(on_gap))
        self._session: aiohttp.ClientSession | None = None
        self._gathered: list[Callable[[], None]] = []
        self.silences = self._signs.silences

    async def run(self) -> None:
        """Watch until cancelled. Raises StartError if the thread ends: a fresh process is wanted then."""
        loop, ended = asyncio.new_event_loop(), asyncio.Event()
        # What kopf's callbacks stumble over while it is stopped.
        loop.set_exception_handler(lambda _, it: logger.debug("Kopf failed", extra={"what": it["message"]}))
        serving = loop.create_task(self._serve())
        serving.add_done_callback(lambda _: self._loop.call_soon_threadsafe(ended.set))

        def work() -> None:
            with contextlib.suppress(BaseException), contextlib.closing(loop):
                loop.run_until_complete(serving)

        self._signs.show(*self._callbacks)
        # A daemon: the end of the process never waits for it.
        threading.Thread(target=work, name="kopf", daemon=True).start()
        try:
            await ended.wait()
            raise StartError(what="watch", problem="ended: the process must restart") from serving.exception()
        finally:
            with contextlib.suppress(RuntimeError, TimeoutError):
                loop.call_soon_threadsafe(serving.cancel)
                await asyncio.wait_for(ended.wait(), 5.0)

    async def _serve(self) -> None:
        """Run in kopf's thread: start kopf again in place as often as it ends."""
        while True:
            try:
                why = await self._run_kopf()
            finally:
                await self._end_kopf()
            # Only the class of an error: kopf's errors quote what the server said.
            logger.warning("Watching broke off, restarting it", extra={"error": why})

    async def _run_kopf(self) -> str:
        """Run kopf until one of its tasks ends; return why it did.

        `kopf.operator` would then cancel the others once, and wait for ever for a watch that waits for its answer.
        """
        self._signs.asked.clear()
        tasks = await kopf.spawn_tasks(
            registry=build_registry(self._callbacks, self._put, self._log_in),
            settings=self._settings,
            clusterwide=True,
            standalone=True,
            # kopf would ask for the user's name, which the user id of a container does not have.
            identity="fipop",  # type: ignore[arg-type] # a NewType of str that kopf keeps to itself
        )
        while True:
            done, _ = await asyncio.wait(tasks, timeout=PAUSE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return ", ".join(type(task.exception()).__name__ for task in done if not task.cancelled())
            # kopf looks once what the API server serves.
            if 0 < len(self._signs.asked) < len(self._callbacks):
                return "NotServed"

    async def _end_kopf(self) -> None:
        """End what kopf left, as often as it takes: a watch that waits for its answer survives one cancellation."""
        if self._session is not None:
            await self._session.close()
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=0.5)

    async def _log_in(self, **_: Any) -> kopf.AiohttpSession:
        """Log in, which kopf does before its first request. It does not pause by itself, however often it does."""
        if self._session is not None:
            await asyncio.sleep(PAUSE_SECONDS)
        self._session = open_session(self._configuration, self._signs.trace)
        return kopf.AiohttpSession(server=self._configuration.host, aiohttp_session=self._session)

    def _put(self, resource: Resource, event_type: EventType, obj: JsonView) -> None:
        self._signs.show(resource)
        self._call(self._callbacks[resource], event_type, obj)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call in the event loop that we come from, in the order of these calls."""
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_SECONDS, self._hand_over)
        self._gathered.append(functools.partial(callback, *arguments))

    def _hand_over(self) -> None:
        calls, self._gathered = self._gathered, []
        with contextlib.suppress(RuntimeError):  # it is closed already
            # Each by itself: what one stumbles over stops none of the others.
            self._loop.call_soon_threadsafe(lambda: [self._loop.call_soon(call) for call in calls])


def build_settings(random: Random) -> kopf.OperatorSettings:
    """Build settings for handlers of events alone, and for an API server that goes away at times."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.server_timeout = LONGEST_WATCH_SECONDS
    settings.watching.client_timeout = LONGEST_WATCH_SECONDS + WATCH_GRACE_SECONDS
    # Never together with the client's: kopf would take the two for one, and fail at the next event.
    settings.watching.inactivity_timeout = 2 * settings.watching.client_timeout
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30.0
    settings.networking.error_backoffs = Delays(Backoff(first_seconds=0.5, limit_seconds=10.0), random)
    # A worker lives for each object that has news; after a list of thousands they must be gone at once.
    settings.queueing.idle_timeout = 0.05
    # kopf's last resort is a SIGKILL to the whole process.
    settings.process.ultimate_exiting_timeout = None
    # kopf removes its finalizer where no handler needs one: the default name may be another operator's.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.diffbase_storage = _NoDiffBase([])
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    # A line for each event and attempt, with the server's words: what is worth knowing of that is logged here, once.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    return settings


class _NoDiffBase(kopf.MultiDiffBaseStorage):
    """Keeps kopf from copying each object of each event, to compare it with what no handler of events needs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return {}
