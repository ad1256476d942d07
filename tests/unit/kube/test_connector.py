"""Connections: what cannot be opened is told, and leaves no doubt."""

import asyncio
import tracemalloc
from asyncio import sslproto

import pytest
from aiohttp import web

from fipop.errors import (
    ApiUnreachableError,
)
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS
from tests.unit.kube.servers import CONFIG_MAP


async def test_a_refused_connection_is_told_and_leaves_no_doubt(unused_url):
    async with KubeClient(unused_url) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.create(CONFIG_MAPS, CONFIG_MAP)
    assert caught.value.reason == "ConnectionRefused"
    assert not caught.value.outcome_unknown


@pytest.fixture
async def unused_url(server):
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    return server.connection(server=f"https://127.0.0.1:{port}")


async def test_a_name_that_no_resolver_takes_is_told(server):
    async with KubeClient(server.connection(server=f"https://{'a' * 64}.example")) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.create(CONFIG_MAPS, {"metadata": {"name": "x"}}, namespace="a")
    assert (caught.value.reason, caught.value.outcome_unknown) == ("NameResolution", False)


async def test_a_name_that_nobody_knows_is_told(server):
    async with KubeClient(server.connection(server="https://nobody.invalid")) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=20)
    assert caught.value.reason in ("NameResolution", "Timeout")


async def test_cancelling_a_call_gives_its_connection_back(server):
    asked = asyncio.Event()

    async def answer(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(30)
        return web.Response()

    server.answer = answer
    async with KubeClient(server.connection(), max_connections=1) as client:
        call = asyncio.create_task(client.get(CONFIG_MAPS, "x", namespace="a"))
        await asyncio.wait_for(asked.wait(), 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.says(CONFIG_MAP)
        assert await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=2) == CONFIG_MAP


async def test_a_connection_keeps_a_small_buffer(server):
    # asyncio's 256 KiB for each of 2,000 guest clusters would be 500 MiB of a pod that may have far less.
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "ConfigMap", "metadata": {"name": "x"}})

    server.answer = answer
    tracemalloc.start()
    try:
        async with KubeClient(server.connection()) as client:
            await client.get(CONFIG_MAPS, "x", namespace="a")
            snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    buffers = [each.size for each in snapshot.traces if each.traceback[0].filename == sslproto.__file__]
    assert buffers
    # Of both ends, which are in this process.
    assert sum(buffers) < 128 * 1024
