"""What the page reads of the cluster: once for all who ask."""

import asyncio

import aiohttp
from aiohttp.test_utils import TestServer

from fipop.errors import UnavailableError
from fipop.report.page.app import Page
from fipop.report.page.snapshots import FRESH_SECONDS, STALE_SECONDS, Snapshots
from tests.unit.report.page.pages import Cluster


async def test_many_who_ask_at_once_cause_one_read() -> None:
    cluster, now = Cluster(), [0.0]
    snapshots = Snapshots(cluster.read, monotonic=lambda: now[0])
    await asyncio.gather(*(snapshots.get() for _ in range(20)))
    assert cluster.reads == 1
    now[0] = FRESH_SECONDS / 2
    await snapshots.get()
    assert cluster.reads == 1
    # What is not fresh is shown while a new look is under way; what is stale is not.
    cluster.gate.clear()
    now[0] = FRESH_SECONDS + 1
    await snapshots.get()
    waiting = asyncio.create_task(snapshots.get())
    await asyncio.wait_for(waiting, 30)
    now[0] = STALE_SECONDS + 1
    late = asyncio.create_task(snapshots.get())
    await asyncio.sleep(0)
    assert not late.done()
    cluster.gate.set()
    await asyncio.wait_for(late, 30)
    assert cluster.reads == 2
    await snapshots.close()


async def test_a_cluster_that_cannot_be_read_is_a_sentence_and_is_asked_again() -> None:
    cluster = Cluster()
    cluster.error = UnavailableError("list FloatingIP", reason="ConnectionRefused")
    app = Page(Snapshots(cluster.read)).build_app()
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/"
        async with session.get(url) as answer:
            assert answer.status == 502
            assert "the server refused the connection" in await answer.text()
        cluster.error = None
        async with session.get(url) as answer:
            assert answer.status == 200
