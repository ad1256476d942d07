"""The HTTP sessions below the watches: credentials, pace, and the signs of life that health is built on.

A quiet watch is no dead one and a busy handler is no live one, so the streams are looked at where their bytes
arrive. A sign of life is
- a list that was read to its end;
- bytes of a watch: an event or a bookmark;
- the end of a watch where the other side ended it, as an API server does after the agreed time.
No sign of life is an open connection. What ends by our own patience (a stream that was frozen or withheld) does
not count, however often it is opened again.

Idleness is another matter: nobody even asks. It tells that whoever reads the streams hangs, and nothing of the server.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
from yarl import URL

from fipop.errors import KubeAccessError
from fipop.jsons import JsonView
from fipop.kube.connection import Connection, build_ssl_context
from fipop.kube.resources import Resource
from fipop.runtime.kopf.bridge import EventType
from fipop.runtime.kopf.content import ListContent, WatchContent
from fipop.runtime.kopf.liveness import Liveness

logger = logging.getLogger(__name__)

_PACE_SECONDS = 0.5
"""Between two openings of one watch: a server that ends each at once must not be hammered."""


class RefusedError(aiohttp.ClientConnectionError):
    """An answer that is none for us; by its base class whoever sent the request tries again."""


Transports = weakref.WeakSet[asyncio.Transport]


class _Connector(aiohttp.TCPConnector):
    """Opens connections without a limit, and notes them so that they can be cut."""

    def __init__(self, transports: Transports, tls: ssl.SSLContext) -> None:
        super().__init__(limit=0, ssl=tls)
        self._noted = transports

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Give a connection for a request, a new one or one from the pool."""
        connection = await super().connect(req, traces, timeout)
        if isinstance(connection.transport, asyncio.Transport):
            self._noted.add(connection.transport)
        return connection


class Traffic:
    """Since when each resource has had neither a request under way nor an answer that is still being read.

    Requests for nothing of ours (what is served?) are made before the others can be: they count for all.
    """

    def __init__(self, resources: Collection[Resource], *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._resources = tuple(resources)
        self._under_way: Counter[Resource | None] = Counter()
        self._answers: dict[Resource | None, weakref.ref[aiohttp.ClientResponse]] = {}
        self._busy_at: dict[Resource | None, float] = dict.fromkeys((*resources, None), clock())

    @contextmanager
    def asking(self, resource: Resource | None) -> Iterator[None]:
        """Count what is done meanwhile as a request."""
        self._under_way[resource] += 1
        try:
            yield
        finally:
            self._under_way[resource] -= 1
            self._busy_at[resource] = self._clock()

    def answered(self, resource: Resource | None, answer: aiohttp.ClientResponse) -> None:
        """Note an answer, whose body may be still to come."""
        self._answers[resource] = weakref.ref(answer)

    def idle_seconds(self) -> dict[Resource, float]:
        """For how long each resource has been idle; exact as far as this is asked again and again."""
        now = self._clock()
        for key in self._busy_at:
            if self._is_busy(key):
                self._busy_at[key] = now
        others = self._busy_at[None]
        return {resource: now - max(others, self._busy_at[resource]) for resource in self._resources}

    def _is_busy(self, resource: Resource | None) -> bool:
        if self._under_way[resource]:
            return True
        reference = self._answers.get(resource)
        answer = reference() if reference is not None else None
        return answer is not None and answer.connection is not None


class StreamSessions:
    """Builds the HTTP sessions in which lists and watches of some resources are read, hears and delivers them."""

    def __init__(
        self,
        connection: Connection,
        resources: Collection[Resource],
        signs: Liveness,
        deliver: Callable[[Resource, EventType, JsonView], None],
    ) -> None:
        self._connection = connection
        self._base = URL(connection.server)
        prefix = self._base.path.rstrip("/")
        self._resource_of = {prefix + resource.path(): resource for resource in resources}
        self._signs = signs
        self._deliver = deliver
        self._opened: dict[Resource, float] = {}
        self._transports: Transports = weakref.WeakSet()
        self._sessions: weakref.WeakSet[aiohttp.ClientSession] = weakref.WeakSet()
        self._traffic = Traffic(resources, clock=signs.now)

    def idle_seconds(self) -> dict[Resource, float]:
        """For how long each resource has had neither a request under way nor an open answer."""
        return self._traffic.idle_seconds()

    async def close(self) -> None:
        """Close all sessions and cut their connections."""
        self.abort()
        for session in tuple(self._sessions):
            await session.close()

    def abort(self) -> None:
        """Cut all connections, those too that end politely: TLS waits for the other side, who may be frozen."""
        for transport in self._transports:
            transport.abort()

    def open(self) -> aiohttp.ClientSession:
        """Open a session in the running event loop; nothing but the connection decides where it goes."""
        session = aiohttp.ClientSession(
            connector=_Connector(self._transports, build_ssl_context(self._connection)),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "fipop", "Accept-Encoding": "identity"},
            middlewares=(self._exchange,),
            trust_env=False,
            proxy=self._connection.proxy,
        )
        self._sessions.add(session)
        return session

    async def _exchange(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        resource = self._resource_of.get(request.url.path)
        with self._traffic.asking(resource):
            response = await self._hear(resource, request, handler)
            self._traffic.answered(resource, response)
        return response

    async def _hear(
        self, resource: Resource | None, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        watching = "watch" in request.url.query
        if resource is not None and watching:
            await self._pace(resource)
        try:
            response = await self._send(request, handler)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if resource is not None:
                self._signs.fail(resource, _why(error))
            raise
        if resource is None or not response.ok:
            return response
        self._signs.succeed(resource)
        deliver = functools.partial(self._deliver, resource)
        content: WatchContent | ListContent
        if watching:
            content = WatchContent(response.content, deliver, self._signs, resource)
        else:
            response.content.on_eof(lambda: self._signs.show(resource))
            content = ListContent(response.content, deliver)
        response.content = cast("aiohttp.StreamReader", content)
        return response

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send with the credentials of this moment; let nothing through but success and what ends the watch.

        404 (the resource is gone) and 410 (the version is too old) pass. All else is for later, also a 401: a
        renewed token is read at the next attempt; and a 429: how long to wait is our own business.
        """
        if request.url.origin() != self._base.origin():
            raise RefusedError("redirect to another server")
        try:
            authorization = self._connection.authorization()
        except KubeAccessError as error:
            raise RefusedError("unusable token") from error
        if authorization is not None:
            request.headers["Authorization"] = authorization
        request.server_hostname = self._connection.tls_server_name
        response = await handler(request)
        if response.status < 300 or response.status in {404, 410}:
            return response
        response.close()
        raise RefusedError(f"HTTP {response.status}")

    async def _pace(self, resource: Resource) -> None:
        now = asyncio.get_running_loop().time()
        due = max(now, self._opened.get(resource, now - _PACE_SECONDS) + _PACE_SECONDS)
        self._opened[resource] = due
        await asyncio.sleep(due - now)


def _why(error: BaseException) -> str:
    return str(error) if isinstance(error, RefusedError) else type(error).__name__
