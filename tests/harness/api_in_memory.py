"""API servers in memory, as `build_operator` and `build_provider` take them: a SIMULATION, no Kubernetes.

`localfleet.simulated` decides what a request does. A `Link` is how one process reaches a server: it can be slow, cut,
or lose answers. tests/contract compares this server with a real one.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache, partial
from typing import Any

from multidict import CIMultiDict

from fipop.interfaces import ApiRequest
from localfleet.objectstore import Json, Key, copy_json
from localfleet.simulated import Answer, ObjectApi, Target, select
from tests.harness.virtual_time import virtual_now

__all__ = ["ApiInMemory", "Commit", "Json", "Key", "Link", "Watched", "copy_json"]

_DENIED = (
    "ValidatingAdmissionPolicy 'pinned' with binding 'pinned' denied request: \x1b[31mwords of the policy"
)
"""How an API server says that a policy refused a request; the last words are the policy's."""
_VERBS = {"POST": "create", "PUT": "replace", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one write did to one object; `obj` None: it was deleted."""

    version: int
    at: datetime
    key: Key
    before: Json | None
    obj: Json | None

    @property
    def type(self) -> str:
        """The type of the event that a watch shows."""
        if self.obj is None:
            return "DELETED"
        return "ADDED" if self.before is None else "MODIFIED"

    @property
    def object(self) -> Json:
        """The object as a watch shows it: a deleted one has the version of its deletion."""
        if self.obj is not None:
            return self.obj
        assert self.before is not None
        metadata = {**self.before["metadata"], "resourceVersion": str(self.version)}
        return {**self.before, "metadata": metadata}


@dataclass(slots=True, kw_only=True)
class ApiInMemory(ObjectApi):
    """One API server: objects, requests, watches, and everybody who listens to its commits."""

    listeners: list[Callable[[Commit], None]] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    def put(self, key: Key, obj: Json) -> Json:
        """Create or change an object, its status included, as somebody whom nothing refuses."""
        return self.write(key, copy_json(obj))

    def remove(self, key: Key) -> None:
        """Delete an object that exists, whatever finalizers it has."""
        self.drop(key)

    def of_kind(self, plural: str) -> dict[Key, Json]:
        """Return the objects of a plural, in their order."""
        return {key: each for key, each in sorted(self.objects.items()) if key[0] == plural}

    def timestamp(self) -> str:
        """Return the server's time, as objects have it."""
        return virtual_now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def parse(self, path: str) -> Target | None:
        """Return the parts of a path; None if nothing is served there."""
        return _parse(path, self.kinds)

    def build_uid(self) -> str:
        """Return the uid of an object that comes to be."""
        return f"uid-{self.version + 1}"

    def committed(self, key: Key, before: Json | None, after: Json | None) -> None:
        """Tell a commit to all listeners."""
        commit = Commit(version=self.version, at=virtual_now(), key=key, before=before, obj=after)
        self.commits.append(commit)
        for listener in list(self.listeners):
            listener(commit)

    def answer(self, request: ApiRequest) -> Answer:
        """Answer a request that is no watch."""
        return self.handle(
            request.method,
            request.path,
            dict(request.query),
            request.headers.get("Accept", ""),
            request.headers.get("Content-Type", ""),
            json.dumps(request.body).encode() if request.body is not None else b"",
        )


class _Body:
    """A body that is there at once, or comes by and by."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self._parts = parts

    async def readany(self) -> bytes:
        return await anext(self._parts, b"")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, as `fipop.interfaces.ApiResponse` describes it."""

    status: int
    headers: Mapping[str, str]
    content: _Body


@dataclass(slots=True)
class Link:
    """How one process reaches an API server.

    `before` and `after` are awaited on both sides of each request; what they raise is what the process sees. `failures`
    says how many of the next requests of a verb get the answer 500; of `lost` ones the answer never arrives.
    `requests` counts verb and plural.
    """

    server: ApiInMemory
    before: Callable[[ApiRequest], Any] | None = None
    after: Callable[[ApiRequest], Any] | None = None
    failures: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    refuse: Callable[[str, Target, ApiRequest], bool] = lambda _verb, _target, _request: False
    """Whether the API server refuses a request with 403, by the admission policy "pinned"."""
    forge: Callable[[str, Target, ApiRequest], Answer | None] = lambda _verb, _target, _request: None
    """Answers requests in place of the API server, to show what a part of a protocol is for."""
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    is_cut: bool = False
    """While it is, no request arrives."""
    instead: Callable[[], Response | None] = lambda: None
    """What a proxy on the way answers, if it lets the request through to nobody."""
    leases: ApiInMemory | None = None
    """Where the process finds Leases, if not with everybody else: each process with its own leads."""
    pace: Callable[[], Any] | None = None
    """Is awaited before each event of a watch reaches the process."""

    async def close(self) -> None:
        """Nothing is open between two requests."""

    def check_authority(self) -> None:
        """The certificate authority never changes."""

    @asynccontextmanager
    async def send(self, request: ApiRequest) -> AsyncIterator[Response]:
        """Send a request, as `fipop.interfaces.ApiServer` describes it."""
        target, query = self.server.parse(request.path), dict(request.query)
        is_lease = target is not None and target.plural == "leases"
        server = self.leases if is_lease and self.leases is not None else self.server
        verb = _verb_of(request, target, query)
        self.requests[verb, target.plural if target is not None else ""] += 1
        # A request takes a turn of the loop at least, as a real one does.
        await asyncio.sleep(0)
        if self.is_cut:
            raise ConnectionError("cut")
        if self.before is not None:
            await self.before(request)
        if (response := self.instead()) is not None:
            yield response
            return
        if verb == "watch" and target is not None:
            parts = _watch(self.server, target, query, self._wait_for_event)
            yield Response(200, _headers(virtual_now()), _Body(parts))
            return
        if self.failures[verb] > 0:
            self.failures[verb] -= 1
            answer = _failure(500, "InternalError")
        elif target is not None and self.refuse(verb, target, request):
            answer = _failure(403, "Forbidden", _DENIED)
        else:
            forged = self.forge(verb, target, request) if target is not None else None
            answer = forged or server.answer(request)
        if self.after is not None:
            await self.after(request)
        await asyncio.sleep(0)
        if self.lost[verb] > 0:
            self.lost[verb] -= 1
            raise ConnectionError("the answer was lost")
        yield respond(answer.status, answer.body, virtual_now())

    async def _wait_for_event(self) -> None:
        if self.pace is not None:
            await self.pace()


class Watched:
    """Watches resources of an API server as kopf does: every event reaches its callback, while nothing mutes it.

    Each resource has a stream of its own, which can be muted or late alone. A muted one keeps the events that it misses
    for ever: only a list shows what happened.
    """

    def __init__(
        self, server: ApiInMemory, callbacks: Mapping[Any, Callable[[str | None, Any], None]]
    ) -> None:
        self._server = server
        self._callbacks = {(each.plural, each.namespaced): take for each, take in callbacks.items()}
        self.is_mute = False
        self.muted: set[str] = set()
        """The plurals whose events alone are missed."""
        self.delay_seconds = 0.0
        self.delays: dict[str, float] = {}
        """Of plurals whose events arrive later than others."""

    async def run(self) -> None:
        """Show every event from now on, after those of what exists."""
        self._server.listeners.append(self._hear)
        try:
            for key, each in sorted(self._server.objects.items()):
                self._show(key, "ADDED", each)
            await asyncio.get_running_loop().create_future()
        finally:
            self._server.listeners.remove(self._hear)

    def _hear(self, commit: Commit) -> None:
        plural = commit.key[0]
        if not self.is_mute and plural not in self.muted:
            loop, delay = asyncio.get_running_loop(), self.delays.get(plural, self.delay_seconds)
            show = partial(self._show, commit.key, commit.type, commit.object)
            if delay:
                loop.call_later(delay, show)
            else:
                loop.call_soon(show)  # timers of one instant have no order, and events of a stream have

    def _show(self, key: Key, event_type: str, obj: Json) -> None:
        take = self._callbacks.get((key[0], bool(key[1])))
        if take is not None:
            take(event_type, copy_json(obj))


def _verb_of(request: ApiRequest, target: Target | None, query: Mapping[str, str]) -> str:
    if request.method != "GET":
        return _VERBS[request.method]
    if query.get("watch") in ("1", "true"):
        return "watch"
    return "get" if target is None or target.name else "list"


def respond_with_text(status: int, text: str, **headers: str) -> Response:
    """Return the response of a proxy, no Kubernetes object; underscores in names of headers stand for dashes."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    found = CIMultiDict({**_headers(virtual_now()), "Content-Type": "text/plain", **more})
    return Response(status, found, _Body(_at_once(text.encode())))


def respond(status: int, body: Json, now: datetime) -> Response:
    """Return the response with an object."""
    text = json.dumps(body).encode()
    return Response(status, {**_headers(now), "Content-Length": str(len(text))}, _Body(_at_once(text)))


def _headers(now: datetime) -> dict[str, str]:
    return {"Date": _format_date(now.replace(microsecond=0)), "Content-Type": "application/json"}


@lru_cache(maxsize=8)
def _format_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


@lru_cache(maxsize=10_000)
def _parse(path: str, kinds: frozenset[str]) -> Target | None:
    return ObjectApi(kinds=kinds).parse(path)


async def _at_once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def _watch(
    server: ApiInMemory, target: Target, query: Mapping[str, str], wait: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """Yield the lines of a watch, from a version on, until its time is over; each after a `wait`."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + float(query.get("timeoutSeconds", "300"))
    since = int(query.get("resourceVersion") or server.version)
    news: asyncio.Queue[Commit] = asyncio.Queue()
    for commit in server.commits:
        if commit.version > since:
            news.put_nowait(commit)
    server.listeners.append(news.put_nowait)
    try:
        while True:
            try:
                async with asyncio.timeout_at(ends_at):
                    commit = await news.get()
            except TimeoutError:
                return
            if target.covers(commit.key) and select([commit.object], query):
                await wait()
                yield json.dumps({"type": commit.type, "object": commit.object}).encode() + b"\n"
    finally:
        server.listeners.remove(news.put_nowait)


def _failure(status: int, reason: str, message: str = "") -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status}
    return Answer(status=status, body={**body, "reason": reason, "message": message or reason, "details": {}})
