"""The port of the metrics: it moves, stays where another is taken, and keeps nobody waiting."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from fipop.metrics.samples import GuestEvent
from fipop.metrics.server import MetricsPage, MetricsServer
from tests.harness.background import until
from tests.harness.steps import count_steps
from tests.unit.metrics.samples import FLEET, Fleet, another_guest


class Served:
    """A server of metrics whose wanted port a test changes."""

    def __init__(self, page: MetricsPage) -> None:
        self.server = MetricsServer(page, host="127.0.0.1")
        self.wanted = free_port()
        self.asked = 0
        """How often the server asked for the port."""
        self.complaints: list[str] = []
        self._serving = asyncio.create_task(self.server.serve(self._want, self.complaints.append))

    def _want(self) -> int:
        self.asked += 1
        return self.wanted

    async def move(self, port: int) -> None:
        """Have the server serve on a port."""
        self.wanted = port
        await until(lambda: self.server.port == port, f"port {port} to be served")

    async def stop(self) -> None:
        """Have nothing served."""
        self._serving.cancel()
        await asyncio.wait({self._serving})


@asynccontextmanager
async def serve(prepare: Callable[[], Callable[[], bytes]]) -> AsyncIterator[Served]:
    served = Served(MetricsPage(prepare))
    try:
        await served.move(served.wanted)
        yield served
    finally:
        await served.stop()


@pytest.fixture
async def served(fleet: Fleet) -> AsyncIterator[Served]:
    async with serve(fleet.metrics.prepare) as served:
        yield served


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/metrics"


async def test_a_scrape_is_answered_in_the_text_format_whatever_it_asks_for(
    served: Served, client: aiohttp.ClientSession
) -> None:
    for accept in ("application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0", "*/*"):
        async with client.get(url(served.wanted), headers={"Accept": accept}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "kubefipoperator_guestcluster_status{" in await answer.text()
    async with client.get(f"http://127.0.0.1:{served.wanted}/other") as answer:
        assert answer.status == 404


async def test_the_port_moves_and_the_old_one_is_given_up(
    served: Served, client: aiohttp.ClientSession
) -> None:
    old, new = served.wanted, free_port()
    async with client.get(url(old)) as answer:
        await answer.read()

    await served.move(new)

    async with client.get(url(new)) as answer:
        assert answer.status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(old))


async def test_a_port_that_is_taken_is_told_once_and_tried_until_it_is_free_and_the_old_one_stays(
    served: Served, client: aiohttp.ClientSession
) -> None:
    old = served.wanted
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = served.wanted = other.getsockname()[1]
        asked = served.asked
        await until(lambda: served.asked > asked + 2, "the port to be tried again")
        assert served.complaints == [f"Could not listen on metrics port {taken}: Address already in use."]
        assert served.server.port == old
        async with client.get(url(old)) as answer:
            assert answer.status == 200
    await until(lambda: served.server.port == taken, "the port to be free")
    assert len(served.complaints) == 1


async def test_another_port_that_is_wanted_meanwhile_is_gone_to_instead(
    fleet: Fleet, client: aiohttp.ClientSession
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        served = Served(MetricsPage(fleet.metrics.prepare))
        try:
            served.wanted = other.getsockname()[1]
            await until(lambda: bool(served.complaints), "the port to be tried")
            assert served.server.port is None
            await served.move(free_port())
            async with client.get(url(served.wanted)) as answer:
                assert answer.status == 200
        finally:
            await served.stop()


async def test_after_the_stop_nothing_listens(served: Served, client: aiohttp.ClientSession) -> None:
    await served.stop()

    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(served.wanted))


async def test_a_scrape_of_thousands_of_guests_costs_the_loop_milliseconds() -> None:
    """Rendering takes a second. If the loop did it, no pass, no probe and no renewal of the lease would happen."""
    fleet = Fleet()
    guests = [another_guest(f"c-m-{n:08}", cluster_name=f"cluster-{n}") for n in range(2000)]
    fleet.snapshot = replace(FLEET, guests=tuple(guests))
    for guest in guests:
        for event in GuestEvent:
            for success in (True, False):
                fleet.metrics.count_guest_event(guest.guest.cluster_name, "harv1", event, success=success)
    steps, threads = 0, set()

    def prepare() -> Callable[[], bytes]:
        nonlocal steps
        render = fleet.metrics.prepare()
        steps = count_steps(fleet.metrics.prepare)

        def render_here() -> bytes:
            threads.add(threading.get_ident())
            return render()

        return render_here

    async with (
        serve(prepare) as served,
        aiohttp.ClientSession() as session,
        session.get(url(served.wanted)) as response,
    ):
        assert len(await response.read()) > 500_000
    assert steps < 5 * len(guests), (
        "the loop takes a snapshot: rendering takes a thousand steps for each guest"
    )
    assert threads
    assert threading.get_ident() not in threads


async def test_scrapes_at_once_are_rendered_once() -> None:
    rendered, may_end = 0, threading.Event()

    def prepare() -> Callable[[], bytes]:
        nonlocal rendered
        rendered += 1

        def render() -> bytes:
            assert may_end.wait(60)
            return b"# nothing\n"

        return render

    sent = 0

    async def note_sent(*_: object) -> None:
        nonlocal sent
        sent += 1

    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(note_sent)
    async with serve(prepare) as served, aiohttp.ClientSession(trace_configs=[tracing]) as session:
        port = served.wanted

        async def scrape() -> bytes:
            async with session.get(url(port)) as response:
                return await response.read()

        scrapes = asyncio.gather(*(scrape() for _ in range(20)))
        await until(lambda: sent == 20, "all scrapes to be sent")
        async with session.get(f"http://127.0.0.1:{port}/other") as later:
            assert later.status == 404  # the server has read the scrapes, which came before
        may_end.set()
        assert set(await scrapes) == {b"# nothing\n"}
    assert rendered == 1
