"""Programs that run as long as the fleet does, and programs that run to their end."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from localfleet.errors import ProcessFailedError, ToolFailedError
from localfleet.guard import guarded

_POLL_SECONDS = 0.05
_STOP_POLL_SECONDS = 0.002
_KEPT_VARIABLES = ("PATH", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "GOMAXPROCS")
_GO = {"GOGC": "400"}
"""A fleet lives for minutes on few cores: 100 MiB more for each API server save a fifth of its processor time."""
_LOG_BYTES = 16_384


class Process:
    """One program: started, stopped, paused, started again; its output in the file `log`.

    It has its own process group, so that ctrl-C reaches only us and we end things in order, and it cannot
    outlive us (see `guard`).
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = [str(argument) for argument in argv]
        self._environment = environment
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Of the running program. Raises ProcessFailedError when there is none."""
        if self._process is None or not self.is_running:
            raise self.failure("is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Of the last run; None before it and during it."""
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Start the program. That it runs does not mean that it is ready: see `wait_until`."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guarded(self._argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )

    async def wait_until(self, is_ready: Callable[[], Awaitable[bool]], *, timeout_seconds: float) -> None:
        """Wait until `is_ready` says so. Raises ProcessFailedError when the program ends or the time does."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not await is_ready():
                    if not self.is_running:
                        raise self.failure(f"ended with {self.returncode} before it was ready")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            load = f"at a load average of {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors"
            raise self.failure(f"was not ready after {timeout_seconds:g} s, {load}") from None

    async def wait(self) -> int:
        """Wait for the program's end; its return code."""
        if self._process is None:
            raise self.failure("was never started")
        return await self._process.wait()

    async def stop(self, *, grace_seconds: float = 5.0) -> None:
        """End the program: asked first, killed after `grace_seconds`. Does nothing where it does not run."""
        if self._process is None or not self.is_running:
            return
        if grace_seconds > 0:
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)  # a paused program would not hear
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._process.wait()
            except TimeoutError:
                pass
            else:
                return
        self._send(signal.SIGKILL)
        await self._process.wait()

    def pause(self) -> None:
        """Freeze the program: its connections stay open and nobody answers."""
        self._send(signal.SIGSTOP)
        # The signal stops thread after thread: on a loaded machine one may still answer for a moment.
        while self._process is not None and self.is_running and not _has_stopped(self._process.pid):
            time.sleep(_STOP_POLL_SECONDS)

    def resume(self) -> None:
        self._send(signal.SIGCONT)

    def failure(self, problem: str) -> ProcessFailedError:
        """An error about this program with the end of its log."""
        return ProcessFailedError(name=self.name, problem=problem, log=self.read_log())

    def read_log(self) -> str:
        """The end of what the program wrote, over all its runs."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_BYTES))
            return log.read().decode(errors="replace")

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            # Not Popen.send_signal: it reaps a process that has just ended, and asyncio then reports 255 for it.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)


def _has_stopped(pid: int) -> bool:
    """Return whether all threads of a child stand still."""
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is not None


def build_environment(home: Path) -> dict[str, str]:
    """An environment in which a program finds nothing of the user's: no settings, no caches, no flags."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "HOME": str(home), **_GO}


async def run_to_end(
    argv: Sequence[str | Path],
    *,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_seconds: float,
) -> str:
    """Run a program to its end; its standard output.

    Raises ToolFailedError with all that it wrote, TimeoutError when it was killed at its deadline.
    """
    process = await asyncio.create_subprocess_exec(
        *guarded([str(argument) for argument in argv]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
        cwd=folder,
    )
    try:
        async with asyncio.timeout(timeout_seconds):
            output, errors = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = (output + errors).decode(errors="replace")
        raise ToolFailedError(argv=[str(part) for part in argv], returncode=process.returncode, output=text)
    return output.decode()
