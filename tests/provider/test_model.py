"""No schedule of a small world gives an address to two Services that may not share it; without stamps there is one."""

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


def test_if_services_of_a_closed_pool_were_not_stamped_there_is_a_schedule_that_does() -> None:
    (setting,) = (each for each in SMALL if each.closes)
    _, way = explore(replace(setting, fences_closed=False))
    assert way
