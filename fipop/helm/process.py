"""The program helm, and one run of a program that ends for certain.

It ends at its deadline, if it stops working, and when its task is cancelled. And it leaves fipop its memory and its
disk, whatever it writes.

fipop runs helm 4 without server-side apply. After a rollback of fipop, helm 3 continues with the same releases. With
server-side apply, helm would also write to existing namespaces, and fail if an administrator edited a field.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from fipop.deadlines import HELM_DEADLINE_SECONDS, HELM_IDLE_SECONDS, HELM_TERMINATION_SECONDS
from fipop.errors import StartError
from fipop.helm.proxy import GuestApiProxy, HelmTarget, open_proxy
from fipop.kube.guests import GuestFactory

DATA_BYTES = 208 * 1024 * 1024
"""The writable memory that a program can map (RLIMIT_DATA): it shares the limit of the container.

helm 4 needs 112 MiB to upgrade what fipop installs (helm 3: 104), and touches 40 of them. Two that are led to use all
of it touch 370 MiB, of the chart's 640: what a guest cluster's Secrets unpack to is up to its administrators.
"""
FILE_BYTES = 64 * 1024 * 1024
"""The longest file that a program writes (RLIMIT_FSIZE): the archive of a chart."""
STDOUT_BYTES = 256 * 1024
STDERR_BYTES = 4096
"""The most that is kept of what a program writes: the beginning of stdout, the end of stderr."""
APPLY_IN_CLIENT = "--server-side=false"
"""The argument of each helm that writes objects. helm 3 has no such choice, and no name for it."""
_OLDEST_HELM = (3, 13)
"""The first helm that puts labels on the records of a release."""
_VERSION = re.compile(rb"v?(\d{1,4})\.(\d{1,4})\b")
_START_SECONDS = 30
_CHUNK_BYTES = 64 * 1024
_NICE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a run of a program ended; `returncode` is negative if a signal ended it. The outputs can hold secrets.

    `stdout` is the beginning of its output, whole unless `is_cut`; `stderr` is the end. `problem` is the last request
    to the guest cluster that failed, if helm made requests.
    """

    returncode: int
    timed_out: bool
    stdout: bytes = field(repr=False)
    stderr: bytes = field(repr=False)
    is_cut: bool = False
    problem: Exception | None = None


class HelmProcess(Protocol):
    """A run of the program helm: arguments and input become an exit code and output."""

    async def __call__(
        self,
        arguments: list[str],
        *,
        guest: HelmTarget | None,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
    ) -> Finished:
        """Run helm once, in a private folder, for HELM_DEADLINE_SECONDS at most. Raises OSError without a start.

        It is gone when this returns or raises.

        `guest` tells how to reach the guest cluster that helm works on; without one helm fetches charts.
        """


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
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env),
            cwd=folder,
            start_new_session=True,
        )
    )
    cancelled: asyncio.CancelledError | None = None
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError as error:
        # asyncio ends a start by a kill of the program alone, and then waits for all that the program started.
        try:
            process, cancelled = await starting, error
        except OSError:
            raise error from None  # a task that went on would be awaited forever
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
        if cancelled is not None:
            raise cancelled
        while not talk.done() and (seconds := seconds_left()) > 0:
            await asyncio.wait({talk}, timeout=seconds)
        timed_out = not talk.done()
    finally:
        await _end(process.pid, talk)
    (stdout, is_cut), (stderr, _), _, returncode = await talk
    return Finished(returncode=returncode, timed_out=timed_out, stdout=stdout, stderr=stderr, is_cut=is_cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmProgram:
    """A helm program by its absolute path."""

    path: str
    is_version_3: bool = False

    def build_argv(self, arguments: Sequence[str]) -> list[str]:
        """Return the command line for arguments of helm 4."""
        if not self.is_version_3:
            return [self.path, *arguments]
        # helm 3 goes on past a source that it cannot read.
        more = ["--fail-on-repo-update-fail"] if arguments[:2] == ["repo", "update"] else []
        return [self.path, *(each for each in arguments if each != APPLY_IN_CLIENT), *more]


def find_helm(given: str | None = None) -> HelmProgram:
    """Return the helm program: the given one, else that on PATH. Raises StartError if it is missing or too old."""
    what, path = f"helm program {given or 'helm'}", shutil.which(given or "helm")
    if path is None:
        where = f"{'cannot be run' if given else 'is not on PATH'}. Install it, or name it with --helm"
        raise StartError(what=what, problem=where)
    argv = [path, "version", "--template", "{{.Version}}"]
    try:
        # Before anything else runs, so that it may hold the loop up.
        ended = subprocess.run(argv, env={}, capture_output=True, timeout=_START_SECONDS, check=False)
        found = _VERSION.match(ended.stdout)
    except (OSError, subprocess.TimeoutExpired):
        found = None
    if found is None:
        raise StartError(what=what, problem="does not report its version. Name another one with --helm")
    version = (int(found[1]), int(found[2]))
    if version < _OLDEST_HELM:
        numbers, oldest = (".".join(map(str, each)) for each in (version, _OLDEST_HELM))
        problem = f"has version {numbers}, and fipop needs {oldest} or later. Name another one with --helm"
        raise StartError(what=what, problem=problem)
    return HelmProgram(path=str(Path(path).resolve()), is_version_3=version[0] == _OLDEST_HELM[0])


class LocalHelm:
    """The helm program of this machine; `guests` reaches guest clusters."""

    def __init__(self, program: HelmProgram, guests: GuestFactory) -> None:
        self._program = program
        self._guests = guests

    async def __call__(
        self,
        arguments: list[str],
        *,
        guest: HelmTarget | None,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
    ) -> Finished:
        """Run helm once; for a guest cluster its kubeconfig names a proxy that ends with it. Raises OSError."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + HELM_DEADLINE_SECONDS

        async def run(more: Mapping[str, str], proxy: GuestApiProxy | None = None) -> Finished:
            def seconds_left() -> float:
                until = deadline if proxy is None else min(deadline, proxy.asked_at + HELM_IDLE_SECONDS)
                return until - clock()

            argv = self._program.build_argv(arguments)
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
