"""When each watch showed life last, and what an outage brings about."""

import logging

import pytest

from fipop.kube.resources import FLOATING_IPS, NAMESPACES
from fipop.runtime.kopf.liveness import Liveness


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_each_resource_is_silent_for_itself_from_the_start_on() -> None:
    clock = Clock()
    signs = Liveness([NAMESPACES, FLOATING_IPS], clock=clock)
    clock.now += 5
    signs.show(NAMESPACES)
    clock.now += 2
    assert signs.silences() == {NAMESPACES: 2, FLOATING_IPS: 7}
    signs.forgive()
    assert set(signs.silences().values()) == {0}


@pytest.mark.parametrize(("seconds", "recoveries"), [(1.9, 0), (2.0, 1)])
def test_only_an_outage_that_may_have_been_a_restart_of_the_server_is_a_recovery(
    seconds: float, recoveries: int
) -> None:
    clock, recovered = Clock(), []
    signs = Liveness([NAMESPACES], clock=clock, on_recovery=lambda: recovered.append(clock.now))
    signs.succeed(NAMESPACES)
    signs.fail(NAMESPACES, "refused")
    clock.now += seconds
    signs.fail(NAMESPACES, "refused")
    signs.succeed(NAMESPACES)
    signs.succeed(NAMESPACES)
    assert len(recovered) == recoveries


def test_a_failure_is_said_once_until_it_works_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    signs = Liveness([NAMESPACES], clock=Clock())
    for _ in range(3):
        signs.fail(NAMESPACES, "refused")
    signs.succeed(NAMESPACES)
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
