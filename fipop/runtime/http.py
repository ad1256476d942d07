"""One HTTP server for the probes and the metrics: on the port of the probes, and again on that of the metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from fipop.errors import StartError
from fipop.metrics.gauges import Gauges
from fipop.texts import sentence

logger = logging.getLogger(__name__)


class ProbeServer:
    """Serves /livez, /healthz (the same), /readyz and /metrics. `host` None: every interface, IPv4 and IPv6.

    A process is live as long as it answers. `why_not_ready` returns what keeps it from being ready, by a name.
    """

    def __init__(
        self,
        why_not_ready: Callable[[], Mapping[str, str]],
        registry: CollectorRegistry,
        *,
        host: str | None,
        port: int,
    ) -> None:
        self._why_not_ready = why_not_ready
        self._registry = registry
        self._host = host
        self._port = port
        app = web.Application()
        app.router.add_get("/livez", self._live)
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    @property
    def port(self) -> int:
        """The port of the probes, also if 0 was asked for."""
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """Listen. Raises StartError if that is not possible: the kubelet needs the probes."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.stop()
            raise StartError(
                what=f"health port {self._port}", problem=f"cannot be listened on: {_describe(error)}"
            ) from error

    async def serve_on(self, port: int) -> str:
        """Serve the same on another port, too. Return a sentence if it cannot be listened on, else ""."""
        site = web.TCPSite(self._runner, self._host, port)
        try:
            await site.start()
        except OSError as error:
            await site.stop()
            message = f"could not listen on metrics port {port}: {_describe(error)}"
            logger.warning("Could not serve metrics", extra={"error": message})
            return sentence(message)
        logger.info("Serving metrics", extra={"port": port})
        return ""

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _live(self, _: web.Request) -> web.Response:
        return _render({})

    async def _ready(self, _: web.Request) -> web.Response:
        return _render(self._why_not_ready())

    async def _scrape(self, request: web.Request) -> web.Response:
        """Answer as the package does, but let others have the loop meanwhile: a large fleet has thousands of lines."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        families = []
        for family in self._registry.collect():
            families.append(family)
            await asyncio.sleep(0)
        text = await asyncio.to_thread(encode, Gauges(lambda: families))
        response = web.Response(body=text, headers={"Content-Type": content_type})
        response.enable_compression()
        return response


def _render(problems: Mapping[str, str]) -> web.Response:
    text = json.dumps({"ok": not problems, "problems": dict(problems)}, indent=2) + "\n"
    return web.Response(status=503 if problems else 200, text=text, content_type="application/json")


def _describe(error: OSError) -> str:
    # asyncio puts a sentence of its own where the system's words were.
    return os.strerror(error.errno) if error.errno else type(error).__name__
