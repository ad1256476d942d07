"""Durations and booleans as Go writes them."""

import pytest

from fipop.cloudprovider.go_values import parse_bool, parse_duration


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


@pytest.mark.parametrize(("text", "value"), [("1", True), ("T", True), ("False", False), ("0", False)])
def test_booleans(text: str, value: bool) -> None:
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "yes", "tRUE", "2"])
def test_what_is_no_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="must be true or false"):
        parse_bool(text)
