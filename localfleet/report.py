"""What the demo writes: steps as they happen, tables, and checks that are counted."""

import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

_BOLD, _DIM, _GREEN, _RED, _RESET = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"
_LONGEST_CELL = 72
_LONGEST_LAST_CELL = 120
_LONGEST_FINDING = 400


def build_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table with aligned columns, two blanks between them; a row shorter than the header is filled up."""
    limits = [*[_LONGEST_CELL] * (len(header) - 1), _LONGEST_LAST_CELL]
    filled = ([*row, *[""] * (len(header) - len(row))] for row in (header, *rows))
    cells = [[_shorten(cell, limit) for cell, limit in zip(row, limits, strict=True)] for row in filled]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


@dataclass(slots=True, kw_only=True)
class Report:
    """Writes to `stream`, with colours only where that is a terminal. Times count from `started` (monotonic)."""

    stream: TextIO = field(default_factory=lambda: sys.stdout)
    started: float = field(default_factory=time.monotonic)
    passed: int = 0
    failed: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """Begin a part of the story."""
        self._write(f"\n{self._paint(_BOLD, title)}")

    def step(self, text: str) -> None:
        """Tell what has just happened, with the time since the start."""
        elapsed = f"{time.monotonic() - self.started:6.1f} s"
        self._write(f"{self._paint(_DIM, elapsed)}  {text}")

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Show a table, or say that there is nothing to show."""
        first, *rest = build_table(header, rows)
        self._write(f"\n{self._paint(_BOLD, title)}")
        for line in (self._paint(_DIM, first), *(rest or ["(none)"])):
            self._write(f"  {line}")

    def check(self, fact: str, *, holds: bool, found: str = "") -> bool:
        """Count a fact; what was `found` instead is shown where it does not hold."""
        if holds:
            self.passed += 1
            self._write(f"  {self._paint(_GREEN, 'ok')}    {fact}")
        else:
            self.failed.append(fact)
            self._write(
                f"  {self._paint(_RED, 'FAIL')}  {fact}"
                + (f" (found: {_shorten(found, _LONGEST_FINDING)})" if found else "")
            )
        return holds

    def verdict(self) -> int:
        """Write the last line; answer the exit code."""
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
