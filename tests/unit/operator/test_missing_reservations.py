"""A reservation that is missing does not give the address of its owner to another: it is made again."""

from tests.unit.operator.small_operator import SmallOperator

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y = "10.0.0.10", "10.0.0.11"
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
