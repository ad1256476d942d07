"""How much processor time a request costs: the client of fipop beside bare aiohttp, by turns, on a real API server.

python -m bench.client [--turns N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from bench.load import in_parallel
from bench.results import describe_machine, write_section
from fipop.kube.client import KubeClient
from fipop.kube.config import configure_from_kubeconfig
from fipop.kube.resources import CONFIG_MAPS
from fipop.kube.server import HttpServer
from localfleet.arguments import positive
from localfleet.assets import ensure_all
from localfleet.fleet import LocalFleet

NAMESPACE = "bench"
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
OBJECTS, OBJECT_BYTES = 500, 2048
REQUESTS = {"get": 1500, "patch": 800, "list": 40}
"""How many requests of each kind a turn measures."""
AT_ONCE = 16

Requests = Mapping[str, Callable[[int], Awaitable[Any]]]


@asynccontextmanager
async def open_fipop(kubeconfig: Path) -> AsyncIterator[Requests]:
    """Lend the requests of fipop's client; each is for the object of a number."""
    configuration = await configure_from_kubeconfig(kubeconfig)
    async with KubeClient(HttpServer(configuration)) as client:
        yield {
            "get": lambda number: client.get(CONFIG_MAPS, f"o{number}", namespace=NAMESPACE),
            "patch": lambda number: client.merge_patch(
                CONFIG_MAPS, f"o{number}", build_patch(number), namespace=NAMESPACE
            ),
            "list": lambda _: client.list(CONFIG_MAPS, namespace=NAMESPACE),
        }


@asynccontextmanager
async def open_bare(kubeconfig: Path) -> AsyncIterator[Requests]:
    """Lend the same requests as few lines of aiohttp send them."""
    configuration = await configure_from_kubeconfig(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=RESTClientObject(configuration).ssl_context)
    plain = {"Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(configuration.host, connector=connector, headers=plain) as session:

        async def send(method: str, path: str, **options: Any) -> Any:
            async with session.request(method, path, **options) as answer:
                return json.loads(await answer.read())

        merge = {"Content-Type": "application/merge-patch+json"}
        yield {
            "get": lambda number: send("GET", f"{PATH}/o{number}"),
            "patch": lambda number: send(
                "PATCH", f"{PATH}/o{number}", data=json.dumps(build_patch(number)), headers=merge
            ),
            "list": lambda _: send("GET", PATH),
        }


CLIENTS: dict[str, Callable[[Path], AbstractAsyncContextManager[Requests]]] = {
    "fipop": open_fipop,
    "bare aiohttp": open_bare,
}


def build_patch(number: int) -> dict[str, Any]:
    return {"metadata": {"labels": {"number": str(number)}}}


async def measure(opened: AbstractAsyncContextManager[Requests]) -> dict[str, float]:
    """Return the microseconds of this process's processor time for each kind of request."""
    found = {}
    async with opened as requests:
        for kind, send in requests.items():
            await send_many(send, REQUESTS[kind] // 10)
            before = processor_seconds()
            await send_many(send, REQUESTS[kind])
            found[kind] = (processor_seconds() - before) / REQUESTS[kind] * 1e6
    return found


async def send_many(send: Callable[[int], Awaitable[Any]], count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await send(number % OBJECTS)

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@asynccontextmanager
async def api_server() -> AsyncIterator[Path]:
    """Start an API server with the objects; the kubeconfig of its administrator."""
    async with LocalFleet(ensure_all("etcd", "kube-apiserver")) as fleet:
        plane = await fleet.management(controllers=())
        await plane.create_namespace(NAMESPACE)

        def create(number: int) -> Callable[[], Awaitable[Any]]:
            body = {"metadata": {"name": f"o{number}"}, "data": {"text": "x" * OBJECT_BYTES}}
            return lambda: plane.client.create(PATH, body)

        await in_parallel([create(number) for number in range(OBJECTS)])
        yield plane.admin_kubeconfig


async def main(turns: int) -> None:
    """Measure, print, and record."""
    machine = describe_machine()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CLIENTS}
    async with api_server() as kubeconfig:
        for _ in range(turns):
            for name in CLIENTS:
                command = [sys.executable, "-m", "bench.client", "--measure", name, str(kubeconfig)]
                answer = await asyncio.to_thread(subprocess.run, command, stdout=subprocess.PIPE, check=True)
                found[name].append(json.loads(answer.stdout))
    medians = {
        name: {kind: statistics.median(each[kind] for each in runs) for kind in REQUESTS}
        for name, runs in found.items()
    }
    ratios = {kind: medians["fipop"][kind] / medians["bare aiohttp"][kind] for kind in REQUESTS}
    last = "client: " + " ".join(f"{kind}_ratio={value:.2f}" for kind, value in ratios.items())
    lines = [
        "## Client",
        "",
        f"Machine: {machine} at the start.",
        "",
        f"Microseconds of processor time a request, {AT_ONCE} at once, objects of {OBJECT_BYTES} bytes.",
        f"etcd and kube-apiserver are real. The median of {turns} turns, each in a process of its own.",
        "",
        f"| | get | patch | list of {OBJECTS} |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {each['get']:.0f} | {each['patch']:.0f} | {each['list']:,.0f} |"
            for name, each in medians.items()
        ),
        "",
        f"`{last}`",
    ]
    print("\n".join(lines), flush=True)
    write_section("client", lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.client")
    parser.add_argument("--turns", type=positive, default=7, help="processes of each client")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        name, path = options.measure
        print(json.dumps(asyncio.run(measure(CLIENTS[name](Path(path))))))
    else:
        asyncio.run(main(options.turns))
