"""One run of a program that ends for certain: at its deadline, if it stops working, and when its task is cancelled.

And it leaves fipop its memory and its disk, whatever it writes.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fipop.boundary import Finished, GuestFactory
from fipop.deadlines import HELM_IDLE_SECONDS, HELM_TERMINATION_SECONDS
from fipop.guest.helm.proxy import GuestApiProxy, HelmTarget, open_proxy

DATA_BYTES = 208 * 1024 * 1024
"""The writable memory that a program can map (RLIMIT_DATA): it shares the limit of the container.

helm needs 104 MiB to upgrade what fipop installs, and touches 40 of them. Two that are led to use all of it touch
310 MiB, of the chart's 512: what a guest cluster's Secrets unpack to is up to its administrators.
"""
FILE_BYTES = 64 * 1024 * 1024
"""The longest file that a program writes (RLIMIT_FSIZE): the archive of a chart."""
STDOUT_BYTES = 256 * 1024
STDERR_BYTES = 4096
"""The most that is kept of what a program writes: the beginning of stdout, the end of stderr."""
_CHUNK_BYTES = 64 * 1024
_NICE = 10


async def run_process(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    folder: Path,
    stdin: bytes | None,
    seconds_left: Callable[[], float],
) -> Finished:
    """Run a program in a process group of its own, and return how it ended.

    Once `seconds_left` says none, or when the calling task is cancelled, the group gets SIGTERM, then SIGKILL. This
    returns or raises only when the program is gone. The limits hold from right after its start. Raises OSError if it
    cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=folder,
        start_new_session=True,
    )
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
        # The operator's own loop goes first.
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    talk = asyncio.gather(
        _read(process.stdout, slice(STDOUT_BYTES)),
        _read(process.stderr, slice(-STDERR_BYTES, None)),
        _feed(process.stdin, stdin or b""),
        process.wait(),
    )
    try:
        while not talk.done() and (seconds := seconds_left()) > 0:
            await asyncio.wait({talk}, timeout=seconds)
        timed_out = not talk.done()
    finally:
        await _end(process.pid, talk)
    (stdout, is_cut), (stderr, _), _, returncode = await talk
    return Finished(returncode=returncode, timed_out=timed_out, stdout=stdout, stderr=stderr, is_cut=is_cut)


class LocalHelm:
    """The helm program of this machine; `executable` is its absolute path, `guests` reaches guest clusters."""

    def __init__(self, executable: str, guests: GuestFactory) -> None:
        self._executable = executable
        self._guests = guests

    async def __call__(
        self,
        arguments: list[str],
        *,
        guest: HelmTarget | None,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        deadline_seconds: float,
    ) -> Finished:
        """Run helm once; for a guest cluster its kubeconfig names a proxy that ends with it. Raises OSError."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + deadline_seconds

        async def run(more: Mapping[str, str], proxy: GuestApiProxy | None = None) -> Finished:
            def seconds_left() -> float:
                until = deadline if proxy is None else min(deadline, proxy.asked_at + HELM_IDLE_SECONDS)
                return until - clock()

            argv = [self._executable, *arguments]
            return await run_process(
                argv, env={**env, **more}, folder=folder, stdin=stdin, seconds_left=seconds_left
            )

        if guest is None:
            return await run({})
        async with open_proxy(self._guests(guest.access), guest, deadline=deadline) as (proxy, kubeconfig):
            path = write_private(folder / "kubeconfig", kubeconfig)
            ended = await run({"KUBECONFIG": str(path)}, proxy)
            return replace(ended, problem=proxy.error)


def write_private(path: Path, text: str) -> Path:
    """Write a file that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        stream.write(text)
    return path


async def _read(pipe: asyncio.StreamReader | None, kept: slice) -> tuple[bytes, bool]:
    """Read to the end: a pipe that is not read holds its writer up. Return what is kept, and whether that is less."""
    found, size = b"", 0
    while pipe is not None and (chunk := await pipe.read(_CHUNK_BYTES)):
        size += len(chunk)
        found = (found + chunk)[kept]
    return found, size > len(found)


async def _feed(pipe: asyncio.StreamWriter | None, data: bytes) -> None:
    assert pipe is not None, "every program gets one"
    with suppress(BrokenPipeError, ConnectionResetError):  # it can end without having read
        pipe.write(data)
        await pipe.drain()
    pipe.close()


async def _end(
    group: int, talk: asyncio.Future[tuple[tuple[bytes, bool], tuple[bytes, bool], None, int]]
) -> None:
    # `talk` goes on reading: a program whose pipes are full could not end.
    try:
        if not talk.done():
            _signal(group, signal.SIGTERM)
            await asyncio.wait({talk}, timeout=HELM_TERMINATION_SECONDS)
    finally:
        if not talk.done():
            _signal(group, signal.SIGKILL)
            await asyncio.wait({talk})


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
