"""How soon the command line and the page show a fleet with very many floating IPs.

Real: etcd, kube-apiserver, `fipop` as a process, a browser's place taken by an HTTP client that reads the page whole.

    python -m bench.look [--floating-ips N]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp

from bench.load import build_reservation, in_parallel
from bench.results import describe_machine, write_section
from localfleet.arguments import positive
from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, RANCHER_CRDS, load_crds
from localfleet.fleet import LocalFleet
from localfleet.processes import Process, build_environment
from localfleet.stack import RANGES, RESERVATIONS, build_floating_ip, build_range, floating_ips
from localfleet.waiting import eventually

FIRST = IPv4Address("10.0.0.1")
FIPOP = Path(sys.executable).parent / "fipop"
RUNS = 3


async def main(count: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Looking",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        f"etcd, kube-apiserver and fipop's processes are real; the best of {RUNS}.",
        "",
    ]
    async with LocalFleet() as fleet:
        plane = await fleet.management()
        await load_crds(plane.client, OUR_CRDS, RANCHER_CRDS)
        await plane.client.create(RANGES, build_range("bench", "10.0.0.0/16"))
        await fill(plane, count)
        for arguments in (
            ("status",),
            ("who", "10.0.0.5"),
            ("status", "-o", "json"),
            ("status", "-o", "wide"),
        ):
            seconds = min([await time_command(plane, fleet.folder, *arguments) for _ in range(RUNS)])
            lines.append(f"- `fipop {' '.join(arguments)}` with {count} floating IPs: {seconds:.2f} s")
            print(lines[-1], flush=True)
        async for line in time_page(plane, fleet.folder):
            lines.append(line)
            print(line, flush=True)
    write_section("look", lines)


async def fill(plane: ControlPlane, count: int) -> None:
    """Write floating IPs, each with its reservation and a status, ten to a namespace."""
    for number in range(0, count + count // 64 + 10, 10):
        await plane.create_namespace(f"guest-{number // 10}")

    def one(number: int) -> Callable[[], Awaitable[None]]:
        namespace, name, address = f"guest-{number // 10}", f"vip-{number}", str(FIRST + number)

        async def write() -> None:
            path = floating_ips(namespace)
            body = build_floating_ip(
                namespace, name, range_name="bench", cluster=namespace, ipaddress=address
            )
            made = await plane.client.create(path, body)
            owner = {
                "namespace": namespace,
                "name": name,
                "uid": made["metadata"]["uid"],
                "cluster": namespace,
            }
            body = build_reservation(address, owner, space="default", range_name="bench")
            await plane.client.create(RESERVATIONS, body)
            ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
            status = {
                "addresses": [address],
                "range": "bench",
                "addressSpace": "default",
                "observedGeneration": 1,
                "conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            }
            await plane.client.patch(f"{path}/{name}/status", {"status": status})

        return write

    usable = [number for number in range(count + count // 64) if int(FIRST + number) % 256 not in (0, 255)]
    await in_parallel([one(number) for number in usable[:count]])


async def time_command(plane: ControlPlane, folder: Path, *arguments: str) -> float:
    """Run a command as a process, from its start to its end."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(str(FIPOP), *arguments, "--kubeconfig", str(plane.admin_kubeconfig)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=build_environment(folder),
    )
    _, err = await process.communicate()
    assert process.returncode in {0, 1}, err
    assert b"TooLarge" not in err, err
    return time.monotonic() - began


async def time_page(plane: ControlPlane, folder: Path) -> AsyncIterator[str]:
    """Serve the page and read it: the first time, when nothing is read yet, and then."""
    log = folder / "web.log"
    argv = [str(FIPOP), "web", "--port", "0", "--kubeconfig", str(plane.admin_kubeconfig)]
    process = Process("fipop web", argv, log=log, environment=build_environment(folder))
    await process.start()

    async def address() -> str | None:
        found = re.findall(r"http://\S+/", log.read_text())
        return found[0] if found else None

    url = await eventually(address, seconds=30, what="the page")
    async with aiohttp.ClientSession() as session:
        pages = {"overview, asked for at the start": "", "overview": "", "a /16": "range?name=bench"}
        for name, path in pages.items():
            began = time.monotonic()
            async with session.get(url + path) as answer:
                size = len(await answer.read())
                assert answer.status == 200
            yield f"- page, {name}: {time.monotonic() - began:.2f} s, {size // 1024} KiB"
    await process.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--floating-ips", type=positive, default=10_000)
    asyncio.run(main(parser.parse_args().floating_ips))
