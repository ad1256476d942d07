"""A TLS server on loopback that answers as each test wants, and clients for it."""

import datetime as dt
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from fipop.kube.client import KubeClient
from fipop.kube.server import HttpServer
from localfleet.certificates import CertificateAuthority, KeyPair, build_authority

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture(scope="session")
def authority() -> CertificateAuthority:
    return build_authority("tests", dt.datetime.now(dt.UTC))


def server_tls(pair: KeyPair, folder: Path, *, client_ca: bytes | None = None) -> ssl.SSLContext:
    path = folder / "server.pem"
    path.write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass
class FakeServer:
    """Answers every request with what `answer` returns, and remembers what was asked."""

    url: str
    ca_pem: str
    requests: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    """The client's end of the connection of each request."""
    answer: Answering | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        assert request.transport is not None
        self.peers.append(request.transport.get_extra_info("peername"))
        self.bodies.append(await request.read())
        assert self.answer is not None
        return await self.answer(request)

    def says(self, body: Any = None, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            if isinstance(body, bytes | str):
                return web.Response(body=body, status=status, headers=headers)
            return web.json_response(body, status=status, headers=headers)

        self.answer = answer

    def refuses(self, code: int, reason: str, *, name: str = "x", causes: list[Any] | None = None) -> None:
        details: dict[str, Any] = {"name": name}
        if causes is not None:
            details["causes"] = causes
        self.says(status_object(code, reason, details), status=code)

    def client(self, *, token: str = "t0ken", **options: Any) -> KubeClient:
        configuration = Configuration(
            host=self.url, ca_cert_data=self.ca_pem, api_key={"BearerToken": f"Bearer {token}"}
        )
        configuration.client_session_kwargs = {"trust_env": False}
        return KubeClient(HttpServer(configuration), **{"timeout_seconds": 5, **options})


def status_object(code: int, reason: str, details: Any = None) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "secret text of the remote",
        "reason": reason,
        "details": details,
        "code": code,
    }


@pytest_asyncio.fixture
async def server(authority: CertificateAuthority, tmp_path: Path) -> AsyncIterator[FakeServer]:
    pair = authority.issue_server(["127.0.0.1", "api.test"])
    async with serve(authority, server_tls(pair, tmp_path)) as fake:
        yield fake


@asynccontextmanager
async def serve(authority: CertificateAuthority, tls: ssl.SSLContext) -> AsyncIterator[FakeServer]:
    fake = FakeServer(url="", ca_pem=authority.pem.decode())
    application = web.Application(client_max_size=32 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    fake.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


@pytest_asyncio.fixture
async def client(server: FakeServer) -> AsyncIterator[KubeClient]:
    async with server.client() as client:
        yield client
