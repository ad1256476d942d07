"""Commands run within the test's own process, which lives on: what they do to a process that ends is taken back."""

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _process_lives_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # It would end the process some seconds later, whatever that does by then.
    monkeypatch.setattr("fipop.cli.process.start_watchdog", lambda: None)
    loggers = (logging.getLogger(), logging.getLogger("fipop"))
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    gc.enable()
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers
