"""The command line as people run it: a process, its output, its exit code."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import yaml

PROGRAM = Path(sys.executable).parent / "fipop"
SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    def json(self, schema: str) -> Any:
        """The output, which is as its schema says."""
        found = json.loads(self.out)
        wanted = json.loads((SCHEMAS / f"{schema}.json").read_text())
        jsonschema.validate(found, wanted, cls=jsonschema.Draft202012Validator)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Runs commands with one kubeconfig; nothing of the environment but what a shell has."""

    kubeconfig: Path
    environment: dict[str, str] = field(default_factory=dict)
    program: Path = PROGRAM

    async def run(self, *arguments: str | Path) -> Ended:
        """Run a command to its end."""
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self.kubeconfig.parent),
                "KUBECONFIG": str(self.kubeconfig),
                "LANG": "C.UTF-8",
                **self.environment,
            },
        )
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await process.communicate()
        assert process.returncode is not None
        ended = Ended(code=process.returncode, out=out.decode(), err=err.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended


def write_reader(path: Path, kubeconfig: dict[str, Any]) -> Path:
    """Write a kubeconfig for a reader."""
    path.write_text(yaml.safe_dump(kubeconfig))
    return path
