"""Watches: what they yield, and how they end."""

import asyncio
import json
from contextlib import aclosing

import pytest
from aiohttp import web

from fipop.errors import (
    ApiAnswerError,
    ApiGoneError,
    ApiUnreachableError,
)
from fipop.kube.resources import CONFIG_MAPS
from tests.unit.kube.servers import CONFIG_MAP, streaming

from .conftest import status_object


def line(kind: str, item: object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


async def test_a_watch_yields_events_until_the_server_ends_it(server, client):
    whole = line("ADDED", CONFIG_MAP) + line("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    server.answer = streaming(whole[:20], whole[20:], line("DELETED", CONFIG_MAP))
    events = [event async for event in client.watch(CONFIG_MAPS, namespace="a", resource_version=7)]
    assert [event.type for event in events] == ["ADDED", "BOOKMARK", "DELETED"]
    assert events[0].object == CONFIG_MAP
    query = server.requests[0].query
    assert (query["watch"], query["resourceVersion"], query["timeoutSeconds"]) == ("1", "7", "60")


async def test_a_watch_that_is_too_old_is_gone_whichever_way_it_is_told(server, client):
    server.answer = streaming(line("ERROR", status_object(410, "Expired")))
    with pytest.raises(ApiGoneError):
        [event async for event in client.watch(CONFIG_MAPS, resource_version=1)]
    server.refuses(410, "Expired")
    with pytest.raises(ApiGoneError):
        [event async for event in client.watch(CONFIG_MAPS, resource_version=1)]


async def test_an_event_is_delivered_while_the_stream_stays_open(server, client):
    server.answer = streaming(line("ADDED", CONFIG_MAP), hold=True)
    async with aclosing(client.watch(CONFIG_MAPS)) as events:
        async with asyncio.timeout(20):  # the answer ends after 30 s
            event = await anext(events)
    assert event.type == "ADDED"


async def test_a_silent_watch_is_unreachable_after_its_time(server, client, monkeypatch):
    monkeypatch.setattr("fipop.kube.reader.WATCH_GRACE_SECONDS", 0.2)
    server.answer = streaming(hold=True)
    with pytest.raises(ApiUnreachableError) as caught:
        [event async for event in client.watch(CONFIG_MAPS, timeout_seconds=0)]
    assert caught.value.reason == "Timeout"


async def test_a_watch_that_is_cut_is_unreachable(server, client):
    is_read = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(line("ADDED", CONFIG_MAP))
        await is_read.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = answer
    async with aclosing(client.watch(CONFIG_MAPS)) as events:
        assert (await anext(events)).type == "ADDED"
        is_read.set()
        with pytest.raises(ApiUnreachableError) as caught:
            await anext(events)
        assert caught.value.reason == "ConnectionCut"


@pytest.mark.parametrize(
    "junk", [b"no json\n", b"[]\n", b'{"type":"ADDED"}\n', b'{"type":"ADDED","object":{}}\n']
)
async def test_a_watch_of_another_shape_is_an_answer_error(server, client, junk):
    server.answer = streaming(junk)
    with pytest.raises(ApiAnswerError):
        [event async for event in client.watch(CONFIG_MAPS)]
