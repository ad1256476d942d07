"""What counts as a sign of life of a watch, and when it is worth while to list again; in virtual time."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from multidict import CIMultiDict
from yarl import URL

from fipop.kube.resources import FLOATING_IPS, NAMESPACES
from fipop.runtime.kopf.watch_signs import WatchSigns
from tests.harness.virtual_time import in_virtual_time

HEADERS: CIMultiDict[str] = CIMultiDict()
SERVER = "https://api.test/k8s/clusters/c-m-x"
WATCH = "watch=true&timeoutSeconds=60"


@dataclass
class Answer:
    """What signs see of an answer."""

    status: int

    @property
    def ok(self) -> bool:
        return self.status < 400


@dataclass
class Requests:
    """kopf's requests for namespaces, as aiohttp tells of them."""

    gaps: int = 0
    context: Any = field(default_factory=object)

    def __post_init__(self) -> None:
        self.signs = WatchSigns([NAMESPACES, FLOATING_IPS], SERVER, 67.5, self.miss)
        self.signs.trace.freeze()

    def miss(self) -> None:
        self.gaps += 1

    async def start(self, query: str = WATCH) -> URL:
        url = URL(f"{SERVER}/api/v1/namespaces?{query}")
        told = aiohttp.TraceRequestStartParams("GET", url, HEADERS)
        await self.signs.trace.on_request_start.send(None, self.context, told)
        return url

    async def answer(self, url: URL, status: int = 200) -> None:
        response: Any = Answer(status)
        told = aiohttp.TraceRequestEndParams("GET", url, HEADERS, response)
        await self.signs.trace.on_request_end.send(None, self.context, told)

    async def read(self, url: URL) -> None:
        told = aiohttp.TraceResponseChunkReceivedParams("GET", url, b"{}")
        await self.signs.trace.on_response_chunk_received.send(None, self.context, told)

    async def fail(self, url: URL, error: BaseException) -> None:
        told = aiohttp.TraceRequestExceptionParams("GET", url, HEADERS, error)
        await self.signs.trace.on_request_exception.send(None, self.context, told)

    async def watch(self) -> None:
        """Open a watch."""
        await self.answer(await self.start())

    async def list(self) -> None:
        url = await self.start("limit=500")
        await self.answer(url)
        await self.read(url)

    @property
    def silence(self) -> float:
        return round(self.signs.silences()["namespaces"], 3)


@in_virtual_time
async def test_each_watch_is_silent_for_itself_from_the_start_on() -> None:
    requests = Requests()
    await asyncio.sleep(50)
    await requests.list()
    await asyncio.sleep(7)
    assert requests.signs.silences() == {"namespaces": 7, "floatingips.kubefip.k8s.binbash.org": 57}


@in_virtual_time
async def test_a_list_counts_once_it_was_read_to_its_end() -> None:
    requests = Requests()
    await asyncio.sleep(50)
    url = await requests.start("limit=500")
    await requests.answer(url)
    assert requests.silence == 50, "it may be cut"
    await requests.read(url)
    assert requests.silence == 0


@in_virtual_time
async def test_a_list_that_is_cut_again_and_again_counts_for_nothing() -> None:
    requests = Requests()
    for _ in range(3):
        await requests.answer(await requests.start("limit=500"))
        await asyncio.sleep(20)
    await requests.start("limit=500")
    assert requests.silence == 60


@in_virtual_time
async def test_an_answer_that_refuses_is_no_list() -> None:
    requests = Requests()
    await asyncio.sleep(50)
    for query in ("limit=500", WATCH):
        url = await requests.start(query)
        await requests.answer(url, 503)
        await requests.read(url)
    assert requests.silence == 50


@in_virtual_time
@pytest.mark.parametrize(
    ("lived", "silence"),
    [
        pytest.param(0.5, 51.5, id="cut at once"),
        pytest.param(5.0, 0, id="cut by a proxy"),
        pytest.param(60.0, 0, id="ended by the server"),
        pytest.param(62.5, 0, id="ended by a slow server"),
        pytest.param(75.0, 125, id="given up by kopf: frozen or mute"),
    ],
)
async def test_a_watch_counts_when_the_next_one_begins_by_how_long_it_lived(
    lived: float, silence: float
) -> None:
    requests = Requests()
    await asyncio.sleep(50)
    await requests.watch()
    await asyncio.sleep(lived)
    assert requests.silence == 50 + lived
    await requests.start()
    assert requests.silence == silence


@in_virtual_time
async def test_a_mute_watch_stays_silent_however_often_it_is_opened_again() -> None:
    requests = Requests()
    for _ in range(3):
        await requests.watch()
        await asyncio.sleep(75)
    assert requests.silence == 225


@in_virtual_time
async def test_a_watch_that_is_not_answered_or_refused_counts_for_nothing() -> None:
    requests = Requests()
    for error in (TimeoutError(), aiohttp.ClientConnectionError()):
        url = await requests.start()
        await asyncio.sleep(30)
        await requests.fail(url, error)
    assert requests.silence == 60
    url = await requests.start()
    await requests.answer(url, 500)
    await asyncio.sleep(10)
    await requests.watch()
    assert requests.silence == 70


@in_virtual_time
async def test_an_event_counts() -> None:
    requests = Requests()
    await asyncio.sleep(50)
    requests.signs.show(NAMESPACES)
    assert requests.silence == 0


@in_virtual_time
async def test_a_server_that_ends_each_watch_at_once_is_asked_again_after_a_pause() -> None:
    requests, clock = Requests(), asyncio.get_running_loop().time
    await requests.list()
    began = clock()
    await requests.watch()
    assert clock() == began, "the first watch follows its list at once"
    for _ in range(5):
        await requests.watch()
    assert clock() - began >= 5


@in_virtual_time
async def test_what_a_gap_may_hide_is_asked_for_after_each_list_and_each_failure() -> None:
    requests = Requests()
    await requests.list()
    assert requests.gaps == 1
    await requests.watch()
    await asyncio.sleep(60)
    await requests.watch()
    assert requests.gaps == 1, "the server ends each watch"
    for _ in range(3):
        await requests.fail(await requests.start(), aiohttp.ClientConnectionError())
        await asyncio.sleep(10)
    assert requests.gaps == 1
    await requests.watch()
    assert requests.gaps == 2


@in_virtual_time
async def test_a_stop_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    requests = Requests()
    await requests.fail(await requests.start(), asyncio.CancelledError())
    await requests.watch()
    assert requests.gaps == 0
    assert caplog.records == []


@in_virtual_time
async def test_failing_and_working_again_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    requests = Requests()
    for _ in range(3):
        await requests.answer(await requests.start(), 503)
    for _ in range(3):
        await asyncio.sleep(60)
        await requests.watch()
    fails, works = caplog.records
    assert (fails.levelname, works.levelname) == ("WARNING", "INFO")
    assert vars(fails)["why"] == "HTTP 503"
    assert vars(works)["resource"] == "namespaces"


@in_virtual_time
async def test_requests_for_anything_else_are_nobodys() -> None:
    requests = Requests()
    url = URL(f"{SERVER}/apis")
    await requests.answer(url, 503)
    await requests.fail(url, TimeoutError())
    await requests.read(url)
    assert requests.gaps == 0
    assert requests.signs.asked == set()
