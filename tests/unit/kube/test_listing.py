"""Lists: all pages, or none."""

import asyncio

import pytest
from aiohttp import web

from fipop.errors import (
    ApiAnswerError,
    ApiGoneError,
    ApiUnreachableError,
)
from fipop.kube.client import KubeClient
from fipop.kube.limits import ReadLimits
from fipop.kube.resources import NAMESPACES
from tests.unit.kube.servers import page

from .conftest import status_object


async def test_a_list_follows_all_pages_and_asks_for_them_by_token(server):
    pages = {"": page(["a", "b"], token="t&1"), "t&1": page(["c"], token="t2"), "t2": page(["d"])}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(pages[request.query.get("continue", "")])

    server.answer = answer
    async with KubeClient(server.connection(), limits=ReadLimits(page_items=2)) as client:
        listing = await client.list(NAMESPACES, label_selector="a=b", field_selector="metadata.name!=z")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c", "d"]
    assert listing.resource_version == 7
    assert {request.query["limit"] for request in server.requests} == {"2"}
    assert {request.query["labelSelector"] for request in server.requests} == {"a=b"}
    assert {request.query["fieldSelector"] for request in server.requests} == {"metadata.name!=z"}


async def test_a_list_that_breaks_on_a_later_page_is_no_list(server, client):
    async def answer(request: web.Request) -> web.Response:
        if "continue" in request.query:
            return web.json_response(status_object(410, "Expired"), status=410)
        return web.json_response(page(["a"], token="t"))

    server.answer = answer
    with pytest.raises(ApiGoneError):
        await client.list(NAMESPACES)


async def test_a_list_cuts_its_objects_down_page_by_page(server, client):
    server.says(page(["a", "b"]))
    listing = await client.list(NAMESPACES, project=lambda item: {"n": item["metadata"]["name"]})
    assert listing.items == ({"n": "a"}, {"n": "b"})


async def test_an_empty_list_may_be_null(server, client):
    server.says(page([]) | {"items": None})
    assert (await client.list(NAMESPACES)).items == ()


@pytest.mark.parametrize(
    "body",
    [
        page([]) | {"items": {}},
        {"metadata": {"resourceVersion": "7"}},
        page([]) | {"items": [1]},
        page([]) | {"items": [{"metadata": None}]},
        page([], version="x"),
        {"items": []},
    ],
)
async def test_a_list_of_another_shape_is_an_answer_error(server, client, body):
    server.says(body)
    with pytest.raises(ApiAnswerError):
        await client.list(NAMESPACES)


async def test_pages_without_end_run_into_the_cap(server):
    server.says(page(["a" * 50_000], token="again"))
    async with KubeClient(
        server.connection(), limits=ReadLimits(answer_bytes=500_000, list_bytes=500_000)
    ) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(NAMESPACES)
    assert caught.value.reason == "TooLarge"
    assert len(server.requests) <= 11


async def test_pages_without_end_run_into_the_deadline(server):
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return web.json_response(page(["a"], token="again"))

    server.answer = answer
    async with KubeClient(server.connection(), timeout_seconds=0.5) as client:
        with pytest.raises(ApiUnreachableError) as caught:
            await client.list(NAMESPACES)
        assert caught.value.reason == "Timeout"
