"""A reservation that is missing does not give the address of its owner to another: it is made again."""

import pytest

from fipop.kube.resources import FLOATING_IPS
from tests.harness.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
V6, V6_NAME = "fd00::10", "default.fd000000000000000000000000000010"
QUARANTINE = 600


async def given_to_another(operator: SmallOperator, guest_id: str = "c-m-late") -> None:
    """X, which nobody carries any more, goes to who asks next, once its quarantine is over."""
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(guest_id)
    await operator.settle()
    assert operator.holders(X) == {guest_id}


async def test_what_a_status_alone_names_stays_its_owners_though_its_range_comes_later() -> None:
    operator = SmallOperator()
    operator.add_guest(B)
    operator.ask(B, has=X)
    operator.carried.services[B] = X
    await operator.start()
    assert operator.holders(X) == {B}
    operator.ask(A)  # by its name it comes before the other
    await operator.settle()
    operator.add_range()
    await operator.settle()
    assert operator.held() == {f"default.{X}": B, f"default.{Y}": A}
    operator.carried.services.clear()
    operator.give_up(B)
    await operator.settle()
    await given_to_another(operator)


async def test_a_reservation_that_vanishes_while_its_range_cannot_be_read_is_made_again() -> None:
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(B)
    await operator.settle()
    operator.change_range(iprange="nonsense")
    await operator.settle()
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    assert operator.holders(X) == {B}
    operator.ask(A)
    await operator.settle()
    operator.change_range(iprange="10.0.0.10-10.0.0.13")
    await operator.settle()
    assert operator.held() == {f"default.{X}": B, f"default.{Y}": A}
    operator.give_up(B)
    await operator.settle()
    await given_to_another(operator)


async def test_a_reservation_that_vanishes_while_its_owner_asks_for_a_taken_address_is_made_again() -> None:
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    operator.ask(B)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A, f"default.{Y}": B}
    operator.ask_for_another(A, Y)
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A, f"default.{Y}": B, "default.10.0.0.12": C}
    operator.give_up(A)
    await operator.settle()
    await given_to_another(operator)


async def test_a_guest_keeps_its_address_while_the_reservation_is_missing() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    await operator.pass_time(10)  # a pass over a new guest waits for its kubeconfig
    await operator.visit(A)
    assert operator.carried.config_maps[A] == f"{X}/32"
    operator.remove_reservation(f"default.{X}")
    await operator.manager.passes.install(A)
    assert operator.carried.config_maps[A] == f"{X}/32"
    await operator.settle()
    await operator.visit(A)
    assert (operator.held(), operator.carried.config_maps[A]) == ({f"default.{X}": A}, f"{X}/32")


def wish(operator: SmallOperator, guest_id: str, **spec: object) -> None:
    """Have a floating IP ask for something else."""
    operator.change(FLOATING_IPS, guest_id, "web", spec)


async def held_by_a(iprange: str = "10.0.0.10-10.0.0.13") -> SmallOperator:
    operator = SmallOperator()
    operator.add_range(iprange=iprange)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    return operator


async def stays_with_a(operator: SmallOperator) -> None:
    """A has X, whose reservation vanishes: it is made again as it was, and who asks next gets another."""
    await operator.settle()
    before = operator.held()
    assert before[f"default.{X}"] == A
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    assert operator.held() == before
    operator.ask(C)
    await operator.settle()
    assert operator.held() == {**before, f"default.{Y}": C}
    assert operator.holders(X) == {A}


@pytest.mark.parametrize(
    "spec", [{"ipFamilyPolicy": "RequireDualStack"}, {"ipFamilies": ["IPv4", "IPv6"]}], ids=str
)
async def test_a_reservation_that_vanishes_while_its_owner_asks_for_a_family_too_many_is_made_again(
    spec: dict[str, object],
) -> None:
    operator = await held_by_a()
    wish(operator, A, **spec)
    await stays_with_a(operator)


async def test_a_reservation_that_vanishes_while_the_other_family_is_refused_is_made_again() -> None:
    operator = await held_by_a("10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    wish(operator, A, ipaddress=f"{X},fd00::99")
    await stays_with_a(operator)


async def test_a_reservation_that_vanishes_while_its_owner_waits_for_another_space_is_made_where_it_was() -> (
    None
):
    operator = await held_by_a()
    operator.add_range("other", "10.1.0.1", addressSpace="lab")
    operator.ask(B)
    await operator.settle()
    operator.ask_for_range(B, "other")
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {f"default.{X}": A, "lab.10.1.0.1": B}
    operator.ask_for_range(A, "other")
    await stays_with_a(operator)


async def test_a_wish_outlives_the_reservation_that_vanishes() -> None:
    operator = await held_by_a()
    operator.ask(B)
    await operator.settle()
    operator.ask_for_another(A, Y)
    await operator.settle()
    operator.remove_reservation(f"default.{X}")
    await operator.settle()
    assert operator.memory.objects[FLOATING_IPS.plural, A, "web"]["spec"]["ipaddress"] == Y
    operator.give_up(B)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {f"default.{Y}": A}


async def test_a_reservation_that_vanishes_as_its_owner_wants_another_family_ends_in_quarantine() -> None:
    """The guest carries the address until it is told."""
    operator = await held_by_a("10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    operator.remove_reservation(f"default.{X}")
    wish(operator, A, ipaddress=V6)
    await operator.settle()
    assert operator.held() == {V6_NAME: A}
    assert operator.quarantined() == {f"default.{X}"}


async def test_a_vanished_reservation_that_another_has_by_now_is_told_and_not_fought_for() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.ask(A, has=X)
    operator.ask(B, has=X)
    operator.reserve(X, B)
    await operator.start()
    assert operator.held() == {f"default.{X}": B}
    assert operator.holders(X) == {B}
    status = operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]
    assert status["conditions"][0]["reason"] == "AddressInUse"


async def test_who_is_asking_for_an_address_when_its_reservation_vanishes_does_not_get_it() -> None:
    """It saw a reservation that the API server has no more: its holder has the address all the same, and keeps it."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    assert operator.holders(X) == {A}
    operator.remove_unseen(f"default.{X}")
    operator.ask(B, X)
    await operator.settle()
    assert operator.holders(X) == {A}


async def test_a_reservation_that_vanishes_while_what_a_move_left_is_held_too_is_made_again() -> None:
    """Something of that family was held, so nothing seemed lost: the status lost the address that its guest carried."""
    operator = await held_by_a()
    operator.reserve(Y, A)
    operator.change_range(draining=True)
    wish(operator, A, ipaddress="10.0.0.12", ipFamilyPolicy="RequireDualStack")
    operator.remove_reservation(f"default.{X}")
    named: set[tuple[str, ...]] = set()
    operator.memory.listeners.append(
        lambda _: named.add(
            tuple(operator.memory.objects[FLOATING_IPS.plural, A, "web"]["status"]["addresses"])
        )
    )
    await operator.settle()
    await operator.pass_time(QUARANTINE)
    assert named == {(X,)}
    assert operator.held() == {f"default.{X}": A}


async def test_of_two_whose_statuses_name_an_address_without_a_reservation_the_older_keeps_it() -> None:
    """The older one, whose guest has the address, lost it, and the younger one got it."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.add_guest(B)
    operator.ask(B, has=X)
    operator.memory.pass_time(1000)
    operator.ask(A, has=X)
    operator.carried.services[B] = X
    await operator.start()
    await operator.pass_time(1000)
    assert operator.held()[f"default.{X}"] == B
    assert operator.holders(X) == {B}
