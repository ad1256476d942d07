"""No schedule of a small world gives one address to two Services; without the stamp there is one."""

from dataclasses import replace

import pytest

from tests.provider.model import LARGE, SMALL, Setting, explore


@pytest.mark.parametrize("setting", [*SMALL, pytest.param(LARGE[0], marks=pytest.mark.slow)], ids=str)
def test_no_schedule_gives_an_address_to_two(setting: Setting) -> None:
    states, way = explore(setting)
    assert states > 100
    assert way == []


def test_without_the_stamp_there_is_a_schedule_that_does() -> None:
    _, way = explore(replace(SMALL[0], has_stamp=False))
    assert way
