"""A server in an API server's place, and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from .conftest import FakeServer

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a"}}


def page(names: list[str], *, version: str = "7", token: str = "") -> dict:
    items = [{"metadata": {"name": name}} for name in names]
    return {"kind": "List", "metadata": {"resourceVersion": version, "continue": token}, "items": items}


@asynccontextmanager
async def cutting(server: FakeServer, good_answers: int) -> AsyncIterator[list[str]]:
    """Let the server answer so often, then cut every connection once it has read the request."""
    methods: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        methods.append(request.method)
        if len(methods) > good_answers:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(CONFIG_MAP)

    server.answer = answer
    yield methods


def streaming(*chunks: bytes, hold: bool = False) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if hold:
            await asyncio.sleep(30)
        return response

    return answer
