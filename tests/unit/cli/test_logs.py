"""Lines of the log, and which of them are shown."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from fipop.cli.logs import configure_logging, set_log_level
from fipop.settings.options import DEFAULTS
from fipop.settings.values import TRACE, LogLevel

Written = Callable[[], str]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Written:
    def read() -> str:
        for handler in logging.getLogger().handlers:
            handler.flush()
        assert sys.stdout.writable()
        captured = capsys.readouterr()
        assert captured.out == "", "logs go to standard error"
        return captured.err

    return read


def test_a_line_is_one_json_object_with_its_fields(written: Written) -> None:
    configure_logging(as_json=True)
    logging.getLogger("fipop.operator").info("address reserved", extra={"address": "10.0.0.1", "range": "a"})
    [line] = written().splitlines()
    found = json.loads(line)
    assert found.pop("time")
    assert found == {
        "level": "INFO",
        "logger": "fipop.operator",
        "message": "address reserved",
        "address": "10.0.0.1",
        "range": "a",
    }


def test_a_line_of_text_has_its_fields_too(written: Written) -> None:
    configure_logging(as_json=False)
    logging.getLogger("fipop.operator").warning("Pass failed", extra={"guest": "c-m-1"})
    assert written().endswith("WARNING fipop.operator: Pass failed guest='c-m-1'\n")


def test_an_error_with_its_traceback_is_one_json_line(written: Written) -> None:
    configure_logging(as_json=True)
    try:
        raise ValueError("surprise")
    except ValueError:
        logging.getLogger("fipop.runtime").exception("a run crashed")
    [line] = written().splitlines()
    assert "surprise" in json.loads(line)["exc_info"]


SHOWN = {
    LogLevel.TRACE: [TRACE, 10, 20, 30, 40, 50],
    LogLevel.DEBUG: [10, 20, 30, 40, 50],
    LogLevel.INFO: [20, 30, 40, 50],
    LogLevel.WARN: [30, 40, 50],
    LogLevel.ERROR: [40, 50],
    LogLevel.FATAL: [50],
    LogLevel.PANIC: [50],
}


@pytest.mark.parametrize("level", SHOWN)
def test_the_option_log_level_decides_what_is_shown_and_libraries_speak_from_warnings_on(
    written: Written, level: LogLevel
) -> None:
    configure_logging(as_json=True)
    set_log_level(replace(DEFAULTS, log_level=level))
    for number in (TRACE, 10, 20, 30, 40, 50):
        logging.getLogger("fipop.any").log(number, "ours", extra={"number": number})
        # Not kopf's: what it logs is left out once a watch was set up in this process.
        logging.getLogger("aiohttp.any").log(number, "theirs", extra={"number": number})
    lines = [json.loads(line) for line in written().splitlines()]
    assert [line["number"] for line in lines if line["message"] == "ours"] == SHOWN[level]
    expected = [number for number in SHOWN[level] if number >= logging.WARNING]
    assert [line["number"] for line in lines if line["message"] == "theirs"] == expected


def test_trace_has_a_name_of_its_own(written: Written) -> None:
    configure_logging(as_json=True)
    set_log_level(replace(DEFAULTS, log_level=LogLevel.TRACE))
    logging.getLogger("fipop.requests").log(TRACE, "request")
    assert json.loads(written())["level"] == "TRACE"


UNNOTICED = """
import asyncio, gc
from fipop.cli.logs import configure_logging
from fipop.cli.process import run_until_asked

async def fail():
    raise ValueError("words of the server")

async def role():
    asyncio.create_task(fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()

configure_logging(as_json=True)
asyncio.run(run_until_asked(role()))
"""


def test_an_error_that_nothing_took_is_logged_without_its_words() -> None:
    done = subprocess.run([sys.executable, "-c", UNNOTICED], capture_output=True, text=True, check=True)
    [line] = done.stderr.splitlines()
    found = json.loads(line)
    assert (found["level"], found["error"], found["place"]) == ("ERROR", "ValueError", "<string>:7")
    assert "words" not in line
