"""kopf watches: an ordinary handler of events for each resource, which puts the object into the store of its kind.

A handler of events returns None: kopf would write anything else into the object's status. There are no other kinds of
handlers: docs/contributing/decisions/on-event-only.md has the reasons.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from random import Random
from typing import Any

import aiohttp
import kopf
from kopf._cogs.clients.errors import APIError
from kopf._cogs.clients.watching import WatchingError
from kubernetes.aio.client.configuration import Configuration

from fipop.api.names import GROUP
from fipop.backoff import Backoff, Delays
from fipop.deadlines import LONGEST_WATCH_SECONDS, WATCH_GRACE_SECONDS
from fipop.errors import StartError
from fipop.kube.resources import Resource
from fipop.kube.server import open_session
from fipop.runtime.informer import Callback

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0
"""Before another login, which kopf does at once after each answer 401, and between two looks at discovery."""
END_SECONDS = 2.0
DISCOVERY_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


async def watch(
    configuration: Configuration,
    callbacks: Mapping[Resource, Callback],
    *,
    settings: kopf.OperatorSettings,
    started: Callable[[], None],
) -> None:
    """Watch resources in all namespaces until cancelled. Raises StartError if kopf ends: only a new process can go on.

    Callbacks get every object at least once after each start or gap, some states twice, and no DELETED for what
    vanished in a gap. kopf takes the signals of the process; `started` is called to take them back.
    """
    sessions: list[aiohttp.ClientSession] = []
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        if sessions:
            await asyncio.sleep(PAUSE_SECONDS)
        sessions.append(open_session(configuration))
        return kopf.AiohttpSession(server=configuration.host, aiohttp_session=sessions[-1])

    def register(resource: Resource, callback: Callback) -> None:
        @kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)
        async def put_into_store(event: kopf.RawEvent, **_: Any) -> None:
            callback(event["type"], event["object"])

    for resource, callback in callbacks.items():
        register(resource, callback)
    # kopf looks once what the API server serves, and a list of a new kind is answered before discovery shows it.
    while not all([await _is_shown(configuration, each) for each in callbacks]):  # noqa: ASYNC110 - it polls the API server
        await asyncio.sleep(PAUSE_SECONDS)
    while True:
        done = await _run_once(registry, settings, sessions, started)
        errors = [task.exception() for task in done if not task.cancelled()]
        if not errors or not all(map(_is_answer, errors)):
            break
        # Such as an error of its store, or a page of a list that it has no more. The login pauses before that.
        logger.warning("A watch ended with an error of the API server, watching again")
    # Only the class of an error: kopf's errors quote what the server said.
    why = ", ".join(type(each).__name__ for each in errors)
    if any(isinstance(each, APIError) and not _is_answer(each) for each in errors):
        why = "a kind is no longer served, such as that of a deleted CRD"
    raise StartError(what="watching", problem=f"ended ({why}): the process must restart")


async def _run_once(
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    sessions: list[aiohttp.ClientSession],
    started: Callable[[], None],
) -> set[asyncio.Task[None]]:
    """Run kopf until one of its tasks ends; return these."""
    # Not `kopf.operator`: at its end it cancels every task of the loop that is younger than itself.
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        clusterwide=True,
        standalone=True,
        # kopf would ask for the user's name, which the user id of a container does not have.
        identity="fipop",  # type: ignore[arg-type] # a NewType of str that kopf keeps to itself
    )
    started()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # If one watch fails, kopf ends without ending the others, which would wait for a login for ever.
        running = {*tasks, *_find_watches()}
        for task in running:  # also if this is cancelled meanwhile
            task.add_done_callback(_take_error)
        for each in sessions:  # a watch that waits for its answer survives a cancellation
            await each.close()
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=END_SECONDS)
    return done


def _is_answer(error: BaseException | None) -> bool:
    """Return whether the API server ended a watch, by an event or an answer. 404 says that the kind is gone."""
    is_answer = isinstance(error, APIError) and error.status != HTTPStatus.NOT_FOUND
    return is_answer or isinstance(error, WatchingError)


def _find_watches() -> set[asyncio.Task[None]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")}


def _take_error(task: asyncio.Task[None]) -> None:
    """Take the error of a task: asyncio would log one that nothing took, with the server's words."""
    if not task.cancelled():
        task.exception()


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
    # A line for each event and attempt, with the server's words. The lists tell whether the API server answers.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)
    return settings


async def _is_shown(configuration: Configuration, resource: Resource) -> bool:
    url = configuration.host + resource.path().rpartition("/")[0]
    try:
        async with (
            open_session(configuration) as session,
            session.get(url, timeout=DISCOVERY_TIMEOUT) as answer,
        ):
            found = await answer.json()
        return any(each["name"] == resource.plural for each in found["resources"])
    except (aiohttp.ClientError, TimeoutError, LookupError, TypeError, ValueError):
        return False


class _NoDiffBase(kopf.MultiDiffBaseStorage):
    """Keeps kopf from copying each object of each event, to compare it with what no handler of events needs."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return {}
