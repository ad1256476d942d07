"""The demo's last line and its exit code are read by people and machines alike."""

import io

from localfleet.report import Report


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
