"""The door between helm and a guest: what goes through it, and what a guest can't do with it."""

import asyncio
import contextlib
import io
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from fipop.errors import ApiError, FipopError
from fipop.guest.helm.door import ANSWER_BYTES, BODY_BYTES, Door, RefusedAnswerError, open_door
from fipop.kube.client import RequestRecord
from fipop.kube.guests import GuestAccess, GuestServers
from localfleet.certificates import build_authority
from tests.unit.kube.conftest import FakeServer, serve, server_tls

OTHER_PATHS = """
/ /api /x/api /{secret}x/api /{secret} /{secret}/api/../../c-m-b/api /{secret}/%2e%2e/c-m-b /{secret}/..%2fc-m-b/api
/{secret}/api/./v1 /{secret}/a%5cb
"""
RETRIES = {"3600": "1", "1": "1", "0": "0", "00": "0", "9" * 5000: "1", "-5": None, "1e9": None, "": None}
GUEST = "/k8s/clusters/c-m-a"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeServer]:
    authority = build_authority("tests", datetime.now(UTC))
    async with serve(authority, server_tls(authority.issue_server(["127.0.0.1"]), tmp_path)) as fake:
        fake.says({"kind": "Status"})
        yield fake


@pytest_asyncio.fixture
async def helm() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        yield session


@asynccontextmanager
async def door_to(server: FakeServer, *, seconds: float = 10.0, **options: Any) -> AsyncIterator[Door]:
    fields = {"server": server.url + GUEST, "token": "t0ken", "ca_pem": server.ca_pem}
    access = GuestAccess(**(fields | options.pop("access", {})))
    guests, deadline = GuestServers(), asyncio.get_running_loop().time() + seconds
    try:
        async with open_door(guests(access), deadline=deadline, **options) as door:
            yield door
    finally:
        await guests.close()


def answered(server: FakeServer, **fields: Any) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(**fields)

    server.answer = answer


async def test_method_path_query_body_and_three_headers_pass(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    seen: list[RequestRecord] = []
    headers = {
        "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "Content-Type": "application/strategic-merge-patch+json",
        "If-None-Match": '"7"',
        "X-Other": "no",
        "Authorization": "Bearer of-helm",
    }
    answered(
        server, status=201, body=b'{"a" : 1}', headers={"Content-Type": "application/json", "ETag": '"8"'}
    )
    async with door_to(server, on_request=seen.append) as door:
        url = URL(f"{door.url}/api/v1/namespaces/a/secrets?fieldManager=he%6Cm&x=%2F", encoded=True)
        async with helm.patch(url, data=b'{"spec" :\n{}}', headers=headers) as response:
            assert (response.status, await response.read()) == (201, b'{"a" : 1}')
            assert response.headers["ETag"] == '"8"'
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", f"{GUEST}/api/v1/namespaces/a/secrets")
    assert dict(request.query) == {"fieldManager": "helm", "x": "/"}
    assert [json.loads(body) for body in server.bodies] == [{"spec": {}}]
    got = request.headers
    assert {name: got[name] for name in ("Accept", "Content-Type", "If-None-Match")} == {
        name: headers[name] for name in ("Accept", "Content-Type", "If-None-Match")
    }
    assert (got["Authorization"], got["Accept-Encoding"], "X-Other" in got) == (
        "Bearer t0ken",
        "identity",
        False,
    )
    assert [(one.verb, one.status) for one in seen] == [("patch", 201)]


@pytest.mark.parametrize(
    "path",
    OTHER_PATHS.split(),
)
async def test_any_other_path_leads_nowhere(
    server: FakeServer, helm: aiohttp.ClientSession, path: str
) -> None:
    """A guest names resources, and helm makes paths of the names: one that climbs would lead to another guest."""
    async with door_to(server) as door:
        url = URL(door.url)
        wanted = path.format(secret=url.path.strip("/"))
        async with helm.get(URL(f"{url.origin()}{wanted}", encoded=True)) as response:
            assert response.status == 404
    assert server.requests == []


async def test_the_door_is_gone_with_the_run(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    async with door_to(server) as door, helm.get(f"{door.url}/version") as response:
        assert response.status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await helm.get(f"{door.url}/version")


async def test_two_doors_have_nothing_in_common(server: FakeServer) -> None:
    async with door_to(server) as one, door_to(server) as other:
        assert URL(one.url).path != URL(other.url).path
        assert len(URL(one.url).path) == 1 + 32
        assert "t0ken" not in one.render_kubeconfig()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed_and_not_passed_on(
    server: FakeServer, helm: aiohttp.ClientSession, status: int
) -> None:
    """A 302 to plain http got the bearer token, a 307 had a POST done again elsewhere."""
    answered(server, status=status, headers={"Location": "http://127.0.0.1:9/steal"})
    async with door_to(server) as door:
        async with helm.post(f"{door.url}/api", data=b"{}", allow_redirects=False) as response:
            assert (response.status, "Location" in response.headers) == (502, False)
        assert isinstance(door.error, FipopError)
    assert len(server.requests) == 1


async def test_what_has_not_changed_since_helm_asked_is_no_redirect(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    answered(server, status=304)
    async with door_to(server) as door:
        async with helm.get(f"{door.url}/openapi/v3", headers={"If-None-Match": '"7"'}) as response:
            assert response.status == 304
        assert door.error is None


@pytest.mark.parametrize(
    "fields",
    [
        {"status": 101},
        {"headers": {"Content-Encoding": "gzip"}},
        {"headers": {"Content-Encoding": "br"}},
        {"status": 999},
    ],
    ids=["protocol", "gzip", "br", "status"],
)
async def test_what_is_no_plain_answer_becomes_502(
    server: FakeServer, helm: aiohttp.ClientSession, fields: dict[str, Any]
) -> None:
    answered(server, body=b"{}", **fields)
    async with door_to(server) as door:
        async with helm.get(f"{door.url}/api") as response:
            assert response.status == 502
        assert isinstance(door.error, FipopError)


@pytest.mark.parametrize(
    ("given", "passed"),
    [*RETRIES.items(), ("Wed, 21 Oct 2099 07:28:00 GMT", None)],
)
async def test_helm_waits_for_no_longer_than_a_second_and_prints_no_warnings(
    server: FakeServer, helm: aiohttp.ClientSession, given: str, passed: str | None
) -> None:
    answered(server, status=429, headers={"Retry-After": given, "Warning": '299 - "print me"'})
    async with door_to(server) as door, helm.get(f"{door.url}/api") as response:
        assert (response.status, response.headers.get("Retry-After")) == (429, passed)
        assert "Warning" not in response.headers


async def test_an_answer_may_be_long_but_not_without_end(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)
            # Over TLS a write to a connection that is gone does not fail, and never waits.
            await asyncio.sleep(0)

    server.answer = answer
    received = 0
    async with door_to(server, seconds=math.inf) as door:
        async with helm.get(f"{door.url}/api") as response:
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in response.content.iter_any():
                    received += len(chunk)
        assert isinstance(door.error, RefusedAnswerError)
    assert received <= ANSWER_BYTES


async def test_all_answers_of_a_run_have_a_bound(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    answered(server, body=b" " * 20 * 1024 * 1024)
    # The bound is one of bytes. A run whose time is over gets a whole answer that says so, which is another promise.
    async with door_to(server, seconds=math.inf) as door:
        ends = []
        for _ in range(4):
            try:
                async with helm.get(f"{door.url}/api") as response:
                    ends.append(len(await response.read()))
            except aiohttp.ClientError:
                ends.append(-1)
        assert isinstance(door.error, RefusedAnswerError)
    assert ends == [20 * 1024 * 1024] * 3 + [-1]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_request_has_a_longest_body(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    async with door_to(server) as door:
        async with helm.post(f"{door.url}/api", data=io.BytesIO(b"x" * (BODY_BYTES + 1))) as response:
            assert response.status == 413
        async with helm.post(f"{door.url}/api", data=io.BytesIO(b"x" * BODY_BYTES)) as response:
            assert response.status == 200
    assert [len(body) for body in server.bodies] == [BODY_BYTES]


async def test_a_watch_comes_line_by_line(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    go_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"ADDED"}\n')
        await go_on.wait()
        await response.write(b'{"type":"DELETED"}\n')
        return response

    server.answer = answer
    async with door_to(server) as door, helm.get(f"{door.url}/api/v1/pods?watch=true") as response:
        assert await asyncio.wait_for(response.content.readline(), 5) == b'{"type":"ADDED"}\n'
        go_on.set()
        assert await response.content.readline() == b'{"type":"DELETED"}\n'


async def test_a_request_has_what_is_left_of_the_run_and_no_longer(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    server.answer = answer
    async with door_to(server, seconds=0.5) as door:
        async with helm.get(f"{door.url}/api") as response:
            assert response.status == 502
        assert isinstance(door.error, ApiError)
        assert door.error.reason == "Timeout"


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        ({"ca_pem": ""}, "CertificateInvalid"),
        ({"server": "https://127.0.0.1:1/k8s/clusters/c-m-a"}, "ConnectionRefused"),
    ],
)
async def test_the_way_to_the_guest_is_guarded_at_each_connection(
    server: FakeServer, helm: aiohttp.ClientSession, access: dict[str, Any], reason: str
) -> None:
    async with door_to(server, access=access) as door:
        async with helm.get(f"{door.url}/api") as response:
            assert response.status == 502
        assert isinstance(door.error, ApiError)
        assert door.error.reason == reason
    assert server.requests == []


async def test_headers_of_a_guest_that_are_no_text_are_dropped(
    helm: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nETag: \xff\xfe\r\nContent-Type: \xff\r\nContent-Length: 2\r\n\r\n{}"
        )
        await writer.drain()
        writer.close()

    authority = build_authority("tests", datetime.now(UTC))
    tls = server_tls(authority.issue_server(["127.0.0.1"]), tmp_path)
    raw = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    fake = FakeServer(
        url=f"https://127.0.0.1:{raw.sockets[0].getsockname()[1]}", ca_pem=authority.pem.decode()
    )
    async with raw, door_to(fake) as door, helm.get(f"{door.url}/api") as response:
        assert (response.status, await response.read()) == (200, b"{}")
