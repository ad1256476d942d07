"""What the API server serves: kopf looks once, so that we ask before it does."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, NAMESPACES
from fipop.runtime.kopf.served import find_missing, full_name

RESOURCES = (FLOATING_IPS, FLOATING_IP_RANGES, NAMESPACES)


class Server:
    """Tells of resources by path; a path that is not there is a 404."""

    def __init__(self) -> None:
        self.served = {"/api/v1": ["namespaces"], "/apis/kubefip.k8s.binbash.org/v1": ["floatingips"]}
        self.asked: list[str] = []
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.asked.append(request.path)
        found = self.served.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.json_response({"resources": [{"name": name} for name in found]})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    runner = web.ServerRunner(web.Server(found.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


async def missing(server: Server) -> tuple[str, ...]:
    async with aiohttp.ClientSession() as session:
        return await find_missing(session, f"{server.url}/", RESOURCES, seconds=5)


async def test_what_is_not_served_is_told_by_its_full_name_and_each_version_is_asked_for_once(
    server: Server,
) -> None:
    assert await missing(server) == (full_name(FLOATING_IP_RANGES),)
    assert full_name(FLOATING_IP_RANGES) == "floatingipranges.kubefip.k8s.binbash.org"
    assert sorted(server.asked) == sorted(server.served)


async def test_of_a_group_that_is_not_there_everything_is_missing(server: Server) -> None:
    del server.served["/apis/kubefip.k8s.binbash.org/v1"]
    assert await missing(server) == (full_name(FLOATING_IPS), full_name(FLOATING_IP_RANGES))


async def test_a_server_that_is_away_is_the_callers_error(server: Server) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, TimeoutError)):
            await find_missing(session, "http://127.0.0.1:1", RESOURCES, seconds=5)
