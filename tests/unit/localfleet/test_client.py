"""The fleet's client of API servers: what it repeats by itself, and what is an error."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from localfleet.client import ApiClient
from localfleet.errors import ApiError

PATH = "/api/v1/namespaces"


@asynccontextmanager
async def serving(*answers: web.Response) -> AsyncIterator[tuple[ApiClient, list[str]]]:
    """A client of a server that answers so, one after the other; the bodies that the server got."""
    left, bodies = list(answers), []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        bodies.append(await request.text())
        return left.pop(0)

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with ApiClient(url, ssl.create_default_context()) as client:
            yield client, bodies
    finally:
        await runner.cleanup()


def put_off(after: str | None = "0") -> web.Response:
    """As a kube-apiserver answers for a moment after a CRD changed."""
    status = {
        "kind": "Status",
        "code": 429,
        "reason": "TooManyRequests",
        "message": "storage is (re)initializing",
    }
    return web.json_response(status, status=429, headers={"Retry-After": after} if after is not None else {})


async def test_a_request_that_is_put_off_is_repeated_as_it_was() -> None:
    made = web.json_response({"metadata": {"name": "a"}}, status=201)
    async with serving(put_off(), put_off(), made) as (client, bodies):
        assert await client.create(PATH, {"kind": "Namespace"}) == {"metadata": {"name": "a"}}
    assert bodies == ['{"kind": "Namespace"}'] * 3


@pytest.mark.parametrize(("after", "times"), [("0", 10), (None, 1), ("soon", 1)])
async def test_one_that_is_put_off_for_ever_or_for_no_time_is_an_error(after: str | None, times: int) -> None:
    async with serving(*(put_off(after) for _ in range(20))) as (client, bodies):
        with pytest.raises(ApiError, match="initializing") as caught:
            await client.get(PATH)
    assert (caught.value.status, len(bodies)) == (429, times)
