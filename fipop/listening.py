"""HTTP servers that a flood of connections does not hold up: the probes' and the metrics'.

Anybody in the management cluster can connect to them. A connection that does not ask within seconds is cut. If there
are too many connections, the peer that has the most loses one: its oldest that asks nothing, else its oldest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import cast

from aiohttp import web

MAX_CONNECTIONS = 64
HEADER_SECONDS = 5.0
"""From the connection to a whole request; there is one request on each connection."""
ANSWER_SECONDS = 30.0
"""From the request to the end of its answer, however slowly it is read."""
LOG_SECONDS = 60.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenLimits:
    """How many connections a server has at once, and how long each may take; see the constants."""

    connections: int = MAX_CONNECTIONS
    header_seconds: float = HEADER_SECONDS
    answer_seconds: float = ANSWER_SECONDS


class RareFilter(logging.Filter):
    """Lets one record a minute pass: whoever sends nonsense writes no more of our log than that."""

    def __init__(self, seconds: float = LOG_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._monotonic = monotonic
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - logging's signature
        """Whether a record is to be logged."""
        now = self._monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


def _build_logger() -> logging.Logger:
    logger = logging.getLogger("fipop.listening")
    if not logger.filters:
        logger.addFilter(RareFilter())
    return logger


class HttpListener:
    """Serves some paths by GET, on one port or on two while it moves.

    Every answer has `headers`, also one that no handler made (404, 405), unless its handler set them.
    """

    def __init__(
        self,
        routes: dict[str, Handler],
        *,
        limits: ListenLimits | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._headers = headers or {}
        self._limits = limits or ListenLimits()
        self._guards: dict[asyncio.BaseTransport, _Guard] = {}
        app = web.Application(middlewares=[self._mark])
        app.on_response_prepare.append(self._add_headers)
        for path, handler in routes.items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1.0, logger=_build_logger(), keepalive_timeout=0
        )

    async def setup(self) -> None:
        """Get ready to listen."""
        await self._runner.setup()

    async def listen(self, host: str | None, port: int) -> web.BaseSite:
        """Listen on one more port. Raises OSError; `stop` of what it gives ends that."""
        site = _GuardedSite(self._runner, host, port, self._protect)
        try:
            await site.start()
        except OSError:
            await site.stop()
            raise
        return site

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for."""
        return int(self._runner.addresses[0][1])

    @property
    def connections(self) -> int:
        """How many connections there are."""
        return len(self._guards)

    async def close(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    @web.middleware
    async def _mark(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        guard = self._guards.get(request.transport) if request.transport is not None else None
        if guard is not None:
            guard.asked(self._limits.answer_seconds)
        response = await handler(request)
        response.force_close()
        return response

    async def _add_headers(self, _request: web.Request, response: web.StreamResponse) -> None:
        for name, value in self._headers.items():
            response.headers.setdefault(name, value)

    def _protect(self) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return _Guard(server(), self._guards, self._limits)


class _Guard(asyncio.Protocol):
    """One connection: aiohttp's own protocol, cut when its time is over or its place is wanted."""

    def __init__(
        self, inner: asyncio.Protocol, guards: dict[asyncio.BaseTransport, _Guard], limits: ListenLimits
    ) -> None:
        self._inner = inner
        self._guards = guards
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.peer = ""
        self.is_asking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if len(self._guards) >= self._limits.connections:
            self._make_room()
        self.peer = (transport.get_extra_info("peername") or ("",))[0]
        self._transport = cast("asyncio.Transport", transport)
        self._guards[transport] = self
        self._inner.connection_made(transport)
        self._set_timer(self._limits.header_seconds)

    def _make_room(self) -> None:
        """Cut a connection of the peer that has the most, so that a peer that floods takes no other's place."""
        [(busiest, _)] = Counter(each.peer for each in self._guards.values()).most_common(1)
        theirs = [each for each in self._guards.values() if each.peer == busiest]
        next((each for each in theirs if not each.is_asking), theirs[0]).cut()

    def asked(self, seconds: float) -> None:
        """Note that a whole request came; so long may its answer take."""
        self.is_asking = True
        self._set_timer(seconds)

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._guards.pop(self._transport, None)
            self._transport.abort()

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.cut)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._guards.pop(self._transport, None)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _GuardedSite(web.BaseSite):
    """A port of a runner whose connections are guarded."""

    def __init__(
        self, runner: web.AppRunner, host: str | None, port: int, protect: Callable[[], asyncio.Protocol]
    ) -> None:
        super().__init__(runner)
        self._host = host
        self._port = port
        self._protect = protect

    @property
    def name(self) -> str:
        """What it is called among the sites of its runner."""
        return f"http://{self._host or '0.0.0.0'}:{self._port}/#{id(self)}"  # noqa: S104 - a name

    async def start(self) -> None:
        """Listen."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protect, self._host, self._port, backlog=self._backlog)
