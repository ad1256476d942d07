"""One run of a program that ends for certain: at its deadline, when its task is cancelled, when we are killed.

And that leaves us our memory and our disk, whatever it says and writes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fipop.boundary import Finished
from fipop.deadlines import HELM_TERMINATION_SECONDS

DATA_BYTES = 208 * 1024 * 1024
"""How much writable memory a program may map, touched or not (RLIMIT_DATA): it shares our container's limit.

helm needs 104 MiB to upgrade what we install, and touches 40 of them. Two that are led to use up all of this touch
310 MiB, of the chart's 512: what a guest's Secrets unpack to is for its administrators to choose.
"""

FILE_BYTES = 1024 * 1024
"""How long a file may become that a program writes (RLIMIT_FSIZE), unless its caller says otherwise."""

STDOUT_BYTES = 256 * 1024
STDERR_BYTES = 4096
"""How much is kept of what a program says: of stdout the beginning, of stderr the end. The rest is read and dropped."""

_CHUNK_BYTES = 64 * 1024

# Run by a fresh interpreter in the child's place: asks Linux for SIGKILL at the parent's end, bounds memory and files,
# then becomes the program. Python code between fork and exec would do that too, but a process with threads may hang
# in it. Not RLIMIT_AS: a Go program reserves much more address space than it uses. What it does can wait (nice): the
# operator's own loop cannot.
_BIND_AND_EXEC = """\
import ctypes, os, resource, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
for kind, bound in ((resource.RLIMIT_DATA, sys.argv[2]), (resource.RLIMIT_FSIZE, sys.argv[3])):
    most = resource.getrlimit(kind)[1]
    bound = int(bound) if most == resource.RLIM_INFINITY else min(int(bound), most)
    resource.setrlimit(kind, (bound, bound))
os.nice(10)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[4], sys.argv[4:])
"""


async def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    stdin: bytes | None,
    deadline_seconds: float,
    termination_seconds: float = HELM_TERMINATION_SECONDS,
    stdout_bytes: int = STDOUT_BYTES,
    file_bytes: int = FILE_BYTES,
) -> Finished:
    """Run a program (`argv[0]` is its absolute path) in a process group of its own and give how it ended.

    On Linux it may map at most DATA_BYTES of memory and write files of at most `file_bytes`. Of its stdout
    `stdout_bytes` are kept, of its stderr STDERR_BYTES. At the deadline, or when the calling task is cancelled, the
    group gets SIGTERM, then SIGKILL; this returns or raises only when the program is gone. Raises OSError where it
    cannot be started.
    """
    if not os.access(argv[0], os.X_OK):
        raise FileNotFoundError(argv[0])
    process = await _start(_bound_to_us(argv, file_bytes), env, folder, has_input=stdin is not None)
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = _Kept(stdout_bytes), _Kept(STDERR_BYTES, is_tail=True)
    reading = stdout.read(process.stdout), stderr.read(process.stderr)
    talk = asyncio.gather(*reading, _feed(process.stdin, stdin), process.wait())
    try:
        await asyncio.wait({talk}, timeout=deadline_seconds)
        timed_out = not talk.done()
    finally:
        if not talk.done():
            await _end(process.pid, talk, termination_seconds)
    await talk
    return Finished(
        returncode=process.returncode or 0,
        timed_out=timed_out,
        stdout=bytes(stdout.kept),
        stderr=bytes(stderr.kept),
        is_cut=stdout.is_cut,
    )


async def _start(
    argv: Sequence[str], env: Mapping[str, str], folder: Path, *, has_input: bool
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=folder,
        start_new_session=True,
    )


class _Kept:
    """Reads a pipe to its end and keeps so many bytes of it: the first, or the last where `is_tail`."""

    def __init__(self, limit: int, *, is_tail: bool = False) -> None:
        self.kept = bytearray()
        self.is_cut = False
        self._limit = limit
        self._is_tail = is_tail

    async def read(self, pipe: asyncio.StreamReader) -> None:
        # A pipe that is not read holds its writer up: what is too much is read all the same.
        while chunk := await pipe.read(_CHUNK_BYTES):
            self.kept += chunk if self._is_tail else chunk[: self._limit + 1 - len(self.kept)]
            if len(self.kept) > self._limit:
                self.is_cut = True
                del self.kept[slice(-self._limit) if self._is_tail else slice(self._limit, None)]


async def _feed(pipe: asyncio.StreamWriter | None, data: bytes | None) -> None:
    if pipe is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it may end without having read
        pipe.write(data or b"")
        await pipe.drain()
    pipe.close()


async def _end(
    group: int, talk: asyncio.Future[tuple[None, None, None, int]], patience_seconds: float
) -> None:
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


def _bound_to_us(argv: Sequence[str], file_bytes: int) -> list[str]:
    if sys.platform != "linux":
        return list(argv)
    # -I -S: nothing of the surroundings is imported; it costs 20 ms.
    bounds = (str(DATA_BYTES), str(file_bytes))
    return [sys.executable, "-I", "-S", "-c", _BIND_AND_EXEC, str(os.getpid()), *bounds, *argv]
