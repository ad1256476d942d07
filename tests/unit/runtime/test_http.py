"""Probes and metrics: on the port of the probes, and again on that of the metrics if it is free."""

import json
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from fipop.errors import StartError
from fipop.runtime.http import ProbeServer


class Served:
    """A server whose health a test changes."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        Gauge("fipop_test", "A number.", registry=registry).set(1)
        self.problems: dict[str, str] = {}
        self.server = ProbeServer(lambda: self.problems, registry, host="127.0.0.1", port=0)
        self.metrics_port = free_port()

    async def start(self) -> None:
        """Serve on both ports."""
        await self.server.start()
        assert await self.server.serve_on(self.metrics_port) == ""


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.start()
    yield served
    await served.server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ask(port: int, path: str = "/metrics", accept: str = "*/*") -> tuple[int, str, str]:
    """Return status, kind and text of an answer; status 0 if nothing listens."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept}) as answer,
        ):
            return answer.status, answer.headers["Content-Type"], await answer.text()
    except aiohttp.ClientConnectionError:
        return 0, "", ""


async def test_a_scrape_is_answered_in_the_format_that_it_asks_for(served: Served) -> None:
    for accept, kind in (
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text"),
        ("*/*", "text/plain"),
    ):
        status, found, text = await ask(served.server.port, accept=accept)
        assert (status, found.startswith(kind)) == (200, True)
        assert "fipop_test 1.0" in text
    assert (await ask(served.server.port, "/other"))[0] == 404


async def test_a_server_that_answers_is_live_and_names_why_it_is_not_ready(
    served: Served,
) -> None:
    port = served.server.port
    status, kind, text = await ask(port, "/livez")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    assert json.loads(text) == {"ok": True, "problems": {}}
    assert await ask(port, "/healthz") == await ask(port, "/readyz") == (status, kind, text)
    served.problems = {"objects": "not loaded yet"}
    assert (await ask(port, "/livez"))[0] == 200
    status, _, text = await ask(port, "/readyz")
    assert (status, json.loads(text)) == (503, {"ok": False, "problems": served.problems})


async def test_the_port_of_the_metrics_serves_the_same(served: Served) -> None:
    assert (await ask(served.metrics_port))[0] == 200
    assert (await ask(served.metrics_port, "/readyz"))[0] == 200


async def test_a_metrics_port_that_is_taken_is_reported_and_the_other_one_serves(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        problem = await served.server.serve_on(taken)
    assert problem == f"Could not listen on metrics port {taken}: Address already in use."
    assert (await ask(served.server.port))[0] == 200


async def test_a_health_port_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = ProbeServer(dict, CollectorRegistry(), host="127.0.0.1", port=other.getsockname()[1])
        with pytest.raises(StartError, match="Address already in use"):
            await server.start()


async def test_after_the_stop_nothing_listens(served: Served) -> None:
    port = served.server.port

    await served.server.stop()

    assert [(await ask(each))[0] for each in (port, served.metrics_port)] == [0, 0]
