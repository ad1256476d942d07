"""The end of the demo: what an administrator asks from a command line, answered by `fipop` as a process."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path

from localfleet.demo_stage import Stage
from localfleet.demo_story import STATIC_ADDRESS
from localfleet.processes import build_environment

FIPOP = Path(sys.executable).parent / "fipop"
_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    text: str


async def ask(stage: Stage, *arguments: str) -> Answer:
    """Ask with an administrator's kubeconfig of the management cluster, and show question and answer."""
    stage.report.chapter(f"fipop {' '.join(arguments)}")
    process = await asyncio.create_subprocess_exec(
        *(str(FIPOP), *arguments, "--kubeconfig", str(stage.management.admin_kubeconfig)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=build_environment(stage.fleet.folder),
    )
    async with asyncio.timeout(_SECONDS):
        out, _ = await process.communicate()
    for line in out.decode().splitlines():
        stage.report.line(f"  {line}")
    return Answer(code=process.returncode or 0, text=out.decode())


async def ask_all(stage: Stage) -> dict[str, Answer]:
    """Ask what the fleet's state is, and who has an address."""
    return {"status": await ask(stage, "status"), "who": await ask(stage, "who", STATIC_ADDRESS)}
