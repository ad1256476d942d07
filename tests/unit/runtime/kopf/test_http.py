"""What counts as a sign of life of a watch, and what is let through to it, against a server that misbehaves."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from fipop.errors import KubeAccessError
from fipop.jsons import JsonView
from fipop.kube.connection import Connection
from fipop.kube.resources import FLOATING_IPS, NAMESPACES, Resource
from fipop.runtime.kopf.bridge import EventType
from fipop.runtime.kopf.http import RefusedError, StreamSessions
from fipop.runtime.kopf.liveness import Liveness
from tests.unit.runtime.conftest import Serve

EVENT = b'{"type":"BOOKMARK","object":{}}\n'


@dataclass
class Bench:
    """A server that answers as told, a session that is heard, and a clock that is moved by hand."""

    url: str = ""
    ca_pem: str = ""
    now: float = 1000.0
    recoveries: int = 0
    requests: list[web.Request] = field(default_factory=list)
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    tokens: list[str] = field(default_factory=lambda: ["t0ken"])

    def open(self, *, prefix: str = "") -> aiohttp.ClientSession:
        self.signs = Liveness([NAMESPACES, FLOATING_IPS], clock=lambda: self.now, on_recovery=self.recover)
        connection = Connection(server=self.url + prefix, ca_pem=self.ca_pem, token_source=self.next_token)
        self.delivered: list[tuple[Resource, EventType, JsonView]] = []
        self.sessions = StreamSessions(
            connection,
            [NAMESPACES, FLOATING_IPS],
            self.signs,
            deliver=lambda *event: self.delivered.append(event),
        )
        return self.sessions.open()

    def recover(self) -> None:
        self.recoveries += 1

    def next_token(self) -> str:
        return self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        assert self.answer is not None
        return await self.answer(request)

    def says(self, status: int = 200, **options: object) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=b"{}", content_type="application/json", **options)  # type: ignore[arg-type]

        self.answer = answer

    def streams(self, *parts: bytes | asyncio.Event, cut: bool = False) -> None:
        """Send bytes, wait for events, then end cleanly or by a cut."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for part in parts:
                if isinstance(part, bytes):
                    await response.write(part)
                else:
                    await part.wait()
            if cut and request.transport is not None:
                request.transport.abort()
            return response

        self.answer = answer

    def silence(self) -> float:
        return self.signs.silences()[NAMESPACES]

    def idle(self) -> tuple[float, float]:
        idle = self.sessions.idle_seconds()
        return idle[NAMESPACES], idle[FLOATING_IPS]


@pytest_asyncio.fixture
async def bench(serve: Serve) -> Bench:
    bench = Bench()
    bench.url, bench.ca_pem = await serve(bench.handle)
    return bench


WATCH = "/api/v1/namespaces?watch=true"
LIST = "/api/v1/namespaces?limit=500"


class TestSignsOfLife:
    async def test_a_list_that_was_read_to_its_end(self, bench: Bench) -> None:
        bench.says()
        async with bench.open() as session:
            bench.now += 50
            async with session.get(bench.url + LIST) as response:
                await response.json()
        assert bench.silence() == 0
        assert bench.signs.silences()[FLOATING_IPS] == 50

    async def test_no_list_that_was_cut(self, bench: Bench) -> None:
        bench.streams(b"{", cut=True)
        async with bench.open() as session:
            bench.now += 50
            async with session.get(bench.url + LIST) as response:
                with pytest.raises(aiohttp.ClientError):
                    await response.json()
        assert bench.silence() == 50

    async def test_bytes_of_a_watch(self, bench: Bench) -> None:
        go_on = asyncio.Event()
        bench.streams(go_on, EVENT, asyncio.Event())
        async with bench.open() as session, session.get(bench.url + WATCH) as response:
            bench.now += 50
            go_on.set()
            chunk = await anext(response.content.iter_chunked(1024))
            assert chunk == EVENT
            assert bench.silence() == 0
            bench.now += 7
            assert bench.silence() == 7

    async def test_the_end_of_a_watch_by_the_server_s_will(self, bench: Bench) -> None:
        end = asyncio.Event()
        bench.streams(end)
        async with bench.open() as session, session.get(bench.url + WATCH) as response:
            bench.now += 60
            end.set()
            assert [chunk async for chunk in response.content.iter_chunked(1024)] == []
        assert bench.silence() == 0

    async def test_no_open_watch_that_is_frozen_however_often_it_is_opened_again(self, bench: Bench) -> None:
        bench.streams(asyncio.Event())
        async with bench.open() as session:
            for _ in range(2):
                bench.now += 75
                timeout = aiohttp.ClientTimeout(total=0.7)
                async with session.get(bench.url + WATCH, timeout=timeout) as response:
                    with pytest.raises(TimeoutError):
                        await anext(response.content.iter_chunked(1024))
        assert len(bench.requests) == 2
        assert bench.silence() == 150

    @pytest.mark.parametrize(("seconds", "silence"), [(0.0, 50.0), (9.0, 59.0), (55.0, 0.0)])
    async def test_a_cut_only_after_the_stream_has_proven_itself(
        self, bench: Bench, seconds: float, silence: float
    ) -> None:
        cut = asyncio.Event()
        bench.streams(cut, cut=True)
        async with bench.open() as session:
            bench.now += 50
            async with session.get(bench.url + WATCH) as response:
                chunks = response.content.iter_chunked(1024)
                bench.now += seconds
                cut.set()
                with pytest.raises(aiohttp.ClientError):
                    await anext(chunks)
        assert bench.silence() == silence

    async def test_no_failure(self, bench: Bench) -> None:
        bench.says(500)
        async with bench.open() as session:
            bench.now += 50
            with pytest.raises(RefusedError):
                await session.get(bench.url + WATCH)
        assert bench.silence() == 50

    async def test_streams_below_a_path_prefix_are_known_too(self, bench: Bench) -> None:
        bench.says()
        async with bench.open(prefix="/k8s/clusters/c-m-x") as session:
            bench.now += 50
            async with session.get(bench.url + "/k8s/clusters/c-m-x" + LIST) as response:
                await response.read()
        assert bench.silence() == 0

    async def test_forgiving_starts_all_silences_anew(self, bench: Bench) -> None:
        async with bench.open():
            bench.now += 50
            bench.signs.forgive()
        assert set(bench.signs.silences().values()) == {0.0}


class TestIdleness:
    async def test_it_counts_from_the_start(self, bench: Bench) -> None:
        async with bench.open():
            bench.now += 50
            assert bench.idle() == (50, 50)

    @pytest.mark.parametrize("path", [LIST, WATCH])
    async def test_who_waits_for_an_answer_is_not_idle(self, bench: Bench, path: str) -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def hold(_: web.Request) -> web.StreamResponse:
            asked.set()
            await answer.wait()
            return web.Response(body=b"{}")

        bench.answer = hold
        async with bench.open() as session:
            getting = asyncio.create_task(session.get(bench.url + path))
            await asked.wait()
            bench.now += 50
            assert bench.idle() == (0, 50)
            answer.set()
            await (await getting).read()
            bench.now += 7
            assert bench.idle() == (7, 57)

    async def test_who_gives_up_waiting_is_idle(self, bench: Bench) -> None:
        async def hold(_: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        bench.answer = hold
        async with bench.open() as session:
            with pytest.raises(TimeoutError):
                await session.get(bench.url + LIST, timeout=aiohttp.ClientTimeout(total=0.2))
            bench.now += 7
            assert bench.idle() == (7, 7)

    @pytest.mark.parametrize("path", [LIST, WATCH])
    async def test_who_reads_an_answer_is_not_idle_until_it_ends(self, bench: Bench, path: str) -> None:
        end = asyncio.Event()
        bench.streams(EVENT, end)
        async with bench.open() as session, session.get(bench.url + path) as response:
            bench.now += 50
            assert bench.idle() == (0, 50)
            end.set()
            await response.content.read()
            bench.now += 7
            assert bench.idle() == (7, 57)

    async def test_who_closed_a_watch_half_way_is_idle(self, bench: Bench) -> None:
        bench.streams(EVENT, asyncio.Event())
        async with bench.open() as session:
            async with session.get(bench.url + WATCH) as response:
                await anext(response.content.iter_chunked(1024))
                assert bench.idle() == (0, 0)
            bench.now += 7
            assert bench.idle() == (7, 7)

    async def test_refused_requests_count_too(self, bench: Bench) -> None:
        bench.says(503)
        async with bench.open() as session:
            bench.now += 50
            with pytest.raises(RefusedError):
                await session.get(bench.url + LIST)
            bench.now += 7
            assert bench.idle() == (7, 57)

    async def test_who_asks_what_is_served_is_idle_for_nothing(self, bench: Bench) -> None:
        bench.says()
        async with bench.open() as session:
            bench.now += 50
            await (await session.get(bench.url + "/apis")).read()
            bench.now += 7
            assert bench.idle() == (7, 7)


class TestTransitions:
    async def test_failing_and_working_again_are_said_once_each(
        self, bench: Bench, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        async with bench.open() as session:
            bench.says(503)
            for _ in range(3):
                with pytest.raises(RefusedError):
                    await session.get(bench.url + LIST)
            bench.now += 90
            bench.says()
            for _ in range(3):
                await (await session.get(bench.url + LIST)).read()

        fails, works = caplog.records
        assert (fails.levelname, works.levelname) == ("WARNING", "INFO")
        assert "503" in vars(fails)["why"]
        assert vars(works)["after_seconds"] == 90.0
        assert bench.recoveries == 1

    async def test_a_hiccup_is_no_recovery(self, bench: Bench) -> None:
        async with bench.open() as session:
            bench.says(503)
            with pytest.raises(RefusedError):
                await session.get(bench.url + LIST)
            bench.now += 1
            bench.says()
            await (await session.get(bench.url + LIST)).read()
        assert bench.recoveries == 0


class TestWhatIsLetThrough:
    @pytest.mark.parametrize("status", [400, 401, 403, 409, 429, 500, 503])
    async def test_what_may_be_over_soon_is_an_error_that_is_retried_and_quotes_nothing(
        self, bench: Bench, status: int
    ) -> None:
        bench.says(status)
        async with bench.open() as session:
            with pytest.raises(RefusedError) as caught:
                await session.get(bench.url + LIST)
        assert "{" not in str(caught.value), "nothing of the answer is quoted"
        assert str(status) in str(caught.value)

    @pytest.mark.parametrize("status", [404, 410])
    async def test_what_ends_a_watch_comes_through(self, bench: Bench, status: int) -> None:
        bench.says(status)
        async with bench.open() as session, session.get(bench.url + LIST) as response:
            assert response.status == status

    async def test_redirects_are_not_followed(self, bench: Bench) -> None:
        bench.says(302, headers={"Location": "https://elsewhere.test/"})
        async with bench.open() as session:
            with pytest.raises(RefusedError, match="302"):
                await session.get(bench.url + LIST)
        assert len(bench.requests) == 1

    async def test_the_token_goes_to_no_other_server(self, bench: Bench) -> None:
        async with bench.open() as session:
            with pytest.raises(RefusedError):
                await session.get(bench.url.replace("127.0.0.1", "localhost") + LIST)
        assert bench.requests == []

    async def test_each_request_has_the_token_of_its_moment(self, bench: Bench) -> None:
        bench.says()
        bench.tokens = ["first", "second"]
        async with bench.open() as session:
            for _ in range(2):
                await (await session.get(bench.url + LIST)).read()
        assert [request.headers["Authorization"] for request in bench.requests] == [
            "Bearer first",
            "Bearer second",
        ]

    async def test_a_token_that_cannot_be_read_is_tried_again_later(self, bench: Bench) -> None:
        def unreadable() -> str:
            raise KubeAccessError(server=bench.url, problem="the token is missing")

        bench.next_token = unreadable  # type: ignore[method-assign]
        async with bench.open() as session:
            with pytest.raises(RefusedError):
                await session.get(bench.url + LIST)

    async def test_openings_of_one_watch_are_spaced_and_lists_are_not(self, bench: Bench) -> None:
        bench.says()
        loop = asyncio.get_running_loop()
        times = []
        async with bench.open() as session:
            for path in (WATCH, WATCH, LIST, LIST):
                await (await session.get(bench.url + path)).read()
                times.append(loop.time())
        assert times[1] - times[0] >= 0.4
        assert times[3] - times[1] < 0.4
