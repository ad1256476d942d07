"""Ranges of one family, and floating IPs that ask for another, or for both."""

import pytest

from fipop.api import names
from fipop.kube.resources import FLOATING_IPS
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
EVERY_GUEST = {"matchLabels": {}}
X = "10.0.0.10"
KEY = (FLOATING_IPS.plural, A, "web")


async def led(*pools: str) -> SmallOperator:
    """Have a range of each pool, the oldest first, that is meant for every guest cluster."""
    operator = SmallOperator()
    for number, pool in enumerate(pools):
        operator.add_range(f"range-{number}", pool, clusterSelector=EVERY_GUEST)
        await operator.pass_time(10)
    operator.add_guest(A)
    operator.add_guest(B)
    await operator.start()
    return operator


@pytest.mark.parametrize(
    ("pools", "asked", "held"),
    [
        ((X, "fd00::1"), {"ipFamilies": ["IPv6"]}, {"fd00::1"}),
        ((X, "fd00::1"), {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}, {"fd00::1"}),
        ((X, "fd00::1"), {}, {X}),
        (("fd00::1", X), {}, {"fd00::1"}),
        ((X, "10.0.0.11,fd00::1"), {"ipFamilyPolicy": "RequireDualStack"}, {"10.0.0.11", "fd00::1"}),
        ((X, "10.0.0.11,fd00::1"), {"ipFamilies": ["IPv6", "IPv4"]}, {"10.0.0.11", "fd00::1"}),
        ((X, "10.0.0.11,fd00::1"), {"ipFamilyPolicy": "PreferDualStack"}, {X}),
    ],
)
async def test_the_first_range_that_has_the_families_asked_for_is_chosen(
    pools: tuple[str, ...], asked: dict[str, object], held: set[str]
) -> None:
    """IPv6 was asked for, an older IPv4 range was chosen, and the floating IP waited for ever."""
    operator = await led(*pools)
    operator.ask(A, range_name="", **asked)  # type: ignore[arg-type]
    await operator.settle()
    assert addresses(operator) == held


async def test_a_range_that_lacks_only_the_other_family_is_not_full() -> None:
    operator = await led(f"{X},fd00::1-fd00::2", "10.0.9.1,fd00::9")
    operator.ask(B, X, range_name="range-0")
    operator.ask(A, range_name="", ipFamilies=["IPv6"])
    await operator.settle()
    assert addresses(operator) == {X, "fd00::1"}


async def test_what_waits_for_a_family_waits_for_a_range_that_has_it() -> None:
    operator = await led(X, "10.0.0.11,fd00::1")
    operator.ask(B, "fd00::1", range_name="range-1")
    await operator.settle()
    operator.ask(A, range_name="", ipFamilies=["IPv6"])
    await operator.settle()
    assert addresses(operator) == {"fd00::1"}
    operator.give_up(B)
    await operator.pass_time(3600)
    assert operator.held() == {f"default.{'fd00' + '0' * 27 + '1'}": A}


@pytest.mark.parametrize(
    ("pool", "asked", "then"),
    [
        (X, {}, {"ipFamilies": ["IPv6"]}),
        (f"{X},fd00::1", {"ipFamilyPolicy": "RequireDualStack"}, {"ipFamilies": ["IPv6"]}),
        (f"{X},fd00::1", {"ipFamilyPolicy": "RequireDualStack"}, {"ipFamilyPolicy": "SingleStack"}),
    ],
)
async def test_no_address_of_a_family_that_is_not_wanted_any_more_is_written_into_an_emptied_spec(
    pool: str, asked: dict[str, object], then: dict[str, object]
) -> None:
    """It made the spec invalid, which never ended."""
    operator = await led(pool)
    operator.ask(A, range_name="", **asked)  # type: ignore[arg-type]
    await operator.settle()
    before = addresses(operator)
    found = operator.memory.objects[KEY]
    metadata = {**found["metadata"], "annotations": {names.ANNOTATION_RANGE: "missing"}}
    operator.memory.put(KEY, {**found, "metadata": metadata, "spec": {"ipaddress": "", **then}})
    await operator.settle()
    await operator.pass_time(120)
    assert addresses(operator) == before
    assert operator.asked_for(A) == ""
    operator.add_range("missing", "10.0.8.9,fd00::9")
    await operator.settle()
    await operator.pass_time(3600)
    wanted = {"fd00::9"} if "ipFamilies" in then else {"10.0.8.9"}
    assert addresses(operator) == wanted
    assert {operator.asked_for(A)} == wanted


def addresses(operator: SmallOperator) -> set[str]:
    """Return the addresses that are held."""
    return {each for each in ALL if operator.holders(each)}


ALL = (X, "10.0.8.9", "10.0.0.11", "fd00::1", "fd00::2", "fd00::9")
