"""Commands run within the test's own process, which lives on: what they do to a process that ends is taken back."""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import pytest
from click.testing import CliRunner, Result

from fipop.cli.main import main
from fipop.errors import ApiError
from fipop.report.snapshot import Snapshot


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


class Unasked:
    """Stands where a client does that is never asked: what would be read is a test's."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.fixture
def run_over(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command over what a test says is read: one reading after the other, and the last one for ever."""

    def start(found: Sequence[Snapshot | ApiError], *arguments: str, charset: str = "utf-8") -> Result:
        readings = list(found)

        async def read(*_: object, **__: object) -> Snapshot:
            each = readings.pop(0) if len(readings) > 1 else readings[0]
            if isinstance(each, ApiError):
                raise each
            return each

        for module in ("check", "reading", "who"):
            monkeypatch.setattr(f"fipop.cli.{module}.read_snapshot", read)
        monkeypatch.setattr("fipop.cli.reading.POLL_SECONDS", 0.01)
        monkeypatch.setattr("fipop.cli.reading.ReadingOptions.connect", lambda _self: Unasked())
        result = CliRunner(charset=charset).invoke(main, arguments, prog_name="fipop")
        assert "Traceback" not in result.output
        return result

    return start
