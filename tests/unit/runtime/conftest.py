"""A TLS server that does as told."""

import datetime as dt
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest_asyncio
from aiohttp import web

from localfleet.certificates import build_authority

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handle], Awaitable[tuple[str, str]]]


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a TLS server for a handler of all requests; gives its URL and its authority's certificate."""
    runners: list[web.AppRunner] = []

    async def start(handle: Handle) -> tuple[str, str]:
        authority = build_authority("tests", dt.datetime.now(dt.UTC))
        pair = authority.issue_server(["127.0.0.1"])
        path = tmp_path / "server.pem"
        path.write_bytes(pair.certificate + pair.key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(path)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        return f"https://127.0.0.1:{runner.addresses[0][1]}", authority.pem.decode()

    yield start
    for runner in runners:
        await runner.cleanup()
