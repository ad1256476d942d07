"""How fast Services get their addresses, and what the cloud provider costs beside them.

Real: etcd, kube-apiserver, the provider as a process under the access of kube-vip-cloud-provider's chart. Everything
shares this machine's processors, this program too.

    python -m bench.services [--burst N] [--services N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.load import in_parallel
from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import Helm
from localfleet.provider import ProviderProcess, install_provider
from localfleet.waiting import eventually

A = "kube-vip.io/loadbalancerIPs"
CONDITION = "kubefip.k8s.binbash.org/AddressAssigned"
NAMESPACES = 10
SINGLES = 200
IDLE_SECONDS = 30.0
DEADLINE_SECONDS = 300.0
_KEYS = "/api/v1/namespaces/kube-system/configmaps/kubevip"
_WRITTEN = ("/api/v1/services", "/api/v1/configmaps", "/api/v1/events")


class Watched:
    """When each Service was first seen with an address, and how often it was written since its creation.

    Both are by namespace and name.
    """

    def __init__(self) -> None:
        self.at: dict[tuple[str, str], float] = {}
        self.writes: Counter[tuple[str, str]] = Counter()
        self.news = asyncio.Event()

    async def follow(self, plane: ControlPlane) -> None:
        """Watch all Services, for ever."""
        while True:
            async for event in plane.client.watch("/api/v1/services"):
                meta = event["object"]["metadata"]
                self.writes[meta["namespace"], meta["name"]] += event["type"] == "MODIFIED"
                if (meta.get("annotations") or {}).get(A):
                    self.at.setdefault((meta["namespace"], meta["name"]), time.monotonic())
                    self.news.set()

    async def wait_for(self, count: int) -> None:
        """Wait until so many have one."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.at) < count:
                self.news.clear()
                await self.news.wait()


async def main(burst: int, services: int) -> None:
    """Measure, print, and record."""
    machine = describe_machine()
    async with LocalFleet() as fleet:
        plane = await fleet.guest("services")
        await install_provider(plane, Helm(program=ensure("helm"), home=fleet.folder / "helm"))
        for number in range(NAMESPACES):
            await plane.create_namespace(f"bench-{number}")
        provider = build_provider(fleet, plane, "first")
        await provider.start()
        await asyncio.sleep(IDLE_SECONDS)
        empty_mib = read_rss_mib(provider.process.pid)
        async with watching(plane) as watched:
            per_s = await time_burst(plane, watched, burst)
            latencies = await time_singles(plane, watched)
            await add_services(plane, range(burst + SINGLES, services))
            await watched.wait_for(services)
            rss = read_rss_mib(provider.process.pid)
            # Those of the burst waited, and their conditions say so.
            writes = max(count for (_, name), count in watched.writes.items() if name.startswith("single-"))
        idle = await time_idle(provider)
        await provider.stop()
        start, restart_writes = await time_restart(fleet, plane, services)
    p99 = sorted(latencies)[int(len(latencies) * 0.99)] * 1000
    median = sorted(latencies)[len(latencies) // 2] * 1000
    last = (
        f"services: per_s={per_s:.0f} p99_ms={p99:.0f} writes={writes} rss_mib={rss:.0f} empty_mib={empty_mib:.0f} "
        f"start_cpu_s={start:.2f} idle_percent={idle:.2f} restart_writes={restart_writes}"
    )
    lines = [
        "## Services",
        "",
        f"Machine: {machine} at the start.",
        "",
        "etcd, kube-apiserver and the provider's process are real, and share the processors with what measures.",
        "",
        f"- {burst} Services that wait, once their namespaces have a pool: {per_s:.0f} a second to an address",
        f"- one Service at a time beside them: p50 {median:.0f} ms, p99 {p99:.0f} ms from its creation to its address",
        f"- writes of such a Service, the most: {writes}",
        f"- without Services: {empty_mib:.0f} MiB resident",
        f"- with {services} Services: {rss:.0f} MiB resident, {idle:.2f} % of a core idle",
        f"- a restart with {services} Services: {start:.2f} s of processor time until ready, {restart_writes} writes",
        "",
        f"`{last}`",
    ]
    print("\n".join(lines[:-2]), flush=True)
    write_section("services", lines)
    print(last, flush=True)


def build_provider(fleet: LocalFleet, plane: ControlPlane, name: str) -> ProviderProcess:
    return ProviderProcess(plane=plane, folder=fleet.folder / name, ports=fleet.ports)


@contextlib.asynccontextmanager
async def watching(plane: ControlPlane) -> AsyncIterator[Watched]:
    """Watch Services meanwhile."""
    watched = Watched()
    task = asyncio.create_task(watched.follow(plane))
    yield watched
    task.cancel()
    await asyncio.wait([task])


async def time_burst(plane: ControlPlane, watched: Watched, count: int) -> float:
    """Have so many Services wait, and give them a pool: Services a second from then on."""
    await add_services(plane, range(count))

    async def all_wait() -> bool:
        found = await plane.client.items("/api/v1/services")
        told = (each["status"].get("conditions") or () for each in found)
        return sum(any(one["type"] == CONDITION for one in each) for each in told) == count

    await eventually(all_wait, seconds=DEADLINE_SECONDS, what="all wait")
    began = time.monotonic()
    await plane.client.patch(_KEYS, {"data": {"cidr-global": "10.0.0.0/16"}})
    await watched.wait_for(count)
    return count / (time.monotonic() - began)


async def time_singles(plane: ControlPlane, watched: Watched) -> list[float]:
    """Give the seconds from the creation of one Service after another to its address."""
    await asyncio.sleep(5.0)  # the conditions of the burst are written behind it
    found = []
    for number in range(SINGLES):
        name = f"single-{number}"
        began = time.monotonic()
        await plane.client.create("/api/v1/namespaces/default/services", build_service(name))
        await watched.wait_for(len(watched.at) + (("default", name) not in watched.at))
        found.append(watched.at["default", name] - began)
        await asyncio.sleep(0.05)
    return found


async def add_services(plane: ControlPlane, numbers: range) -> None:
    def one(number: int) -> Callable[[], Awaitable[Any]]:
        path = f"/api/v1/namespaces/bench-{number % NAMESPACES}/services"
        return lambda: plane.client.create(path, build_service(f"web-{number}"))

    await in_parallel([one(number) for number in numbers])


def build_service(name: str) -> dict[str, Any]:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": False}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


async def time_idle(provider: ProviderProcess) -> float:
    """Give the percentage of a core that the provider takes when nothing happens."""
    last = ""

    async def is_quiet() -> bool:
        # What is told of the last Services is told behind them.
        nonlocal last
        text = await provider.metrics()
        before, last = last, next(line for line in text.splitlines() if 'code="201",verb="create"' in line)
        await asyncio.sleep(2.0)
        return before == last

    await eventually(is_quiet, seconds=DEADLINE_SECONDS, what="all is told")
    before = read_cpu_seconds(provider.process.pid)
    await asyncio.sleep(IDLE_SECONDS)
    return (read_cpu_seconds(provider.process.pid) - before) / IDLE_SECONDS * 100


def _count_used(text: str) -> float:
    """Return how many addresses of all pools are in use, as the metrics show them."""
    lines = [each for each in text.splitlines() if each.startswith("fipop_service_pool_used{")]
    return sum(float(each.rpartition(" ")[2]) for each in lines)


async def time_restart(fleet: LocalFleet, plane: ControlPlane, services: int) -> tuple[float, int]:
    """Give the processor seconds of a start until all Services were looked at, and how many objects it wrote."""
    before = await read_versions(plane)
    provider = build_provider(fleet, plane, "second")
    await provider.start()

    async def has_looked() -> bool:
        text = await provider.metrics()
        return "fipop_leader 1.0" in text and _count_used(text) >= services

    await eventually(has_looked, seconds=60.0, what="the provider leads")
    seconds = read_cpu_seconds(provider.process.pid)
    await asyncio.sleep(10.0)
    after = await read_versions(plane)
    await provider.stop()
    return seconds, sum(1 for key in before.keys() | after.keys() if before.get(key) != after.get(key))


async def read_versions(plane: ControlPlane) -> dict[str, str]:
    lists = [await plane.client.items(path) for path in _WRITTEN]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for found in lists for each in found}


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024**2


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.services")
    parser.add_argument("--burst", type=positive, default=1000, help="Services that wait at once")
    parser.add_argument("--services", type=positive, default=3000, help="Services in the end")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.burst, arguments.services))
