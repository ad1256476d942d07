from __future__ import annotations

import asyncio

from fipop.metrics.server import MetricsPortError
from fipop.runtime.metrics_port import MetricsPort
from tests.harness.virtual_time import in_virtual_time


class Server:
    """A server of metrics; ports in `taken` cannot be had."""

    def __init__(self) -> None:
        self.port: int | None = None
        self.taken: set[int] = set()
        self.tried: list[int] = []

    async def listen(self, port: int) -> None:
        self.tried.append(port)
        await asyncio.sleep(0)
        if port in self.taken:
            raise MetricsPortError(port=port, reason="taken")
        self.port = port

    async def stop(self) -> None:
        self.port = None


async def eventually(server: Server, port: int) -> None:
    async with asyncio.timeout(3600):
        while server.port != port:  # noqa: ASYNC110 - a server has no event for that
            await asyncio.sleep(0.5)


@in_virtual_time
async def test_a_port_that_is_taken_is_told_once_and_tried_until_it_is_free() -> None:
    server, told, wanted = Server(), list[str](), 9100
    server.taken.add(9100)
    port = MetricsPort(server, wanted=lambda: wanted, complain=told.append)
    port.move()
    async with asyncio.timeout(3600):
        while len(server.tried) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    assert len(told) == 1
    assert "9100" in told[0]
    server.taken.clear()
    await eventually(server, 9100)
    await port.close()
    assert server.port is None


@in_virtual_time
async def test_another_port_that_is_wanted_meanwhile_is_gone_to_instead() -> None:
    server, wanted = Server(), [9100]
    server.taken.add(9100)
    port = MetricsPort(server, wanted=lambda: wanted[0], complain=lambda _message: None)
    port.move()
    async with asyncio.timeout(3600):
        while not server.tried:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    wanted[0] = 9200
    began = asyncio.get_running_loop().time()
    port.move()
    await eventually(server, 9200)
    assert asyncio.get_running_loop().time() - began < 1, "the next try for the former port is not waited for"
    await port.close()
