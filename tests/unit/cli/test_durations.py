"""Durations as people write them on a command line."""

import click
import pytest

from fipop.cli.durations import DURATION


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h2m3s", 3723), ("45", 45), (" 2m ", 120), (7, 7)],
)
def test_what_is_a_duration(text: object, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "-5s", "1m1h", "1.5h", "٣s"])
def test_what_is_none_is_told_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s, 5m or 1h30m"):
        DURATION.convert(text, None, None)
