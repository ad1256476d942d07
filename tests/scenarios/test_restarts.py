"""An operator that takes over a quiet fleet writes nothing, whoever waits there, and for what."""

from typing import Any

import pytest

from fipop.kube.resources import FLOATING_IPS
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
X = "10.0.0.10"
V = "fd00::10"
HOUR = 3600
LIMITS: list[dict[str, Any]] = [
    {},
    {"maxPerGuest": 2},
    {"allowedWorkspaces": ["fleet-default"]},
    {"allowedClusters": [f"cluster-{A}", f"cluster-{B}"]},
    {"restrictToMatching": True, "clusterSelector": {"matchLabels": {}}},
]


async def build(**spec: Any) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(**{"iprange": f"{X}-10.0.0.20,{V}-{V}", **spec})
    for guest_id in (A, B):
        operator.add_guest(guest_id)
    await operator.start()
    operator.ask(A, ipFamilyPolicy="PreferDualStack")
    await operator.settle()
    return operator


def conditions_of(operator: SmallOperator, guest_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = operator.memory.objects[FLOATING_IPS.plural, guest_id, "web"]["status"][
        "conditions"
    ]
    return found


async def assert_a_restart_writes_nothing(operator: SmallOperator) -> SmallOperator:
    await operator.pass_time(HOUR)
    before = operator.memory.version
    operator = SmallOperator(operator)
    await operator.adopt()
    await operator.pass_time(10)
    assert operator.memory.version == before, "before the guests were looked at"
    await operator.look()
    await operator.pass_time(HOUR)
    assert operator.memory.version == before
    return operator


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_restart_tells_nothing_else_to_who_waits_for_an_address_out_of_the_range(
    limits: dict[str, Any],
) -> None:
    operator = await build(**limits)
    operator.ask(B, "10.9.9.9")
    await operator.settle()
    operator = await assert_a_restart_writes_nothing(operator)
    assert conditions_of(operator, B)[1]["reason"] == "AddressOutOfRange"


@pytest.mark.parametrize("limits", LIMITS)
async def test_a_restart_tells_nothing_else_to_who_is_served_without_the_second_family(
    limits: dict[str, Any],
) -> None:
    operator = await build(**limits)
    operator.ask(B, ipFamilyPolicy="PreferDualStack")
    await operator.settle()
    operator = await assert_a_restart_writes_nothing(operator)
    assert conditions_of(operator, B)[1]["reason"] == "Allocated"


async def test_a_restart_tells_nothing_else_to_who_waits_for_what_another_guest_carries() -> None:
    operator = await build()
    operator.carried.services[A] = X
    operator.ask(B, X)
    operator.give_up(A)
    await operator.settle()
    operator = await assert_a_restart_writes_nothing(operator)
    assert A in conditions_of(operator, B)[1]["message"]


async def test_in_a_namespace_of_no_guest_it_is_told_once_that_a_range_with_limits_gives_it_nothing() -> None:
    operator = await build(maxPerGuest=2)
    operator.ask("elsewhere", X)
    operator.ask_for_range("elsewhere", "pool")
    await operator.settle()
    operator = await assert_a_restart_writes_nothing(operator)
    assert conditions_of(operator, "elsewhere")[1]["reason"] == "GuestNotFound"


async def test_who_lost_a_reservation_gets_it_back_before_its_guest_is_known_though_the_range_has_limits() -> (
    None
):
    operator = await build(maxPerGuest=2)
    operator.remove_unseen(f"default.{X}")
    operator = SmallOperator(operator)
    await operator.adopt()
    assert operator.held()[f"default.{X}"] == A
