"""The command line as people run it: a process, its output, its exit code."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.harness.forked_commands import run_forked

PROGRAM = Path(sys.executable).parent / "fipop"
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The output."""
        return json.loads(self.out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Runs commands with one kubeconfig; nothing of the environment but what a shell has."""

    kubeconfig: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Path = PROGRAM

    async def run(self, *arguments: str | Path) -> Ended:
        """Run a command to its end."""
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.kubeconfig.parent),
            "KUBECONFIG": str(self.kubeconfig),
            "LANG": "C.UTF-8",
            **self.environment,
        }
        run = run_forked if self.program == PROGRAM else partial(_start, self.program)
        code, out, err = await run(list(map(str, arguments)), env=env)
        ended = Ended(code=code, out=out.decode(), err=err.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended


async def _start(
    program: Path, arguments: Sequence[str], *, env: Mapping[str, str]
) -> tuple[int, bytes, bytes]:
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


def write_reader(path: Path, kubeconfig: dict[str, Any]) -> Path:
    """Write a kubeconfig for a reader."""
    path.write_text(yaml.safe_dump(kubeconfig))
    return path
