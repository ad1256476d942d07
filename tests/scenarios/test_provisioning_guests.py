"""A guest cluster that is still being provisioned is no fault, for an hour at most."""

import pytest

from fipop.kube.resources import FLOATING_IPS
from fipop.operator.snapshot import build_snapshot
from fipop.operator.startup import SETTLED_SECONDS
from tests.harness.small_operator import SmallOperator

A = "c-m-a"
HOUR = 3600


def configured(operator: SmallOperator) -> tuple[str, str]:
    conditions = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "GuestConfigured")
    return found["status"], found["reason"]


def guests_by_reach(operator: SmallOperator) -> list[bool | None]:
    """What the metrics count of the guests."""
    snapshot = build_snapshot(operator.cache, operator.manager)
    return [each.reachable for each in snapshot.guests]


async def asked(*, connected: bool) -> SmallOperator:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A, connected=connected)
    operator.ask(A)
    await operator.start()
    await operator.visit(A)
    await operator.pass_time(60)
    await operator.visit(A)
    return operator


async def test_a_guest_that_was_never_connected_is_unknown_for_an_hour_and_no_longer() -> None:
    operator = await asked(connected=False)
    assert configured(operator) == ("Unknown", "GuestProvisioning")
    assert guests_by_reach(operator) == [None]
    assert "reachable" not in operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["guest"]
    await operator.pass_time(HOUR)
    await operator.visit(A)
    assert configured(operator) == ("False", "GuestDisconnected")
    assert guests_by_reach(operator) == [False]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_guest_that_was_reached_once_is_disconnected_at_once(is_restarted: bool) -> None:
    operator = await asked(connected=True)
    assert configured(operator)[0] == "True"
    operator.disconnect(A)
    if is_restarted:
        for _ in range(2):
            operator = SmallOperator(operator)
            await operator.start()
            await operator.pass_time(SETTLED_SECONDS)
            await operator.visit(A)
    await operator.settle()
    await operator.visit(A)
    assert configured(operator) == ("False", "GuestDisconnected")
    assert guests_by_reach(operator) == [False]
