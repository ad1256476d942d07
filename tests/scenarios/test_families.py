"""Ranges of one family, and floating IPs that ask for another, or for both."""

import pytest

from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
EVERY_GUEST = {"matchLabels": {}}
X = "10.0.0.10"


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


def addresses(operator: SmallOperator) -> set[str]:
    """Return the addresses that are held."""
    return {each for each in ALL if operator.holders(each)}


ALL = (X, "10.0.0.11", "fd00::1", "fd00::2", "fd00::9")
