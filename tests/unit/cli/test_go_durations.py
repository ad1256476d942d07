"""Durations as Go writes them."""

import pytest

from fipop.cli.go_flags import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("15s", 15.0), ("1h2m3s", 3723.0), ("1.5s", 1.5), ("250ms", 0.25), (".5m", 30.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1 s", "-1s", "1s2", "9" * 100 + "s1"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration"):
        parse_duration(text)
