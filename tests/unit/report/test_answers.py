"""Whether addresses answer: real connections on the loopback interface, and what is said of them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from fipop.api.service import parse_service
from fipop.report.answers import probe_addresses
from fipop.report.findings import Severity
from fipop.report.guests import GuestReport, GuestService
from fipop.report.snapshot import Snapshot
from tests.harness.objects import build_floating_ip
from tests.unit.report.snapshots import build_cluster, snapshot

GUEST, X = "c-m-1", "127.0.0.2"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Serve a port of X."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), X, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Have a port of X whose queue of connections is full: Linux answers no further one."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server((X, 0), backlog=0))
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def seen(address: str, *, announced: str = "") -> Snapshot:
    condition = {"type": "Announced", "status": announced, "reason": "Any", "message": "As it is."}
    status = {"addresses": [address], "conditions": [condition] if announced else []}
    floating_ip = build_floating_ip("web", namespace=GUEST, status=status)
    return snapshot(floating_ips=[floating_ip], clusters=[build_cluster("demo", GUEST)])


def used(address: str, *ports: int) -> GuestReport:
    services = (GuestService(name="shop/web", addresses=(address,), ports=ports),)
    return GuestReport(guest=GUEST, services=services)


@pytest.mark.parametrize(
    ("announced", "severity", "reason"),
    [
        ("True", Severity.OK, "Answers"),
        ("Unknown", Severity.OK, "Answers"),
        ("", Severity.OK, "Answers"),
        ("False", Severity.WARNING, "AnswersUnannounced"),
    ],
)
async def test_an_address_that_answers(port: int, announced: str, severity: Severity, reason: str) -> None:
    (found,) = await probe_addresses(seen(X, announced=announced), [used(X, port)])
    assert (found.severity, found.reason) == (severity, reason)
    assert f"TCP {port} accepted" in found.message
    assert "shop/web" in found.message


async def test_a_refused_connection_is_an_answer(port: int) -> None:
    (found,) = await probe_addresses(seen(X, announced="True"), [used(X, port, 1)])
    assert (found.severity, found.reason) == (Severity.OK, "Answers")
    assert "TCP 1 refused" in found.message


@pytest.mark.parametrize(("announced", "severity"), [("True", Severity.WARNING), ("False", Severity.INFO)])
async def test_silence_proves_nothing_and_says_so(
    silent_port: int, announced: str, severity: Severity
) -> None:
    (found,) = await probe_addresses(seen(X, announced=announced), [used(X, silent_port)])
    assert (found.severity, found.reason) == (severity, "Silent")
    assert "Silence proves nothing" in found.message
    assert f"Announced is {announced}" in found.message


async def test_a_service_without_tcp_ports_has_none_to_connect_to() -> None:
    (found,) = await probe_addresses(seen(X), [used(X)])
    assert (found.severity, found.reason) == (Severity.INFO, "NoPort")


async def test_a_number_that_is_no_port_is_not_asked() -> None:
    """An API server of a guest cluster can serve any number."""
    ports = [{"port": each, "protocol": "TCP"} for each in (0, -1, 65536, 10**9)]
    made = parse_service({"metadata": {}, "spec": {"type": "LoadBalancer", "ports": ports}})
    assert {port for port, _ in made.ports} == set()


async def test_only_addresses_that_the_guest_cluster_holds_are_asked() -> None:
    """An admin of a guest cluster writes what they like into Services."""
    assert await probe_addresses(seen(X), [used("127.0.0.3", 22)]) == []
