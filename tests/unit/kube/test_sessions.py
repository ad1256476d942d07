"""Connections that clients share: who may, what stays theirs, and what a bad one costs the others."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from fipop.errors import ApiUnreachableError
from fipop.kube.client import KubeClient
from fipop.kube.connection import Connection
from fipop.kube.http_server import HttpServer
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.sessions import SharedSession, open_authorized_session
from localfleet.certificates import CertificateAuthority, build_authority

from .conftest import FakeServer, serve, server_tls

CONFIG_MAP = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "resourceVersion": "1"}}


@pytest_asyncio.fixture
async def shared() -> AsyncIterator[SharedSession]:
    shared = SharedSession(local_addresses_allowed=True)
    yield shared
    await shared.close()


def client_of(connection: Connection, shared: SharedSession) -> KubeClient:
    return KubeClient(HttpServer(connection, shared=shared), timeout_seconds=2, max_connections=1)


async def read(client: KubeClient) -> None:
    assert await client.get(CONFIG_MAPS, "x", namespace="a") == CONFIG_MAP


@pytest.fixture
def ports(server: FakeServer) -> list[int]:
    """Answer with the ConfigMap, and note from which port each request came: one for each connection."""
    seen: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        seen.append(request.transport.get_extra_info("peername")[1])
        return web.json_response(CONFIG_MAP)

    server.answer = answer
    return seen


async def test_clients_of_one_server_share_its_connection_and_not_their_tokens(
    server: FakeServer, shared: SharedSession, ports: list[int]
) -> None:
    for token in ("of-one", "of-another"):
        async with client_of(server.connection(token=token), shared) as client:
            await read(client)
    assert len(set(ports)) == 1
    assert [each.headers["Authorization"] for each in server.requests] == [
        "Bearer of-one",
        "Bearer of-another",
    ]


async def test_a_client_that_is_closed_sends_nothing_more_over_connections_that_others_use(
    server: FakeServer, shared: SharedSession, ports: list[int]
) -> None:
    one, other = (client_of(server.connection(), shared) for _ in range(2))
    await read(one)
    await one.close()
    with pytest.raises(RuntimeError):
        await read(one)
    await read(other)
    assert len(ports) == 2


async def test_who_trusts_another_authority_gets_no_connection_of_others(
    server: FakeServer, shared: SharedSession, ports: list[int]
) -> None:
    async with client_of(server.connection(), shared) as client:
        await read(client)
    stranger = client_of(
        server.connection(ca_pem=build_authority("others", datetime.now(UTC)).pem.decode()), shared
    )
    async with stranger:
        with pytest.raises(ApiUnreachableError) as caught:
            await read(stranger)
    assert caught.value.reason == "CertificateInvalid"


async def test_who_expects_another_server_name_gets_no_connection_of_others(
    server: FakeServer, shared: SharedSession, ports: list[int]
) -> None:
    async with client_of(server.connection(), shared) as client:
        await read(client)
    async with client_of(server.connection(tls_server_name="not.ours"), shared) as stranger:
        with pytest.raises(ApiUnreachableError) as caught:
            await read(stranger)
    assert caught.value.reason == "CertificateInvalid"


async def test_what_a_client_certificate_opened_serves_nobody_else(
    authority: CertificateAuthority, tmp_path: Path, shared: SharedSession
) -> None:
    tls = server_tls(authority.issue_server(["127.0.0.1"]), tmp_path, client_ca=authority.pem)
    tls.verify_mode = ssl.CERT_OPTIONAL
    pair = authority.issue_client("guest")
    async with serve(authority, tls) as server:
        certificates: list[object] = []

        async def answer(request: web.Request) -> web.Response:
            assert request.transport is not None
            certificates.append(request.transport.get_extra_info("peercert"))
            return web.json_response(CONFIG_MAP)

        server.answer = answer
        known = server.connection(
            token=None,
            client_certificate_pem=pair.certificate.decode(),
            client_key_pem=pair.key.decode(),
        )
        for connection in (known, server.connection(), known):
            async with client_of(connection, shared) as client:
                await read(client)
    assert [bool(each) for each in certificates] == [True, False, True]


async def test_a_client_that_waits_keeps_no_connection_from_the_others(
    server: FakeServer, shared: SharedSession
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer slow":
            await asyncio.sleep(30)
        return web.json_response(CONFIG_MAP)

    server.answer = answer
    slow = [client_of(server.connection(token="slow"), shared) for _ in range(50)]
    waiting = [asyncio.create_task(read(each)) for each in slow]
    async with client_of(server.connection(), shared) as client:
        await read(client)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    async with client_of(server.connection(), shared) as client:
        await read(client)  # none of the answers that nobody waits for any more is taken for this one


@asynccontextmanager
async def talking_twice(authority: CertificateAuthority, folder: Path) -> AsyncIterator[str]:
    """Serve one answer for each request, and then one more that nobody asked for."""
    answer = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"%d"}}'
    served = 0

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        while await reader.readuntil(b"\r\n\r\n"):
            for version in (1, 666):
                body = answer % version
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
                await asyncio.sleep(0.05)
            served += 1

    tls = server_tls(authority.issue_server(["127.0.0.1"]), folder)
    listener = await asyncio.start_server(serve_one, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()


async def test_an_answer_that_nobody_asked_for_is_nobodys(
    authority: CertificateAuthority, tmp_path: Path, shared: SharedSession
) -> None:
    async with talking_twice(authority, tmp_path) as url:
        connection = Connection(server=url, ca_pem=authority.pem.decode(), token="token")
        for _ in range(3):
            async with client_of(connection, shared) as client:
                await read(client)
            await asyncio.sleep(0.1)  # time for what nobody asked for


async def test_a_library_sends_the_token_of_the_moment_and_each_request_is_heard_of(
    server: FakeServer, ports: list[int]
) -> None:
    heard, tokens, trace = [], ["first", "second"], aiohttp.TraceConfig()

    async def hear(_: object, __: object, told: aiohttp.TraceRequestEndParams) -> None:
        heard.append(told.response.status)

    trace.on_request_end.append(hear)
    connection = server.connection(token=None, token_source=lambda: tokens.pop(0))
    async with open_authorized_session(connection, trace=trace) as session:
        for _ in range(2):
            async with session.get(f"{server.url}/x") as response:
                assert await response.json() == CONFIG_MAP
    sent = [request.headers["Authorization"] for request in server.requests]
    assert sent == ["Bearer first", "Bearer second"]
    assert heard == [200, 200]
    assert len(set(ports)) == 1


@pytest.mark.parametrize("is_redirected", [True, False])
async def test_a_library_sends_our_token_to_no_other_server(server: FakeServer, is_redirected: bool) -> None:
    other = server.url.replace("127.0.0.1", "localhost")

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": other})

    server.answer = answer
    async with open_authorized_session(server.connection(), trace=aiohttp.TraceConfig()) as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(server.url if is_redirected else other)
    assert len(server.requests) == is_redirected


async def test_a_library_finds_a_server_by_the_name_in_its_certificate(server: FakeServer) -> None:
    for name, is_known in (("api.test", True), ("not.ours", False)):
        connection = server.connection(tls_server_name=name)
        async with open_authorized_session(connection, trace=aiohttp.TraceConfig()) as session:
            try:
                await session.get(server.url)
            except aiohttp.ClientConnectorCertificateError:
                assert not is_known
            else:
                assert is_known
