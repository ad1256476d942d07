"""Logging of a process: one JSON object a line, or plain text; the level follows the option logLevel."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

from fipop.settings.options import Settings
from fipop.settings.values import TRACE, LogLevel

_LEVELS = {
    LogLevel.TRACE: TRACE,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARN: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    # The last two words of the predecessor: only what ends the program.
    LogLevel.FATAL: logging.CRITICAL,
    LogLevel.PANIC: logging.CRITICAL,
}


class TextFormatter(logging.Formatter):
    """`time level logger: message key=value …`, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; its fields are those that not every record has."""
        fields = {key: value for key, value in vars(record).items() if key not in _ORDINARY}
        text = super().format(record)
        return " ".join([text, *(f"{key}={value!r}" for key, value in fields.items())])


_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(*, as_json: bool) -> None:
    """Send all logs to standard error; those of libraries from warnings on."""
    logging.addLevelName(TRACE, "TRACE")
    handler = logging.StreamHandler(sys.stderr)
    if as_json:
        formatter: logging.Formatter = JsonFormatter(
            "%(asctime)s %(levelname)s %(name)s %(message)s",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
            datefmt="%Y-%m-%dT%H:%M:%S%z",
        )
    else:
        formatter = TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("fipop").setLevel(logging.INFO)


def set_log_level(settings: Settings) -> None:
    """Follow the option logLevel: fipop's own logs to the letter, those of libraries never below warnings."""
    level = _LEVELS[settings.log_level]
    logging.getLogger("fipop").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.WARNING))
