"""`make demo` shows what it promises; its last line and its exit code say so."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localfleet.demo_network import find_problem
from localfleet.waiting import eventually

pytestmark = pytest.mark.slow

LAST_LINE = re.compile(r"demo: (\d+) checks passed, 0 failed")
STORY_SECONDS = 720
STOP_SECONDS = 30
RANGE = """
apiVersion: kubefip.k8s.binbash.org/v1
kind: FloatingIPRange
metadata: {name: lab, annotations: {harvesterClusterName: harvester-cluster1, harvesterNetworkName: vlan99}}
spec: {iprange: 10.99.0.0/28}
"""


@asynccontextmanager
async def demo(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "localfleet.demo", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def run(command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return out.decode()


def count_passed(story: str) -> int:
    verdicts = [LAST_LINE.fullmatch(line) for line in story.splitlines()]
    return sum(int(found[1]) for found in verdicts if found is not None)


@pytest.mark.timeout(STORY_SECONDS + STOP_SECONDS)
async def test_the_full_demo_passes_all_its_checks() -> None:
    async with demo("--full") as process, asyncio.timeout(STORY_SECONDS):
        story = (await process.communicate())[0].decode()
    assert process.returncode == 0, story
    assert count_passed(story) >= 30, story
    if problem := find_problem():
        assert f"not shown on this machine: {problem}" in story
    else:
        answer = r"^\$ curl http://([0-9.]+)/\n  Service web, answered by node n[12]$"
        (address,) = re.findall(answer, story, re.MULTILINE)
        assert re.search(rf"c-m-ngd5hs2r +demo-kubevip .* {re.escape(address)} ", story), story


async def test_what_the_demo_keeps_can_be_played_with_and_extended_until_ctrl_c() -> None:
    async with demo("--keep") as process, asyncio.timeout(STORY_SECONDS):
        assert process.stdout is not None
        story: list[str] = []
        while not any("tail -f " in line for line in story):
            line = await process.stdout.readline()
            assert line, "\n".join(story)
            story.append(line.decode().rstrip())
        assert count_passed("\n".join(story)) >= 15
        (export,) = (line for line in story if line.startswith("export KUBECONFIG="))

        async def type_in(command: str) -> str:
            return await run(f"{export}; {command}")

        contexts = (
            "for each in management demo shop plain; do kubectl --context $each get nodes -o name; done"
        )
        assert (await type_in(contexts)).split() == [
            f"node/{name}-node-1" for name in ("demo", "shop", "plain")
        ]
        releases = await type_in("helm --kube-context shop list -A -q")
        assert releases.split() == ["kube-vip", "kube-vip-cloud-provider"]
        assert len((await type_in("kubectl get fip -A --no-headers")).splitlines()) >= 3, (
            "the first is the current one"
        )
        await type_in("kubectl --context demo create service loadbalancer later --tcp=8081")

        async def has_address() -> bool:
            return "loadbalancerIPs" in await type_in("kubectl --context demo get service later -o yaml")

        await eventually(has_address, what="an address of the cloud provider, which runs on")
        await type_in(f"kubectl apply -f - <<< '{RANGE}'")
        added = f"{sys.executable} -m localfleet.demo_kept x vlan99"
        assert (await type_in(added)).startswith("Rancher has the guest cluster x (c-m-")
        assert (await type_in(added)).startswith("Error: The name")

        async def is_served() -> bool:
            pool = "kubectl --context x -n kube-system get configmap kubevip -o jsonpath={.data.cidr-global}"
            return "10.99.0.1" in await type_in(pool)

        await eventually(is_served, what="an address of its own network in the guest cluster that was added")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(STOP_SECONDS):
            await process.communicate()
    assert process.returncode == 0, "\n".join(story)
    assert not Path(export.split()[1].partition("=")[2]).parent.exists()
