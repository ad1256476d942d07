"""How views become tables and JSON."""

import pytest

from fipop.report.rendering import age, count_of, moment, table, to_json
from tests.harness.objects import NOW


def test_a_table_is_aligned() -> None:
    lines = table(("NAME", "B"), [("x" * 60, "1"), ("y", "")]).splitlines()
    assert lines[0].index("B") == lines[1].index("1") == lines[2].index("-")


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_long_cell_is_whole_and_pads_no_other_line(column: int) -> None:
    rows = [["a", "b", "c"], ["d", "e", "f"]]
    rows[0][column] = long = "x" * 5000
    lines = table(("A", "B", "C"), rows).split("\n")
    assert long in lines[1]
    assert [lines[0], lines[2]] == ["A   B   C", "d   e   f"]
    assert all(each == each.rstrip() for each in lines)


def test_what_a_stranger_wrote_cannot_rewrite_the_terminal() -> None:
    assert "\x1b" not in table(("NAME",), [("\x1b[2Jgone\u202e",)])
    assert len(table(("NAME",), [("a\nb",)]).splitlines()) == 2


def test_json_does_not_pass_on_what_rewrites_a_terminal_or_turns_a_line() -> None:
    hostile, long = "\x1b[2Jgone\u202e\x9b", "x" * 5000
    text = to_json({"name": hostile, "nested": [{hostile: hostile}], "long": long})
    assert text.replace("\n", "").isprintable()
    assert "gone" in text
    assert long in text, "nothing is cut for a program"


def test_one_of_a_kind_is_not_called_many() -> None:
    assert [count_of(number, "guest cluster") for number in (0, 1, 2)] == [
        "0 guest clusters",
        "1 guest cluster",
        "2 guest clusters",
    ]


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
