"""One run of a program that ends for certain: at its deadline, when its task is cancelled, when we are killed.

And that leaves us our memory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TERMINATION_SECONDS = 3.0
"""How long a program may tidy up after SIGTERM before SIGKILL: less than a leader whose lease runs out has left."""

DATA_BYTES = 208 * 1024 * 1024
"""How much writable memory a program may map, touched or not (RLIMIT_DATA): it shares our container's limit.

helm needs 104 MiB to upgrade what we install, and touches 40 of them. Two that are led to use up all of this touch
310 MiB, of the chart's 512: what a guest's Secrets unpack to is for its administrators to choose.
"""

# Run by a fresh interpreter in the child's place: asks Linux for SIGKILL at the parent's end, bounds the memory, then
# becomes the program. Python code between fork and exec would do that too, but a process with threads may hang in it.
# Not RLIMIT_AS: a Go program reserves much more address space than it uses.
_BIND_AND_EXEC = """\
import ctypes, os, resource, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
data, most = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_DATA)[1]
data = data if most == resource.RLIM_INFINITY else min(data, most)
resource.setrlimit(resource.RLIMIT_DATA, (data, data))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a run ended; `returncode` is negative where a signal ended it. The outputs may hold secrets."""

    returncode: int
    timed_out: bool
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)


async def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    stdin: bytes | None,
    deadline_seconds: float,
    termination_seconds: float = TERMINATION_SECONDS,
) -> Finished:
    """Run a program (`argv[0]` is its absolute path) in a process group of its own and give how it ended.

    On Linux it may map at most DATA_BYTES of memory.

    At the deadline, or when the calling task is cancelled, the group gets SIGTERM, then SIGKILL; this returns or
    raises only when the program is gone. Raises OSError where it cannot be started.
    """
    if not os.access(argv[0], os.X_OK):
        raise FileNotFoundError(argv[0])
    process = await asyncio.create_subprocess_exec(
        *_bound_to_us(argv),
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=folder,
        start_new_session=True,
    )
    talk = asyncio.ensure_future(process.communicate(stdin))
    try:
        await asyncio.wait({talk}, timeout=deadline_seconds)
        timed_out = not talk.done()
    finally:
        if not talk.done():
            await _end(process.pid, talk, termination_seconds)
    stdout, stderr = await talk
    return Finished(returncode=process.returncode or 0, timed_out=timed_out, stdout=stdout, stderr=stderr)


async def _end(group: int, talk: asyncio.Future[tuple[bytes, bytes]], patience_seconds: float) -> None:
    # `talk` goes on reading: a program whose pipes are full could not even say goodbye.
    try:
        _signal(group, signal.SIGTERM)
        await asyncio.wait({talk}, timeout=patience_seconds)
    finally:
        if not talk.done():
            _signal(group, signal.SIGKILL)
            await asyncio.wait({talk})


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


def _bound_to_us(argv: Sequence[str]) -> list[str]:
    if sys.platform != "linux":
        return list(argv)
    # -I -S: nothing of the surroundings is imported; it costs 20 ms.
    return [sys.executable, "-I", "-S", "-c", _BIND_AND_EXEC, str(os.getpid()), str(DATA_BYTES), *argv]
