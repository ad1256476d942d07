"""The demo's last line and its exit code are read by people and machines alike."""

import asyncio
import io

from localfleet.report import Report
from localfleet.waiting import eventually


def test_the_verdict_counts_names_the_failed_and_gives_the_exit_code() -> None:
    stream = io.StringIO()
    report = Report(stream=stream)
    report.check("the sky is up", holds=True)
    report.check("the sky is green", holds=False)
    assert report.verdict() == 1
    assert stream.getvalue().splitlines() == [
        "      ok  the sky is up",
        "    FAIL  the sky is green",
        "",
        "failed: the sky is green",
        "demo: 1 checks passed, 1 failed",
    ]


def test_all_passed_is_exit_code_0_and_nothing_checked_is_not() -> None:
    good = Report(stream=io.StringIO())
    good.check("one", holds=True)
    assert good.verdict() == 0
    assert Report(stream=io.StringIO()).verdict() == 1


async def test_what_is_waited_for_is_named_while_it_does_not_come() -> None:
    stream = io.StringIO()
    report = Report(stream=stream, silence_seconds=0.0)

    async def is_named() -> bool:
        return "until the quarantine ends" in stream.getvalue()

    async with report.wait("the quarantine ends"):
        assert await eventually(is_named)
    written = stream.getvalue()
    await asyncio.sleep(0)
    assert stream.getvalue() == written
