"""Both families or neither: nothing is begun in vain, and nothing is lost that its owner had before."""

import pytest

from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS
from tests.harness.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
V6, V6_NAME = "fd00::10", "default.fd000000000000000000000000000010"
HOUR = 3600


@pytest.mark.parametrize("requested", ["dynamic", "static"])
async def test_who_moves_within_its_range_and_asks_for_a_family_too_many_keeps_one_address(
    requested: str,
) -> None:
    """Its new address is reserved and not named yet when the other family turns out not to be had."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.reserve(Y, A)
    key = (FLOATING_IP_RESERVATIONS.plural, "", f"default.{Y}")
    reserved = operator.memory.objects[key]
    operator.memory.put(key, {**reserved, "spec": {**reserved["spec"], "requested": requested}})
    operator.change(FLOATING_IPS, A, "web", {"ipaddress": Y, "ipFamilyPolicy": "RequireDualStack"})
    await operator.settle()
    await operator.pass_time(HOUR)
    (kept,) = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["addresses"]
    assert operator.held() == {f"default.{kept}": A}


async def test_who_moves_to_another_range_and_asks_for_a_family_too_many_keeps_its_address() -> None:
    """The move was cut short: its new address is reserved, and the status names the old one still."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_range("other", iprange="10.0.9.10-10.0.9.13")
    await operator.start()
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    operator.reserve("10.0.9.10", A)
    key = (FLOATING_IP_RESERVATIONS.plural, "", "default.10.0.9.10")
    reserved = operator.memory.objects[key]
    operator.memory.put(
        key, {**reserved, "spec": {**reserved["spec"], "range": "other", "requested": "dynamic"}}
    )
    wanted = (FLOATING_IPS.plural, A, "web")
    found = operator.memory.objects[wanted]
    metadata = {**found["metadata"], "annotations": {"fiprange": "other"}}
    spec = {**found["spec"], "ipFamilyPolicy": "RequireDualStack"}
    operator.memory.put(wanted, {**found, "metadata": metadata, "spec": spec})
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.memory.objects[wanted]["status"]["addresses"] == [X]
    assert operator.held() == {f"default.{X}": A}


async def test_what_the_predecessor_gave_out_is_its_owners_though_it_asks_for_a_family_too_many() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.ask(A, X)
    operator.change(FLOATING_IPS, A, "web", {"ipFamilyPolicy": "RequireDualStack"})
    operator.carried.services[A] = X
    await operator.pass_time(10)
    operator.cache.inheritance.ours_since = operator.memory.now
    await operator.start()
    assert operator.held() == {f"default.{X}": A}
    operator.ask(C, X)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.holders(X) == {A}
