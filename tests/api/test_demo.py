"""`make demo` shows what it promises; its last line and its exit code say so."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localfleet.assets import ensure
from localfleet.waiting import eventually

LAST_LINE = re.compile(r"demo: (\d+) checks passed, (\d+) failed")
STORY_SECONDS = 480
STOP_SECONDS = 30


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


def is_passed(line: str) -> bool:
    verdict = LAST_LINE.fullmatch(line)
    return verdict is not None and int(verdict[1]) >= 12 and int(verdict[2]) == 0


def is_left(path: str) -> bool:
    return Path(path).exists()


async def kubectl(kubeconfig: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(ensure("kubectl"), f"--kubeconfig={kubeconfig}", *arguments), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return out.decode()


@pytest.mark.slow
async def test_the_demo_passes_all_its_checks_and_what_is_kept_can_be_played_with_until_ctrl_c() -> None:
    async with demo("--keep") as process, asyncio.timeout(STORY_SECONDS):
        assert process.stdout is not None
        story: list[str] = []
        while not any("tail -f " in line for line in story):
            line = await process.stdout.readline()
            assert line, "\n".join(story)
            story.append(line.decode().rstrip())
        exported = re.findall(r"export KUBECONFIG=(\S+) +# (\S+)", "\n".join(story))
        assert len(exported) == 4, "the management cluster and three guests"
        assert any("fipop check" in line for line in story)
        paths = {name: path for path, name in exported}
        shown = await kubectl(exported[0][0], "get", "fip", "-A", "--no-headers")
        assert len(shown.splitlines()) >= 2
        await kubectl(paths["demo"], "create", "service", "loadbalancer", "later", "--tcp=8081")

        async def has_address() -> bool:
            return "kube-vip.io/loadbalancerIPs" in await kubectl(
                paths["demo"], "get", "service", "later", "-o", "yaml"
            )

        await eventually(has_address, what="an address of the cloud provider, which runs on")
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(STOP_SECONDS):
            rest, _ = await process.communicate()
    assert process.returncode == 0, "\n".join([*story, rest.decode()])
    assert any(is_passed(line) for line in [*story, *rest.decode().splitlines()])
    assert [path for path, _ in exported if is_left(path)] == []
