"""The proxy between helm and a guest cluster: what passes, and what a guest cluster cannot do with it."""

import asyncio
import contextlib
import io
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from fipop.errors import ApiError, FipopError
from fipop.helm.proxy import (
    ANSWER_BYTES,
    BODY_BYTES,
    GuestApiProxy,
    HelmTarget,
    RefusedAnswerError,
    open_proxy,
)
from fipop.kube.client import RequestRecord
from fipop.kube.guests import GuestAccess, GuestServers
from localfleet.certificates import build_authority
from tests.unit.kube.conftest import FakeServer, serve, server_tls

OTHER_PATHS = """
/ /api /x/api /{secret}x/api /{secret} /{secret}/api/../../c-m-b/api /{secret}/%2e%2e/c-m-b /{secret}/..%2fc-m-b/api
/{secret}/api/./v1 /{secret}/a%5cb
"""
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


@dataclass(frozen=True)
class Opened:
    """A proxy, and the URL that helm is given."""

    proxy: GuestApiProxy
    url: str
    kubeconfig: str

    @property
    def error(self) -> FipopError | None:
        return self.proxy.error


@asynccontextmanager
async def proxy_to(server: FakeServer, *, seconds: float = 10.0, **options: Any) -> AsyncIterator[Opened]:
    fields = {"server": server.url + GUEST, "token": "t0ken", "ca_pem": server.ca_pem}
    access = GuestAccess(**(fields | options.pop("access", {})))
    guests, deadline = GuestServers(), asyncio.get_running_loop().time() + seconds
    target = HelmTarget(access=access, **options)
    try:
        async with open_proxy(guests(access), target, deadline=deadline) as (proxy, kubeconfig):
            url = json.loads(kubeconfig)["clusters"][0]["cluster"]["server"]
            yield Opened(proxy, url, kubeconfig)
    finally:
        await guests.close()


def answered(server: FakeServer, **fields: Any) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(**fields)

    server.answer = answer


async def test_method_path_query_body_and_two_headers_pass(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    seen: list[RequestRecord] = []
    headers = {
        "Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "Content-Type": "application/strategic-merge-patch+json",
        "X-Other": "no",
        "Authorization": "Bearer of-helm",
    }
    answered(server, status=201, body=b'{"a" : 1}', headers={"Content-Type": "application/json"})
    async with proxy_to(server, on_request=seen.append) as proxy:
        url = URL(f"{proxy.url}/api/v1/namespaces/a/secrets?fieldManager=he%6Cm&x=%2F", encoded=True)
        async with helm.patch(url, data=b'{"spec" :\n{}}', headers=headers) as response:
            assert (response.status, await response.read()) == (201, b'{"a" : 1}')
    (request,) = server.requests
    assert (request.method, request.path) == ("PATCH", f"{GUEST}/api/v1/namespaces/a/secrets")
    assert dict(request.query) == {"fieldManager": "helm", "x": "/"}
    assert [json.loads(body) for body in server.bodies] == [{"spec": {}}]
    got = request.headers
    assert {name: got[name] for name in ("Accept", "Content-Type")} == {
        name: headers[name] for name in ("Accept", "Content-Type")
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
    async with proxy_to(server) as proxy:
        url = URL(proxy.url)
        wanted = path.format(secret=url.path.strip("/"))
        async with helm.get(URL(f"{url.origin()}{wanted}", encoded=True)) as response:
            assert response.status == 404
    assert server.requests == []


async def test_the_proxy_is_gone_with_the_run(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    async with proxy_to(server) as proxy, helm.get(f"{proxy.url}/version") as response:
        assert response.status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await helm.get(f"{proxy.url}/version")


async def test_two_proxies_have_nothing_in_common(server: FakeServer) -> None:
    async with proxy_to(server) as one, proxy_to(server) as other:
        assert URL(one.url).path != URL(other.url).path
        assert len(URL(one.url).path) == 1 + 32
        assert "t0ken" not in one.kubeconfig


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_a_redirect_is_not_followed_and_not_passed_on(
    server: FakeServer, helm: aiohttp.ClientSession, status: int
) -> None:
    """A 302 to plain http got the bearer token, a 307 had a POST done again elsewhere."""
    answered(server, status=status, headers={"Location": "http://127.0.0.1:9/steal"})
    async with proxy_to(server) as proxy:
        async with helm.post(f"{proxy.url}/api", data=b"{}", allow_redirects=False) as response:
            assert (response.status, "Location" in response.headers) == (502, False)
        assert isinstance(proxy.error, FipopError)
    assert len(server.requests) == 1


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
    async with proxy_to(server) as proxy:
        async with helm.get(f"{proxy.url}/api") as response:
            assert response.status == 502
        assert isinstance(proxy.error, FipopError)


async def test_helm_hears_of_no_pause_and_prints_no_warning(
    server: FakeServer, helm: aiohttp.ClientSession
) -> None:
    answered(server, status=429, headers={"Retry-After": "3600", "Warning": '299 - "print me"'})
    async with proxy_to(server) as proxy, helm.get(f"{proxy.url}/api") as response:
        assert (response.status, {"Retry-After", "Warning"} & set(response.headers)) == (429, set())


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
    async with proxy_to(server, seconds=math.inf) as proxy:
        async with helm.get(f"{proxy.url}/api") as response:
            with contextlib.suppress(aiohttp.ClientError):
                async for chunk in response.content.iter_any():
                    received += len(chunk)
        assert isinstance(proxy.error, RefusedAnswerError)
    assert received <= ANSWER_BYTES


async def test_all_answers_of_a_run_have_a_bound(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    answered(server, body=b" " * 20 * 1024 * 1024)
    # The bound is one of bytes. A run whose time is over gets a whole answer that says so, which is another promise.
    async with proxy_to(server, seconds=math.inf) as proxy:
        ends = []
        for _ in range(4):
            try:
                async with helm.get(f"{proxy.url}/api") as response:
                    ends.append(len(await response.read()))
            except aiohttp.ClientError:
                ends.append(-1)
        assert isinstance(proxy.error, RefusedAnswerError)
    assert ends == [20 * 1024 * 1024] * 3 + [-1]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_request_has_a_longest_body(server: FakeServer, helm: aiohttp.ClientSession) -> None:
    async with proxy_to(server) as proxy:
        async with helm.post(f"{proxy.url}/api", data=io.BytesIO(b"x" * (BODY_BYTES + 1))) as response:
            assert response.status == 400
        async with helm.post(f"{proxy.url}/api", data=io.BytesIO(b"x" * BODY_BYTES)) as response:
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
    async with proxy_to(server) as proxy, helm.get(f"{proxy.url}/api/v1/pods?watch=true") as response:
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
    async with proxy_to(server, seconds=0.5) as proxy:
        async with helm.get(f"{proxy.url}/api") as response:
            assert response.status == 502
        assert isinstance(proxy.error, ApiError)
        assert proxy.error.reason == "Timeout"


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
    async with proxy_to(server, access=access) as proxy:
        async with helm.get(f"{proxy.url}/api") as response:
            assert response.status == 502
        assert isinstance(proxy.error, ApiError)
        assert proxy.error.reason == reason
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
    async with raw, proxy_to(fake) as proxy, helm.get(f"{proxy.url}/api") as response:
        assert (response.status, await response.read()) == (200, b"{}")
