"""A server that is flooded with connections answers who asks."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from fipop.listening import HttpListener, ListenLimits, RareFilter
from localfleet.waiting import eventually


@asynccontextmanager
async def listening(**limits: float) -> AsyncIterator[HttpListener]:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def much(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 20_000_000)

    listener = HttpListener({"/": hello, "/much": much}, limits=ListenLimits(**limits))  # type: ignore[arg-type]
    await listener.setup()
    await listener.listen("127.0.0.1", 0)
    try:
        yield listener
    finally:
        await listener.close()


async def ask(listener: HttpListener, path: str = "/") -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{listener.port}{path}", timeout=aiohttp.ClientTimeout(5)) as response,
    ):
        await response.read()
        return response.status


async def test_a_thousand_half_open_requests_keep_nobody_from_an_answer() -> None:
    """1,100 of them made /livez time out, and the kubelet restart the operator."""
    async with listening() as listener:
        writers = []
        for _ in range(1100):
            _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
            writers.append(writer)
        assert [await ask(listener) for _ in range(5)] == [200] * 5
        assert listener.connections <= 64
        for writer in writers:
            writer.close()


async def test_a_peer_that_asks_without_end_cuts_no_other_s_answer() -> None:
    """130 connections that asked took the place of one whose answer was still to come."""
    asking: asyncio.Queue[str | None] = asyncio.Queue()
    go = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        asking.put_nowait(request.remote)
        await go.wait()
        return web.Response(text="hello")

    listener = HttpListener({"/": slow})
    await listener.setup()
    await listener.listen("127.0.0.1", 0)
    first = asyncio.create_task(ask(listener))
    assert await asyncio.wait_for(asking.get(), 5) == "127.0.0.1"
    flood = []
    for _ in range(130):
        _, other = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=("127.0.0.2", 0))
        other.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        flood.append(other)
        assert await asyncio.wait_for(asking.get(), 5) == "127.0.0.2"
    go.set()
    assert await first == 200
    for other in flood:
        other.close()
    await listener.close()


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nX: y\r\n"])
async def test_who_does_not_ask_in_time_is_cut(said: bytes) -> None:
    async with listening(header_seconds=0.2) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(said)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()


async def test_who_does_not_read_its_answer_is_cut() -> None:
    async with listening(answer_seconds=0.5) as listener:
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        writer.write(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")

        async def is_cut() -> bool:
            return listener.connections == 0

        await eventually(lambda: _later(listener), seconds=5, what="the request to be there")
        await eventually(is_cut, seconds=10, what="the connection to be cut")
        writer.close()


async def _later(listener: HttpListener) -> bool:
    return listener.connections == 1


async def test_one_connection_is_for_one_request() -> None:
    async with listening() as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"connection: close" in answer.lower()
        writer.close()


@pytest.mark.parametrize(
    "said", [b"\0\1\2\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n"]
)
async def test_nonsense_is_refused_and_hardly_logged(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening() as listener:
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(said)
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert await ask(listener) == 200
    assert len([one for one in caplog.records if one.name.startswith(("fipop", "aiohttp"))]) <= 1


def test_one_record_a_minute_is_logged() -> None:
    now = [0.0]
    rare = RareFilter(60, monotonic=lambda: now[0])
    record = logging.makeLogRecord({})
    seen = []
    for now[0] in (0, 1, 59, 60, 61, 130):
        seen.append(rare.filter(record))
    assert seen == [True, False, False, True, False, True]
