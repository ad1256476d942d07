"""Servers that speak something else than HTTP, or HTTP as nobody should."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fipop.errors import ApiError
from fipop.kube.client import Connection, KubeClient
from fipop.kube.resources import CONFIG_MAPS

from .conftest import server_tls

OBJECT = b'{"metadata":{}}'


@asynccontextmanager
async def speaking(authority, folder, raw: bytes, *, hold: bool = False) -> AsyncIterator[Connection]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(raw)
            await writer.drain()
            if hold:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    tls = server_tls(authority.issue_server(["127.0.0.1"]), folder)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    try:
        port = server.sockets[0].getsockname()[1]
        yield Connection(server=f"https://127.0.0.1:{port}", ca_pem=authority.pem.decode())
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/9.9 banana\r\n\r\n",
        b"HTTP/1.1 99999 Many\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n\0",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\n{}{}{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 100_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nDate: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 15\r\n\r\n" + OBJECT,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 429 Slow\r\nRetry-After: \xff\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    ],
)
async def test_whatever_a_server_says_becomes_a_typed_error_in_time(authority, tmp_path, raw):
    async with speaking(authority, tmp_path, raw) as connection, KubeClient(connection) as client:
        with pytest.raises(ApiError):
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=2)
        with pytest.raises(ApiError):
            await client.create(CONFIG_MAPS, {"metadata": {"name": "x", "namespace": "a"}})
        with pytest.raises(ApiError):
            [event async for event in client.watch(CONFIG_MAPS, timeout_seconds=1)]


async def test_a_server_that_accepts_and_says_nothing_costs_the_deadline(authority, tmp_path):
    async with speaking(authority, tmp_path, b"", hold=True) as connection, KubeClient(connection) as client:
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.3)
        assert caught.value.reason == "Timeout"


async def test_a_server_that_never_shakes_hands_costs_the_deadline():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with KubeClient(Connection(server=f"https://127.0.0.1:{port}")) as client:
            with pytest.raises(ApiError) as caught:
                await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.3)
            assert caught.value.reason == "Timeout"
    finally:
        server.close()
        await server.wait_closed()


async def test_a_server_that_continues_without_end_is_cut_off_at_once(authority, tmp_path):
    """Ten thousand of them in a read held the loop up for a quarter of a second, for as long as the request had."""
    flood = b"HTTP/1.1 100 Continue\r\n\r\n" * 400_000
    async with (
        speaking(authority, tmp_path, flood, hold=True) as connection,
        KubeClient(connection) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=60)
        assert caught.value.reason == "ConnectionCut"


def chunk(size: int) -> bytes:
    return b"%x\r\n" % size + b" " * size + b"\r\n"


async def test_a_megabyte_in_tiny_chunks_is_not_read_to_its_end(authority, tmp_path):
    """It kept the loop for two seconds, and was asked for again with a quarter of the limit."""
    flood = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(1) * 1_000_000
    async with (
        speaking(authority, tmp_path, flood, hold=True) as connection,
        KubeClient(connection) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=60)
        assert caught.value.reason == "ConnectionCut"


async def test_a_chunk_extension_without_end_is_not_read_for_as_long_as_a_request_may_take(
    authority, tmp_path
):
    """It is one line, and no byte of an answer: it took three quarters of a processor."""
    flood = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"a" * 4_000_000
    async with (
        speaking(authority, tmp_path, flood, hold=True) as connection,
        KubeClient(connection) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=60)
        assert caught.value.reason == "ConnectionCut"


@pytest.mark.parametrize("size", [200, 2048])
async def test_chunks_as_api_servers_send_them_are_read(authority, tmp_path, size):
    body = chunk(size) * (1_000_000 // size) + chunk(len(OBJECT)).replace(b" " * len(OBJECT), OBJECT)
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"
    async with speaking(authority, tmp_path, raw) as connection, KubeClient(connection) as client:
        assert await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=10) is not None
