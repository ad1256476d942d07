"""The demo's last line is read by people and machines alike."""

import io

from localfleet.report import Report, build_table


def test_columns_are_aligned_and_short_rows_are_filled_up() -> None:
    assert build_table(["NAME", "ADDRESS"], [["demo", "10.0.0.1"], ["a-longer-name"]]) == [
        "NAME           ADDRESS",
        "demo           10.0.0.1",
        "a-longer-name",
    ]


def test_a_long_or_broken_cell_becomes_one_short_line() -> None:
    _header, row = build_table(["X", "Y"], [["first\nsecond " + "x" * 200, "y" * 200]])
    assert row.startswith("first second xxx")
    first, last = row.split("  ")
    assert (len(first), len(last)) == (72, 120)
    assert first.endswith("…")


def test_the_verdict_counts_names_the_failed_and_gives_the_exit_code() -> None:
    stream = io.StringIO()
    report = Report(stream=stream)
    report.check("the sky is up", holds=True)
    report.check("the sky is green", holds=False, found="blue")
    assert report.verdict() == 1
    lines = stream.getvalue().splitlines()
    assert lines[-1] == "demo: 1 checks passed, 1 failed"
    assert "  FAIL  the sky is green (found: blue)" in lines
    assert "\033" not in stream.getvalue()


def test_all_passed_is_exit_code_0_and_nothing_checked_is_not() -> None:
    good = Report(stream=io.StringIO())
    good.check("one", holds=True)
    assert good.verdict() == 0
    assert Report(stream=io.StringIO()).verdict() == 1
