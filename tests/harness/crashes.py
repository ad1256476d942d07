"""Crashes that fipop caught: it logs one and goes on, so a test that ends well would not show it."""

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"


class _Crashes(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            self.found.append(f"{record.getMessage()}\n{trace}")


@contextmanager
def crashes() -> Iterator[list[str]]:
    """Collect what fipop logs with a traceback: it does so where it expected nothing of the kind."""
    handler, log = _Crashes(), logging.getLogger("fipop")
    log.addHandler(handler)
    try:
        yield handler.found
    finally:
        log.removeHandler(handler)


def find_crashes(log: Path) -> list[str]:
    """Return the lines of a process's log that have a traceback."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [f"crash: {line[:3000]}" for line in lines if TRACEBACK in line]
