"""What the demo writes: steps as they happen, output of commands, and checks that are counted."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TextIO

_BOLD, _DIM, _GREEN, _RED, _RESET = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"


@dataclass(slots=True, kw_only=True)
class Report:
    """Writes to `stream`, with colours only where that is a terminal. Times count from `started` (monotonic)."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    started: float = field(default_factory=time.monotonic)
    silence_seconds: float = 10.0
    """How long a wait goes on before a line names it."""
    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._write(f"\n{self._paint(_BOLD, title)}")

    def step(self, text: str) -> None:
        """Write what has just happened, with the time since the start."""
        elapsed = f"{time.monotonic() - self.started:6.1f} s"
        self._write(f"{self._paint(_DIM, elapsed)}  {text}")

    @asynccontextmanager
    async def wait(self, what: str) -> AsyncIterator[None]:
        """Name what the block waits for, as often as it goes on for `silence_seconds`."""

        async def name_it() -> None:
            begun = time.monotonic()
            while True:
                await asyncio.sleep(self.silence_seconds)
                self.step(f"waiting for {time.monotonic() - begun:.0f} s until {what}")

        task = asyncio.create_task(name_it())
        try:
            yield
        finally:
            task.cancel()

    def output(self, command: str, text: str) -> None:
        """Show what a command printed."""
        self.chapter(f"$ {command}")
        for line in text.splitlines():
            self._write(f"  {line}".rstrip())

    def check(self, fact: str, *, holds: bool) -> None:
        """Count a fact, and show whether it holds."""
        if holds:
            self.passed += 1
        else:
            self.failed.append(fact)
        mark = self._paint(_GREEN, f"{'ok':>8}") if holds else self._paint(_RED, f"{'FAIL':>8}")
        self._write(f"{mark}  {fact}")

    def verdict(self) -> int:
        """Write the last line; answer the exit code."""
        self.line()
        for fact in self.failed:
            self._write(f"failed: {fact}")
        self._write(f"demo: {self.passed} checks passed, {len(self.failed)} failed")
        return 1 if self.failed or not self.passed else 0

    def line(self, text: str = "") -> None:
        """Write a plain line."""
        self._write(text)

    def _paint(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if self.stream.isatty() else text

    def _write(self, text: str) -> None:
        print(text, file=self.stream, flush=True)
