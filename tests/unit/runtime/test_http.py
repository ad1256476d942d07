"""Probes and metrics: on a port that never moves, and again on one that moves and stays where another is taken."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from fipop.errors import StartError
from fipop.runtime.http import ProbeServer
from localfleet.waiting import eventually
from tests.harness.background import until


class Served:
    """A server whose second port and health a test changes."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        Gauge("fipop_test", "A number.", registry=registry).set(1)
        self.problems: dict[str, str] = {}
        self.server = ProbeServer(lambda: self.problems, registry, host="127.0.0.1", port=0)
        self.wanted = free_port()
        self.asked = 0
        """How often the server asked for the port."""
        self.complaints: list[str] = []
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve on both ports."""
        await self.server.start()
        self._serving = asyncio.create_task(self.server.serve_again(self._want, self.complaints.append))

    def _want(self) -> int:
        self.asked += 1
        return self.wanted

    async def stop(self) -> None:
        """Have nothing served."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
        await self.server.stop()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.start()
    yield served
    await served.stop()


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


async def is_served(port: int) -> None:
    """Wait until the metrics are served on a port."""

    async def answers() -> bool:
        return (await ask(port))[0] == 200

    await eventually(answers, what=f"the metrics on port {port}")


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


async def test_the_second_port_serves_the_same_and_moves_while_the_first_one_stays(served: Served) -> None:
    old, new = served.wanted, free_port()
    await is_served(old)
    assert (await ask(old, "/readyz"))[0] == 200

    served.wanted = new
    await is_served(new)

    assert [(await ask(port))[0] for port in (old, served.server.port)] == [0, 200]


async def test_a_port_that_is_taken_is_reported_once_and_tried_until_it_is_free_and_the_old_one_stays(
    served: Served,
) -> None:
    old = served.wanted
    await is_served(old)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = served.wanted = other.getsockname()[1]
        asked = served.asked
        await until(lambda: served.asked > asked + 2, "the port to be tried again")
        assert served.complaints == [f"Could not listen on metrics port {taken}: Address already in use."]
        assert (await ask(old))[0] == 200
    await is_served(taken)
    assert len(served.complaints) == 1


async def test_a_health_port_that_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = ProbeServer(dict, CollectorRegistry(), host="127.0.0.1", port=other.getsockname()[1])
        with pytest.raises(StartError, match="Address already in use"):
            await server.start()


async def test_after_the_stop_nothing_listens(served: Served) -> None:
    port = served.server.port
    await is_served(served.wanted)

    await served.stop()

    assert [(await ask(each))[0] for each in (port, served.wanted)] == [0, 0]
