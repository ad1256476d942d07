"""How soon the command line and the page show a fleet with very many floating IPs, and how much memory that takes.

Real: etcd, kube-apiserver, `fipop` as a process, a browser's place taken by an HTTP client that reads the page whole.

    python -m bench.look [--floating-ips N] [--guests N]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address
from pathlib import Path

import aiohttp

from bench.load import build_reservation, in_parallel
from bench.results import describe_machine, write_section
from fipop.report.page.snapshots import FRESH_SECONDS
from localfleet.arguments import positive
from localfleet.client import Json
from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, RANCHER_CRDS, load_crds
from localfleet.fleet import LocalFleet
from localfleet.processes import Process, build_environment
from localfleet.rancher_objects import build_provisioning_cluster, build_provisioning_status
from localfleet.rancher_plan import Credential, GuestPlan, HarvesterCluster
from localfleet.stack import RANGES, RESERVATIONS, build_floating_ip, build_range, floating_ips
from localfleet.waiting import eventually

FIRST = IPv4Address("10.0.0.1")
FIPOP = Path(sys.executable).parent / "fipop"
RUNS = 3


CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters"
HARVESTER = HarvesterCluster(cluster_id="c-h", display_name="harvester")
MADE = "2026-01-01T00:00:00Z"
MANIFEST_BYTES = 4096
"""What is added to each guest cluster's object: those of Rancher have 8 to 12 KiB."""


async def main(count: int, guests: int) -> None:
    """Measure, print, and record."""
    lines = [
        "## Looking",
        "",
        f"Machine: {describe_machine()} at the start.",
        "",
        f"{count} floating IPs of {guests} guest clusters. etcd, kube-apiserver and fipop's processes are real.",
        f"Time: the best of {RUNS}. Memory: the most resident memory of the process, the worst of {RUNS}.",
        "",
    ]
    async with LocalFleet() as fleet:
        plane = await fleet.management()
        await load_crds(plane.client, OUR_CRDS, RANCHER_CRDS)
        await plane.client.create(RANGES, build_range("bench", "10.0.0.0/16"))
        await fill(plane, count, guests)
        for arguments in (
            ("status",),
            ("who", "10.0.0.5"),
            ("status", "-o", "json"),
            ("status", "-o", "wide"),
            ("check",),
        ):
            runs = [
                await asyncio.to_thread(run_command, plane, fleet.folder, *arguments) for _ in range(RUNS)
            ]
            seconds, mib = min(each[0] for each in runs), max(each[1] for each in runs)
            lines.append(f"- `fipop {' '.join(arguments)}`: {seconds:.2f} s, {mib} MiB")
            print(lines[-1], flush=True)
        async for line in time_page(plane, fleet.folder):
            lines.append(line)
            print(line, flush=True)
    write_section("look", lines)


async def fill(plane: ControlPlane, count: int, guests: int) -> None:
    """Write guest clusters, and floating IPs with a reservation and a whole status, spread over them."""
    await plane.create_namespace("fleet-default")
    await in_parallel([write_guest(plane, number) for number in range(guests)])
    usable = [number for number in range(count + count // 64) if int(FIRST + number) % 256 not in (0, 255)]
    work = [write_floating_ip(plane, number, f"guest-{number % guests}") for number in usable[:count]]
    await in_parallel(work)


def write_guest(plane: ControlPlane, number: int) -> Callable[[], Awaitable[None]]:
    """Write the namespace of a guest, and its provisioning Cluster with the fields and the size of a real one."""
    name = f"guest-{number}"

    async def write() -> None:
        await plane.create_namespace(name)
        credential = Credential(name="cc", harvester=HARVESTER)
        plan = GuestPlan(name=name, cluster_id=name, credential=credential, labels={"kube-vip": "true"})
        body = build_provisioning_cluster(plan)
        body["spec"]["rkeConfig"]["additionalManifest"] = "x" * MANIFEST_BYTES
        await plane.client.create(CLUSTERS, body)
        status = build_provisioning_status(plan, connected=True, at=MADE)
        await plane.client.patch(f"{CLUSTERS}/{name}/status", {"status": status})

    return write


def write_floating_ip(plane: ControlPlane, number: int, namespace: str) -> Callable[[], Awaitable[None]]:
    """Write a floating IP with all its conditions, and its reservation."""
    name, address = f"vip-{number}", str(FIRST + number)

    async def write() -> None:
        path = floating_ips(namespace)
        body = build_floating_ip(namespace, name, range_name="bench", cluster=namespace, ipaddress=address)
        made = await plane.client.create(path, body)
        owner = {"namespace": namespace, "name": name, "uid": made["metadata"]["uid"], "cluster": namespace}
        body = build_reservation(address, owner, space="default", range_name="bench")
        past = {"namespace": "guest-of-old", "name": "vip", "cluster": "old", "releasedAt": MADE}
        body["spec"]["history"] = [past, past]
        await plane.client.create(RESERVATIONS, body)
        await plane.client.patch(f"{path}/{name}/status", {"status": build_status(address, namespace)})

    return write


def build_status(address: str, guest: str) -> Json:
    """Return the status of a floating IP that is ready."""
    message = f"The ConfigMap kubevip of guest cluster {guest} has the address {address}, and kube-vip is ready there."
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": MADE}
        for kind in ("Allocated", "Resolved", "GuestReachable", "Configured", "KubeVipReady", "Ready")
    ]
    release = {"namespace": "kube-system", "revision": 3, "status": "deployed", "version": "0.6.4"}
    releases = [{**release, "role": role, "name": role} for role in ("kube-vip", "kube-vip-cloud-provider")]
    return {
        "addresses": [address],
        "range": "bench",
        "addressSpace": "default",
        "observedGeneration": 1,
        "conditions": conditions,
        "guest": {"cluster": guest, "reachable": True, "releases": releases},
    }


def run_command(plane: ControlPlane, folder: Path, *arguments: str) -> tuple[float, int]:
    """Run a command as a process, from its start to its end; seconds, and MiB."""
    argv = [str(FIPOP), *arguments, "--kubeconfig", str(plane.admin_kubeconfig)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=errors, env=build_environment(folder)
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        errors.seek(0)
        said = errors.read()
    assert os.waitstatus_to_exitcode(status) in {0, 1}, said
    assert b"larger than fipop reads" not in said, said
    return seconds, usage.ru_maxrss // 1024


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
        for _ in range(RUNS):
            # What is older than this is read again while the one before is shown.
            await asyncio.sleep(FRESH_SECONDS)
            async with session.get(url + "range?name=bench") as answer:
                await answer.read()
    told = await asyncio.to_thread(Path(f"/proc/{process.pid}/status").read_text)
    peak = re.search(r"VmHWM:\s+(\d+) kB", told)
    assert peak is not None
    yield f"- page, after {RUNS} more reads: {int(peak[1]) // 1024} MiB"
    await process.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--floating-ips", type=positive, default=10_000)
    parser.add_argument("--guests", type=positive, default=2_000)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.floating_ips, chosen.guests))
