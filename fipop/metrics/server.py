"""The HTTP server of the metrics: always the text format 0.0.4, and a port that moves while it runs."""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from fipop.listening import HttpListener
from fipop.texts import sentence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COMPRESSION = 1
POLL_SECONDS = 0.5
"""How often the server compares its port with the port that is wanted."""

_log = logging.getLogger(__name__)


class MetricsPage:
    """The text of all metrics, as it is now.

    `prepare` is called in the loop and gives what renders the text, in a thread: thousands of guests take a second of
    it. Scrapes that come meanwhile get the same text, and so does one that comes before that long has passed again.
    """

    def __init__(self, prepare: Callable[[], Callable[[], bytes]]) -> None:
        self._prepare = prepare
        self._rendering: asyncio.Task[_Text] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a scrape."""
        text = await self._text()
        headers = {"Content-Type": CONTENT_TYPE, "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=text.packed, headers=headers | {"Content-Encoding": "gzip"})
        return web.Response(body=text.plain, headers=headers)

    async def _text(self) -> _Text:
        """Give what is under way, or is younger than it took; else begin anew."""
        running = self._rendering
        if running is not None and running.done() and not running.cancelled() and running.exception() is None:
            known = running.result()
            if time.monotonic() - known.made_at < known.took_seconds:
                return known
        if running is None or running.done():
            running = self._rendering = asyncio.create_task(_render(self._prepare))
        # Not awaited itself: whoever asked first may go, the others want it still.
        return await asyncio.shield(running)


class MetricsServer:
    """Serves `/metrics` on one port at a time. `host` None: every interface, IPv4 and IPv6."""

    def __init__(self, page: MetricsPage, *, host: str | None = None) -> None:
        self._page = page
        self._host = host
        self.port: int | None = None

    async def serve(self, wanted: Callable[[], int], complain: Callable[[str], None]) -> None:
        """Serve on the port that is wanted, until cancelled; what is served before that stays where it is.

        `complain` gets a sentence, once, about a port that cannot be listened on; it is tried until it can.
        """
        listener = HttpListener({"/metrics": self._page.answer})
        await listener.setup()
        site: web.BaseSite | None = None
        refused: int | None = None
        try:
            while True:
                port = wanted()
                if port == self.port:
                    refused = None
                else:
                    try:
                        site = await self._move(listener, site, port)
                    except OSError as error:
                        if port != refused:
                            _report_refused(port, error, complain)
                        refused = port
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self.port = None
            await listener.close()

    async def _move(self, listener: HttpListener, before: web.BaseSite | None, port: int) -> web.BaseSite:
        """Listen on the new port first, then leave the old one: a scrape always finds one of them."""
        site = await listener.listen(self._host, port)
        if before is not None:
            await before.stop()
        self.port = port
        _log.info("Serving metrics", extra={"port": port})
        return site


def _report_refused(port: int, error: OSError, complain: Callable[[str], None]) -> None:
    # asyncio puts a sentence of its own where the system's words were.
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    message = f"could not listen on metrics port {port}: {reason}"
    _log.warning("Could not change metrics port", extra={"error": message})
    complain(sentence(message))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    plain: bytes
    packed: bytes
    made_at: float
    took_seconds: float


async def _render(prepare: Callable[[], Callable[[], bytes]]) -> _Text:
    began = time.monotonic()
    render = prepare()

    def work() -> tuple[bytes, bytes]:
        plain = render()
        return plain, gzip.compress(plain, _COMPRESSION)

    plain, packed = await asyncio.to_thread(work)
    now = time.monotonic()
    return _Text(plain=plain, packed=packed, made_at=now, took_seconds=now - began)
