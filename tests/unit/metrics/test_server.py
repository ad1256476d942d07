"""The port of the metrics: it moves, stays where another is taken, and keeps nobody waiting."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import aiohttp
import pytest

from fipop.metrics.samples import GuestEvent
from fipop.metrics.server import MetricsPage, MetricsPortError, MetricsServer
from tests.harness.background import until
from tests.harness.steps import count_steps
from tests.unit.metrics.samples import FLEET, Fleet, another_guest


@pytest.fixture
async def server(fleet: Fleet) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(MetricsPage(fleet.metrics.prepare), host="127.0.0.1")
    yield server
    await server.stop()


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
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    port = free_port()
    await server.listen(port)

    for accept in ("application/openmetrics-text;version=1.0.0", "text/plain;version=1.0.0", "*/*"):
        async with client.get(url(port), headers={"Accept": accept}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "kubefipoperator_guestcluster_status{" in await answer.text()
    async with client.get(f"http://127.0.0.1:{port}/other") as answer:
        assert answer.status == 404


async def test_the_port_moves_and_the_old_one_is_given_up(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    old, new = free_port(), free_port()
    await server.listen(old)
    async with client.get(url(old)) as answer:
        await answer.read()

    await server.listen(new)

    assert server.port == new
    async with client.get(url(new)) as answer:
        assert answer.status == 200
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(old))


async def test_a_port_that_is_taken_is_reported_and_the_old_one_stays(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    old = free_port()
    await server.listen(old)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]

        with pytest.raises(MetricsPortError) as error:
            await server.listen(taken)

    assert error.value.port == taken
    assert server.port == old
    async with client.get(url(old)) as answer:
        assert answer.status == 200


async def test_a_first_port_that_is_taken_leaves_a_server_that_can_listen_elsewhere(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with pytest.raises(MetricsPortError):
            await server.listen(other.getsockname()[1])
        assert server.port is None

    port = free_port()
    await server.listen(port)
    async with client.get(url(port)) as answer:
        assert answer.status == 200


async def test_moves_at_the_same_time_leave_one_port_open(
    server: MetricsServer, client: aiohttp.ClientSession
) -> None:
    ports = [free_port() for _ in range(4)]

    await asyncio.gather(*(server.listen(port) for port in [*ports, ports[0], ports[0]]))

    answered = []
    for port in ports:
        try:
            async with client.get(url(port)) as answer:
                answered.append(port)
                assert answer.status == 200
        except aiohttp.ClientConnectionError:
            continue
    assert answered == [server.port]


async def test_after_the_stop_nothing_listens(server: MetricsServer, client: aiohttp.ClientSession) -> None:
    port = free_port()
    await server.listen(port)

    await server.stop()

    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get(url(port))


async def test_a_scrape_of_thousands_of_guests_costs_the_loop_milliseconds() -> None:
    """Rendering takes a second. If the loop did it, no pass, no probe and no renewal of the lease would happen."""
    fleet = Fleet()
    guests = [another_guest(id=f"c-m-{n:08}", cluster_name=f"cluster-{n}") for n in range(2000)]
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

    server = MetricsServer(MetricsPage(prepare), host="127.0.0.1")
    port = free_port()
    await server.listen(port)
    async with aiohttp.ClientSession() as session, session.get(url(port)) as response:
        assert len(await response.read()) > 500_000
    await server.stop()
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

    server = MetricsServer(MetricsPage(prepare), host="127.0.0.1")
    port = free_port()
    await server.listen(port)
    sent = 0

    async def note_sent(*_: object) -> None:
        nonlocal sent
        sent += 1

    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(note_sent)
    async with aiohttp.ClientSession(trace_configs=[tracing]) as session:

        async def scrape() -> bytes:
            async with session.get(url(port)) as response:
                return await response.read()

        scrapes = asyncio.gather(*(scrape() for _ in range(20)))
        await until(lambda: sent == 20, "all scrapes to be sent")
        async with session.get(f"http://127.0.0.1:{port}/other") as later:
            assert later.status == 404  # the server has read the scrapes, which came before
        may_end.set()
        assert set(await scrapes) == {b"# nothing\n"}
    await server.stop()
    assert rendered == 1
