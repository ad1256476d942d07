"""What was begun for a wish that cannot be followed any more serves nobody, and goes."""

from collections.abc import Callable

import pytest

from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS
from tests.harness.small_operator import SmallOperator

A, B = "c-m-a", "c-m-b"
X, Y = "10.0.0.10", "10.0.0.11"
HOUR = 3600


def make_unreadable(operator: SmallOperator) -> None:
    operator.change(FLOATING_IPS, A, "web", {"ipaddress": f"{Y},fd00::10", "ipFamilyPolicy": "SingleStack"})


def take_its_range_away(operator: SmallOperator) -> None:
    operator.ask_for_another(A, Y)
    operator.memory.remove((FLOATING_IP_RANGES.plural, "", "pool"))


def name_a_range_that_does_not_give_it_out(operator: SmallOperator) -> None:
    operator.ask_for_another(A, Y)
    operator.add_range("far", "10.0.1.0/28")
    operator.ask_for_range(A, "far")


async def begin_a_move() -> SmallOperator:
    """A holds X, and Y is reserved for it and not named yet."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.reserve(Y, A)
    return operator


@pytest.mark.parametrize(
    "spoil", [make_unreadable, take_its_range_away, name_a_range_that_does_not_give_it_out]
)
async def test_the_new_address_of_a_move_is_given_back_where_its_wish_cannot_be_followed_any_more(
    spoil: Callable[[SmallOperator], None],
) -> None:
    """It was reserved and not named yet: it stayed so for good, and nobody else could get it."""
    operator = await begin_a_move()
    spoil(operator)
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == {f"default.{X}": A}
    assert operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["addresses"] == [X]
    assert not operator.quarantined()


async def test_a_wish_that_is_another_by_now_keeps_what_was_begun_for_it() -> None:
    """While the round that gave the old wish up was under way, people corrected it."""
    operator = await begin_a_move()
    make_unreadable(operator)
    operator.memory.pass_time(HOUR)  # nobody who wrote the reservation can be about to name it any more

    def correct_once(verb: str) -> None:
        if verb == "patch":
            operator.client.on_commit = None
            operator.change(FLOATING_IPS, A, "web", {"ipaddress": Y, "ipFamilyPolicy": "SingleStack"})

    operator.client.on_commit = correct_once
    quarantined: list[str] = []
    operator.memory.listeners.append(lambda _: quarantined.extend(operator.quarantined()))
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == {f"default.{Y}": A}
    assert f"default.{Y}" not in quarantined


async def test_what_was_begun_stays_while_it_is_told_first_that_another_address_went_to_another() -> None:
    """Its wish was not looked at in that round: the next one follows it."""
    operator = SmallOperator()
    operator.add_range(iprange="10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.ask_for_another(A, f"{X},fd00::10")
    await operator.settle()
    begun = "default.fd000000000000000000000000000011"
    operator.reserve("fd00::11", A)
    wish = {"ipaddress": f"{X},fd00::11", "ipFamilyPolicy": "PreferDualStack"}
    operator.change(FLOATING_IPS, A, "web", wish)
    operator.remove_reservation(f"default.{X}")
    operator.ask(B, has=X)
    operator.reserve(X, B)
    operator.memory.pass_time(HOUR)  # nobody who wrote the reservation can be about to name it any more
    quarantined: list[str] = []
    operator.memory.listeners.append(lambda _: quarantined.extend(operator.quarantined()))
    await operator.settle()
    await operator.pass_time(HOUR)
    assert operator.held() == {f"default.{X}": B, begun: A}
    assert begun not in quarantined
