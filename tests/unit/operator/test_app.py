"""What the program tells of itself, without an API server; and how it ends by itself, over one that answers little."""

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from fipop.errors import StartError
from fipop.helm.process import HelmProgram, LocalHelm
from fipop.interfaces import SystemClock
from fipop.kube.guests import GuestServers
from fipop.kube.server import HttpServer
from fipop.operator.app import Operator, OperatorOptions, build_operator
from fipop.runtime import process
from fipop.runtime.http import ProbeServer
from fipop.runtime.watching import build_settings, watch
from localfleet.certificates import CertificateAuthority, build_authority
from localfleet.waiting import eventually
from tests.harness.reaching import configure
from tests.unit.kube.conftest import FakeServer, serve, server_tls


def build(configuration: Configuration, **options: Any) -> Operator:
    return build_operator(
        OperatorOptions(identity="me", version="0", health_host="127.0.0.1", health_port=0, **options),
        api=lambda: HttpServer(configuration),
        guests=GuestServers(),
        watch=partial(watch, configuration, settings=build_settings(SystemRandom()), started=lambda: None),
        helm=LocalHelm(HelmProgram(path="helm"), GuestServers()),
        clock=SystemClock(),
        random=SystemRandom(),
    )


async def test_what_a_killed_process_left_goes_at_the_start_and_not_with_the_first_helm(
    tmp_path: Path,
) -> None:
    """A standby may run no helm for weeks; a guest's kubeconfig lay on its disk all the while."""
    left = tmp_path / "fipop-1"
    (left / "helm-1").mkdir(parents=True)
    operator = build(configure(), work_folder=left)
    running = asyncio.create_task(operator.run())

    async def is_gone() -> bool:
        return not (left / "helm-1").exists()

    try:
        await eventually(is_gone, seconds=5, what="what was left to be gone")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert not left.exists()


KNOWN = ("kube-fip-config", "floatingipreservations.kubefip.k8s.binbash.org")


@dataclass
class Rotating:
    """An API server that has settings and no more, and the file of its certificate authority."""

    server: FakeServer
    tls: ssl.SSLContext
    folder: Path
    working: asyncio.Event
    reads: int = 0

    def use(self, authority: CertificateAuthority) -> None:
        """Have a certificate of another authority."""
        self.folder.joinpath("new").mkdir(exist_ok=True)
        server_tls(authority.issue_server(["127.0.0.1"]), self.folder / "new")
        self.tls.load_cert_chain(self.folder / "new" / "server.pem")

    @property
    def ca_path(self) -> Path:
        return self.folder / "ca.crt"

    def build_operator(self) -> Operator:
        configuration = configure(self.server.url)
        configuration.ssl_ca_cert = str(self.ca_path)
        return build(configuration)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        # No connection is used twice, as after a restart of the server.
        headers = {"Connection": "close"}
        metadata = {"name": request.path.rpartition("/")[2], "uid": "u", "resourceVersion": "1"}
        # The settings are loaded once at the start, and read again and again once the operator works.
        self.reads += metadata["name"] == "kube-fip-config"
        if self.reads > 1:
            self.working.set()
        if metadata["name"] in KNOWN:
            return web.json_response({"metadata": metadata}, headers=headers)
        return web.Response(status=503, headers=headers)


@pytest_asyncio.fixture
async def rotating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rotating]:
    async def serve_nothing(*_: object) -> str:
        return ""

    monkeypatch.setattr(ProbeServer, "serve_on", serve_nothing)
    monkeypatch.setattr(process, "HEALTH_READ_SECONDS", 0.1)
    monkeypatch.setattr(process, "START_RETRY_SECONDS", 0.1)
    first = new_authority()
    tls = server_tls(first.issue_server(["127.0.0.1"]), tmp_path)
    (tmp_path / "ca.crt").write_bytes(first.pem)
    async with serve(first, tls) as server:
        made = Rotating(server=server, tls=tls, folder=tmp_path, working=asyncio.Event())
        server.answer = made.answer
        yield made


def new_authority() -> CertificateAuthority:
    return build_authority("tests", dt.datetime.now(dt.UTC))


async def test_a_replaced_authority_of_the_api_server_ends_a_process_at_work(
    rotating: Rotating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read once: after a rotation of the cluster's CA the process waited, live, for ever."""
    operator = rotating.build_operator()
    checked: asyncio.Queue[None] = asyncio.Queue()
    check_authority = HttpServer.check_authority

    def check(server: HttpServer) -> None:
        checked.put_nowait(None)
        check_authority(server)

    monkeypatch.setattr(HttpServer, "check_authority", check)
    running = asyncio.create_task(operator.run())
    async with asyncio.timeout(10):
        await rotating.working.wait()
        second = new_authority()
        rotating.use(second)
        # The file follows the server by a while: until then there is nothing that a fresh start would know better.
        for _ in range(3):
            await checked.get()
        assert not running.done()
        rotating.ca_path.write_bytes(second.pem)
        with pytest.raises(StartError):
            await running


async def test_an_authority_that_is_replaced_beside_a_server_that_answers_ends_nothing(
    rotating: Rotating,
) -> None:
    operator = rotating.build_operator()
    rotating.ca_path.write_bytes(new_authority().pem)
    running = asyncio.create_task(operator.run())
    async with asyncio.timeout(10):
        await rotating.working.wait()
        rotating.working.clear()
        await rotating.working.wait()
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_replaced_authority_ends_a_process_that_starts(rotating: Rotating) -> None:
    operator = rotating.build_operator()
    second = new_authority()
    rotating.use(second)
    rotating.ca_path.write_bytes(second.pem)
    async with asyncio.timeout(10):
        with pytest.raises(StartError):
            await operator.run()
