"""What is taken from a server is bounded: an answer, a list, a talk, and all of them at once."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from fipop.errors import ApiAnswerError
from fipop.kube.client import KubeClient
from fipop.kube.limits import GUEST_LIMITS, MIB, Allowance, ByteBudget
from fipop.kube.resources import CONFIG_MAPS, SERVICES
from localfleet.waiting import eventually

from .conftest import FakeServer


def paging(server: FakeServer, sizes: list[int]) -> list[int]:
    """Have a server hold objects of these sizes, and give the list of the limits that it is asked with."""
    limits: list[int] = []
    objects = [{"metadata": {"name": f"o{n}"}, "fill": "x" * size} for n, size in enumerate(sizes)]

    async def answer(request: web.Request) -> web.Response:
        limit, start = int(request.query["limit"]), int(request.query.get("continue", "0"))
        limits.append(limit)
        metadata: dict[str, Any] = {"resourceVersion": "7"}
        if start + limit < len(objects):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": objects[start : start + limit]})

    server.answer = answer
    return limits


def guest_client(server: FakeServer, **options: Any) -> KubeClient:
    return KubeClient(server.connection(), limits=GUEST_LIMITS, **options)


async def test_fifty_objects_are_one_request(server: FakeServer) -> None:
    limits = paging(server, [100] * 50)
    async with guest_client(server) as client:
        assert len((await client.list(SERVICES)).items) == 50
    assert limits == [50]


async def test_a_page_that_is_too_large_is_asked_for_again_with_a_quarter(server: FakeServer) -> None:
    limits = paging(server, [60_000] * 40 + [10] * 100)
    async with guest_client(server) as client:
        listing = await client.list(SERVICES, project=lambda item: item["metadata"]["name"])
    assert listing.items == tuple(f"o{n}" for n in range(140)), "none is missing, none comes twice"
    assert limits[:3] == [50, 12, 24]
    assert max(limits[3:]) <= 50


async def test_an_object_of_more_than_a_mebibyte_is_too_large(server: FakeServer) -> None:
    limits = paging(server, [10, MIB, 10])
    async with guest_client(server) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES)
        assert caught.value.reason == "TooLarge"
    assert limits == [50, 12, 3, 1, 2, 1], "it is looked for one by one"


async def test_a_kind_and_a_talk_have_a_bound_in_all(server: FakeServer) -> None:
    paging(server, [90_000] * 60)
    allowance = Allowance(8 * MIB)
    async with guest_client(server, allowance=allowance) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES)
        assert caught.value.reason == "TooLarge"
        paging(server, [90_000] * 35)
        await client.list(SERVICES)
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES)
        assert caught.value.reason == "TooLarge"
    assert 0 <= allowance.bytes_left < 2 * MIB


@pytest.mark.parametrize("token", ["t" * 10_000, 7, {"a": 1}, "ü"])
async def test_a_token_that_is_none_is_sent_to_nobody(server: FakeServer, token: Any) -> None:
    server.says({"metadata": {"resourceVersion": "7", "continue": token}, "items": []})
    async with guest_client(server) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES)
        assert caught.value.reason == "NoContinueToken"
    assert len(server.requests) == 1


async def test_empty_pages_without_end_come_to_an_end(server: FakeServer) -> None:
    server.says({"metadata": {"resourceVersion": "7", "continue": "again"}, "items": []})
    async with guest_client(server) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES)
        assert caught.value.reason == "TooManyPages"
    assert len(server.requests) == GUEST_LIMITS.pages


@pytest.mark.parametrize(
    "error", [KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError]
)
async def test_an_object_that_cannot_be_read_is_the_servers_error(
    server: FakeServer, error: type[Exception]
) -> None:
    def project(_: object) -> object:
        raise error

    paging(server, [1])
    async with guest_client(server) as client:
        with pytest.raises(ApiAnswerError) as caught:
            await client.list(SERVICES, project=project)
        assert caught.value.reason == "Malformed"


async def test_answers_in_hand_share_a_budget_and_small_ones_do_not_wait(server: FakeServer) -> None:
    flowing, go_on = 0, asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal flowing
        if request.path.endswith("/small"):
            return web.json_response({"metadata": {}})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(json.dumps({"metadata": {}, "x": "y" * 600_000}).encode()[:-1])
        flowing += 1
        await go_on.wait()
        await response.write(b"}")
        return response

    server.answer = answer
    budget = ByteBudget(3 * MIB)
    clients = [guest_client(server, budget=budget) for _ in range(6)]

    async def is_spent() -> bool:
        return budget.free < 2 * MIB

    asking = [asyncio.create_task(each.get(CONFIG_MAPS, "large", namespace="a")) for each in clients]
    async with guest_client(server, budget=budget) as client:
        await eventually(is_spent, what="large answers to have taken the budget")
        await asyncio.wait_for(client.get(CONFIG_MAPS, "small", namespace="a"), 5)
    assert budget.free >= 0
    asking.pop().cancel()
    go_on.set()
    await asyncio.wait_for(asyncio.gather(*asking), 20)
    for each in clients:
        await each.close()
    assert budget.free == 3 * MIB, "all of it was given back"


async def test_a_place_in_line_that_is_given_up_costs_nothing() -> None:
    budget = ByteBudget(100)
    async with budget.share() as share:
        await budget.take(60)
        share.held = 60
        first, second = asyncio.create_task(budget.take(80)), asyncio.create_task(budget.take(30))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait_for(second, 5)
    assert budget.free == 70


async def test_a_place_given_up_in_the_turn_in_which_it_would_be_served_frees_no_bytes() -> None:
    budget = ByteBudget(10)
    async with budget.share() as share:
        await budget.take(10)
        share.held = 10
        waiting = asyncio.create_task(budget.take(10))
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert budget.free == 10
