"""Runs fipop commands as processes that fork from one which has imported the program: 0.1 s each, not 1 s.

Each command has arguments, environment, folder, output and exit code of its own, as the installed script gives it. The
tests of the script itself (completion, kubectl plugins, pipes) start the script.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

_PRELOADED = [
    *(f"fipop.cli.{name}" for name in ("main", "status", "who", "check", "adopt", "operator")),
    *("kubernetes.client", "kubernetes.config"),
    __name__,
]


async def run_forked(
    arguments: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, seconds: float = 60.0
) -> tuple[int, bytes, bytes]:
    """Run `fipop ARGUMENTS` to its end; returns exit code, output, and errors."""
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = context.Process(
            target=_run,
            args=(list(arguments), dict(env), str(cwd or folder), str(out), str(err)),
            daemon=True,
        )
        await asyncio.to_thread(process.start)
        await asyncio.to_thread(process.join, seconds)
        if process.exitcode is None:
            process.kill()
            raise TimeoutError(f"fipop {' '.join(arguments)} has run for {seconds:g} s")
        return process.exitcode, out.read_bytes(), err.read_bytes()


def _run(arguments: list[str], env: dict[str, str], cwd: str, out: str, err: str) -> None:
    from kubernetes.config import kube_config  # noqa: PLC0415

    from fipop.cli.main import main  # noqa: PLC0415

    os.environ.clear()
    os.environ.update(env)
    # The kubernetes package reads this variable when it is imported, which was before this process began.
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = env.get("KUBECONFIG", "~/.kube/config")
    os.chdir(cwd)
    for number, path in ((0, os.devnull), (1, out), (2, err)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    main(arguments, prog_name="fipop")
