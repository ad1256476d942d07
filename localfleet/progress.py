"""Long work made visible: what is done, the how-manieth of how many, and for how long already."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from localfleet.errors import ToolFailedError
from localfleet.guard import guarded

_TERMINAL_TICK_SECONDS = 1.0
_QUIET_TICK_SECONDS = 15.0
"""How often a line is written where nobody watches (a log file); on a terminal one line is rewritten."""


@dataclass(slots=True)
class Progress:
    """Writes steps to `stream`.

    `total` is how many are expected; more may come (a toolchain that has to be fetched).
    """

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    total: int = 0
    _number: int = 0
    _title: str = ""
    _started: float = 0.0
    _shown: float = 0.0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """One step, from its beginning to its good or bad end."""
        self._number += 1
        self._title = title
        self._started = self._shown = time.monotonic()
        self._write("…", final=False)
        verdict = "FAILED after"
        try:
            yield
            verdict = "done in"
        finally:
            self._write(f"{verdict} {time.monotonic() - self._started:.0f} s", final=True)

    def tick(self, note: str = "…") -> None:
        """Show that the present step goes on; may be called as often as one likes."""
        now = time.monotonic()
        if now - self._shown >= (_TERMINAL_TICK_SECONDS if self.stream.isatty() else _QUIET_TICK_SECONDS):
            self._shown = now
            self._write(f"{note} {now - self._started:.0f} s", final=False)

    def run(self, argv: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> str:
        """Run a program to its end as part of the present step, and return what it wrote; it dies with us.

        Raises ToolFailedError with what it wrote.
        """
        with subprocess.Popen(
            guarded(argv),
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                output = self._wait(process)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise ToolFailedError(argv=argv, returncode=process.returncode, output=output)
        return output

    def _wait(self, process: subprocess.Popen[str]) -> str:
        while True:
            try:
                return process.communicate(timeout=_TERMINAL_TICK_SECONDS)[0]
            except subprocess.TimeoutExpired:
                self.tick()

    def _write(self, text: str, *, final: bool) -> None:
        line = f"[{self._number}/{max(self.total, self._number)}] {self._title} {text}"
        if self.stream.isatty():
            self.stream.write(f"\r\x1b[K{line}" + ("\n" if final else ""))
        else:
            self.stream.write(f"{line}\n")
        self.stream.flush()
