"""An event loop whose clock jumps, so that delays of minutes take no time; and a TLS server that does as told."""

import asyncio
import datetime as dt
import selectors
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio
from aiohttp import web

from localfleet.certificates import build_authority

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting it moves the clock; with nothing to wait for, nothing would ever happen again."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everything waits for something that never comes"
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


@pytest.fixture
def virtually() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Runs a coroutine in virtual time."""

    def run(coroutine: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(coroutine)

    return run


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
