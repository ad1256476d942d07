"""Requests and answers: bounded in time and bytes, whatever the server does."""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from fipop.errors import (
    ApiAnswerError,
    ApiConflictError,
    ApiUnreachableError,
)
from fipop.kube.client import KubeClient
from fipop.kube.limits import ReadLimits
from fipop.kube.resources import CONFIG_MAPS
from tests.unit.kube.servers import CONFIG_MAP, cutting


async def test_an_answer_beyond_the_cap_is_refused(server):
    server.says(b'{"metadata":{"name":"' + b"x" * 2_000_000 + b'"}}')
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=1_000_000, list_bytes=1_000_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.get(CONFIG_MAPS, "x", namespace="a")
        assert caught.value.reason == "TooLarge"
        server.says(CONFIG_MAP)
        assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


async def test_compression_is_not_asked_for_and_a_bomb_is_not_unpacked(server, client):
    server.says(gzip.compress(b" " * 50_000_000), headers={"Content-Encoding": "gzip"})
    with pytest.raises(ApiAnswerError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert caught.value.reason == "Compressed"
    assert server.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_and_not_followed(server, client, code):
    server.says(b"", status=code, headers={"Location": f"{server.url}/elsewhere"})
    with pytest.raises(ApiAnswerError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert (caught.value.status, caught.value.reason) == (code, "Redirect")
    assert len(server.requests) == 1


async def test_cookies_are_not_kept(server):
    server.says(CONFIG_MAP, headers={"Set-Cookie": "a=b; Path=/"})
    by_name = server.connection(
        server=server.url.replace("127.0.0.1", "localhost"), tls_server_name="api.test"
    )
    async with KubeClient(by_name) as client:
        await client.get(CONFIG_MAPS, "x", namespace="a")
        await client.get(CONFIG_MAPS, "x", namespace="a")
    assert "Cookie" not in server.requests[1].headers


async def test_a_server_that_is_silent_costs_no_more_than_the_deadline(server, client):
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.json_response(CONFIG_MAP)  # a client that waits for it is given no error

    server.answer = answer
    with pytest.raises(ApiUnreachableError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.2)
    assert (caught.value.reason, caught.value.status, caught.value.outcome_unknown) == ("Timeout", 0, True)


async def test_a_body_of_one_byte_at_a_time_does_not_stretch_the_deadline(server, client):
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for byte in b" " * 600 + json.dumps(CONFIG_MAP).encode():
            await response.write(bytes([byte]))
            await asyncio.sleep(0.05)
        return response  # after half a minute: a client that waits for it is given no error

    server.answer = answer
    with pytest.raises(ApiUnreachableError) as caught:
        await client.get(CONFIG_MAPS, "x", namespace="a", timeout_seconds=0.3)
    assert caught.value.reason == "Timeout"


@pytest.mark.parametrize(
    "write",
    [
        lambda client: client.create(CONFIG_MAPS, CONFIG_MAP),
        lambda client: client.replace(CONFIG_MAPS, CONFIG_MAP),
        lambda client: client.merge_patch(CONFIG_MAPS, "x", {}, namespace="a"),
        lambda client: client.delete(CONFIG_MAPS, "x", namespace="a"),
    ],
)
async def test_a_write_whose_answer_is_cut_is_unknown_and_never_sent_twice(
    server, client, write: Callable[[KubeClient], Awaitable[object]]
):
    async with cutting(server, good_answers=1) as methods:
        await client.get(CONFIG_MAPS, "x", namespace="a")
        with pytest.raises(ApiUnreachableError) as caught:
            await write(client)
        assert caught.value.outcome_unknown
        assert caught.value.reason == "ConnectionCut"
        assert len(methods) == 2


async def test_an_error_names_the_call_and_hides_what_the_remote_wrote(server, client):
    server.refuses(409, "Conflict")
    with pytest.raises(ApiConflictError) as caught:
        await client.replace(CONFIG_MAPS, CONFIG_MAP)
    error = caught.value
    assert (error.verb, error.kind, error.namespace, error.name) == ("replace", "ConfigMap", "a", "x")
    assert (error.status, error.reason) == (409, "Conflict")
