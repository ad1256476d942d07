"""Rancher's door: who is let in, what is counted, what harm it can do."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from localfleet.certificates import build_authority, build_server_tls
from localfleet.proxy import RancherProxy
from localfleet.routes import Fault, GuestRoute, Upstream
from localfleet.simulated import SimulatedGuest

GUEST = "c-m-4xk8q2vz"
TOKEN = "u-abcdefghij:0123456789"


class Client:
    """Talks to the proxy as a guest's client does."""

    def __init__(self, proxy: RancherProxy, session: aiohttp.ClientSession) -> None:
        self.proxy = proxy
        self.session = session

    def request(
        self, method: str, path: str, *, token: str = TOKEN, guest: str = GUEST, **options: Any
    ) -> Any:
        headers = {"Authorization": f"Bearer {token}", **options.pop("headers", {})}
        return self.session.request(method, self.proxy.url_of(guest) + path, headers=headers, **options)

    async def status(self, path: str, **options: Any) -> int:
        async with self.request("GET", path, **options) as answer:
            return int(answer.status)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with RancherProxy(build_authority("rancher", datetime.now(UTC))) as proxy:
        trust = ssl.create_default_context(cadata=proxy.ca_pem)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
            yield Client(proxy, session)


@pytest.fixture
def route(client: Client) -> GuestRoute:
    client.proxy.issue_token(TOKEN)
    client.proxy.bind_token(TOKEN, GUEST)
    return client.proxy.add_guest(GUEST, SimulatedGuest(latency_seconds=0.0))


@contextlib.asynccontextmanager
async def guest_server(handler: Any) -> AsyncIterator[tuple[str, ssl.SSLContext]]:
    """A guest's API server (TLS, certificate of its own CA) that answers with `handler`."""
    authority = build_authority("guest", datetime.now(UTC))
    tls = build_server_tls(authority.issue_server(["127.0.0.1"]))
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield (
            f"https://127.0.0.1:{runner.addresses[0][1]}",
            ssl.create_default_context(cadata=authority.pem.decode()),
        )
    finally:
        await runner.cleanup()


async def test_an_unknown_token_is_401_and_an_unbound_one_403(client: Client, route: GuestRoute) -> None:
    client.proxy.issue_token("u-late:1")
    assert await client.status("/version", token="u-nobody:1") == 401
    assert await client.status("/version", token="u-late:1") == 403
    client.proxy.bind_token("u-late:1", GUEST)
    assert await client.status("/version", token="u-late:1") == 200
    client.proxy.revoke_token("u-late:1")
    assert await client.status("/version", token="u-late:1") == 401


async def test_a_token_opens_only_the_guest_it_is_bound_to(client: Client, route: GuestRoute) -> None:
    client.proxy.add_guest("c-m-other", SimulatedGuest(latency_seconds=0.0))
    assert await client.status("/version", guest="c-m-other") == 403


async def test_a_removed_guest_is_404_and_a_disconnected_one_503(client: Client, route: GuestRoute) -> None:
    route.connected = False
    assert await client.status("/version") == 503
    client.proxy.remove_guest(GUEST)
    assert await client.status("/version") == 404


async def test_requests_are_remembered_by_guest(client: Client, route: GuestRoute) -> None:
    client.proxy.add_guest("c-m-other", SimulatedGuest())
    await client.status("/api/v1/nodes?limit=1", headers={"User-Agent": "me"})
    async with client.request("DELETE", "/api/v1/nodes/gone"):
        pass
    read, write = client.proxy.requests_of(GUEST)
    assert (read.method, read.path, read.query, read.user_agent) == ("GET", "/api/v1/nodes", "limit=1", "me")
    assert write.is_write
    assert not read.is_write
    assert client.proxy.requests_of("c-m-other") == []
    client.proxy.forget_requests(GUEST)
    assert client.proxy.requests_of(GUEST) == []


async def test_the_guest_sees_the_proxys_credential_and_never_ranchers_token(client: Client) -> None:
    async def handler(request: web.BaseRequest) -> web.Response:
        body = await request.text()
        seen = {"auth": request.headers["Authorization"], "path": request.raw_path, "body": body}
        return web.json_response(seen, status=201, headers={"X-Guest": "yes"})

    async with guest_server(handler) as (url, tls):
        client.proxy.add_guest(GUEST, Upstream(url=url, tls=tls, token="inner"))
        client.proxy.bind_token(TOKEN, GUEST)
        async with client.request("POST", "/api/v1/x?a=b%26c&d=%20", data=b"hello") as answer:
            assert answer.status == 201
            assert answer.headers["X-Guest"] == "yes"
            assert await answer.json() == {
                "auth": "Bearer inner",
                "path": "/api/v1/x?a=b%26c&d=%20",
                "body": "hello",
            }


async def test_a_stream_is_passed_on_as_it_comes(client: Client) -> None:
    more = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"first\n")
        await more.wait()
        await response.write(b"second\n")
        return response

    async with guest_server(handler) as (url, tls):
        client.proxy.add_guest(GUEST, Upstream(url=url, tls=tls))
        client.proxy.bind_token(TOKEN, GUEST)
        async with client.request("GET", "/watch") as answer:
            assert await answer.content.readline() == b"first\n"
            more.set()
            assert await answer.content.readline() == b"second\n"


async def test_a_guest_that_is_down_is_502(client: Client) -> None:
    async with guest_server(None) as (url, tls):
        pass
    client.proxy.add_guest(GUEST, Upstream(url=url, tls=tls))
    client.proxy.bind_token(TOKEN, GUEST)
    assert await client.status("/version") == 502


async def test_a_fault_can_answer_any_status_a_number_of_times(client: Client, route: GuestRoute) -> None:
    route.fault = Fault(status=500, times=2)
    assert [await client.status("/version") for _ in range(3)] == [500, 500, 200]


async def test_a_fault_can_be_narrowed_to_some_requests(client: Client, route: GuestRoute) -> None:
    route.fault = Fault(status=418, only=lambda seen: seen.path == "/readyz")
    assert await client.status("/version") == 200
    assert await client.status("/readyz") == 418


async def test_a_hanging_guest_answers_nobody_and_does_not_hold_up_the_end(
    client: Client, route: GuestRoute
) -> None:
    route.fault = Fault(hang=True)
    with pytest.raises(TimeoutError):
        await client.status("/version", timeout=aiohttp.ClientTimeout(total=0.2))
    assert len(route.requests) == 1


async def test_a_refusing_guest_cuts_the_connection(client: Client, route: GuestRoute) -> None:
    route.fault = Fault(refuse=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.status("/version")


async def test_a_lost_answer_leaves_the_work_done(client: Client, route: GuestRoute) -> None:
    assert isinstance(route.target, SimulatedGuest)
    route.fault = Fault(lose_answer=True, times=1)
    manifest = {"metadata": {"name": "kubevip"}, "data": {}}
    with pytest.raises(aiohttp.ClientConnectionError):
        async with client.request("POST", "/api/v1/namespaces/kube-system/configmaps", json=manifest):
            pass
    assert route.target.get("configmaps", "kube-system", "kubevip") is not None


async def test_a_slow_guest_sends_byte_by_byte(client: Client, route: GuestRoute) -> None:
    route.fault = Fault(bytes_per_second=100.0)
    begun = time.monotonic()
    async with client.request("GET", "/version") as answer:
        body = await answer.read()
    assert len(body) > 20
    assert time.monotonic() - begun > len(body) / 100.0 * 0.9


async def test_a_delay_comes_before_the_answer(client: Client, route: GuestRoute) -> None:
    route.fault = Fault(delay_seconds=0.1)
    begun = time.monotonic()
    assert await client.status("/version") == 200
    assert time.monotonic() - begun >= 0.1
