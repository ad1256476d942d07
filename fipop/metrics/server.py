"""The HTTP server of the metrics: always the text format 0.0.4, and a port that moves while it runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from aiohttp import web

from fipop.errors import FipopError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STOP_SECONDS = 2.0

_log = logging.getLogger(__name__)


class MetricsPortError(FipopError):
    """The metrics port cannot be bound; what listened before still does."""

    def __init__(self, *, port: int, reason: str) -> None:
        self.port = port
        self.reason = reason
        super().__init__(f"cannot listen on metrics port {port}: {reason}")


class MetricsServer:
    """Serves `/metrics` on one port at a time. `host` None: every interface, IPv4 and IPv6."""

    def __init__(self, render: Callable[[], bytes], *, host: str | None = None) -> None:
        self._render = render
        self._host = host
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None
        self._moving = asyncio.Lock()
        self.port: int | None = None

    async def listen(self, port: int) -> None:
        """Serve on this port from now on. Raises MetricsPortError, and then serves where it did before."""
        async with self._moving:
            if port == self.port:
                return
            runner = self._runner or await self._start()
            # First the new port, then away from the old one: a scrape always finds one of them.
            site = web.TCPSite(runner, self._host, port)
            try:
                await site.start()
            except OSError as error:
                # asyncio puts a sentence of its own where the system's words were.
                reason = os.strerror(error.errno) if error.errno else type(error).__name__
                raise MetricsPortError(port=port, reason=reason) from error
            before, self._site = self._site, site
            self.port = port
            if before is not None:
                await before.stop()
            _log.info("Metrics are served", extra={"port": port})

    async def stop(self) -> None:
        """Stop serving."""
        async with self._moving:
            if self._runner is not None:
                await self._runner.cleanup()
            self._runner = self._site = self.port = None

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
        await self._runner.setup()
        return self._runner

    async def _answer(self, _request: web.Request) -> web.Response:
        response = web.Response(body=self._render(), headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()
        # A kept-alive connection would go on being scraped at a port that was given up.
        response.force_close()
        return response
