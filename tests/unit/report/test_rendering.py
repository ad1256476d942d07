"""How views become tables, JSON and CSV."""

import pytest

from fipop.report.rendering import Output, age, bar, dump, moment, table, to_csv
from tests.harness.objects import NOW


def test_a_table_is_aligned_and_nothing_is_cut() -> None:
    lines = table(("NAME", "B"), [("x" * 200, "1"), ("y", "")]).splitlines()
    assert lines[0].index("B") == lines[1].index("1") == lines[2].index("-")
    assert "x" * 200 in lines[1]


def test_what_a_stranger_wrote_cannot_rewrite_the_terminal() -> None:
    assert "\x1b" not in table(("NAME",), [("\x1b[2Jgone\u202e",)])
    assert len(table(("NAME",), [("a\nb",)]).splitlines()) == 2


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML, Output.CSV])
def test_no_format_passes_on_what_rewrites_a_terminal_or_turns_a_line(output: Output) -> None:
    hostile, long = "\x1b[2Jgone\u202e\x9b", "x" * 5000
    if output is Output.CSV:
        text = to_csv(("name", "long"), [(hostile, long)])
    else:
        text = dump({"name": hostile, "nested": [{hostile: hostile}], "long": long}, output)
    assert text.replace("\r\n", "\n").replace("\n", "").isprintable()
    assert "gone" in text
    assert long in text, "nothing is cut for a program"


@pytest.mark.parametrize(
    ("percent", "full"), [(0.0, 0), (1.0, 0), (50.0, 10), (99.9, 20), (100.0, 20), (140.0, 20)]
)
def test_a_bar(percent: float, full: int) -> None:
    assert bar(percent).count("█") == full
    assert len(bar(percent)) == 20


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (130, "2m10s"),
        (3600 * 3, "3h"),
        (86400 * 2 + 3600, "2d1h"),
        (86400 * 40, "40d"),
    ],
)
def test_an_age(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_a_moment() -> None:
    assert moment(NOW) == "2026-03-01 12:00:00Z"
    assert moment(None) == ""
