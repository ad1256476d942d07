"""A range that changes its address space: what was given out in the old one is not given to others in the new one."""

from tests.unit.operator.small_operator import SmallOperator

A, B, C, NEW = "c-m-a", "c-m-b", "c-m-c", "c-m-new"
X, Y = "10.0.0.10", "10.0.0.11"
QUARANTINE = 600
HOUR = 3600


async def test_who_waits_for_a_full_range_gets_nobodys_address_when_its_space_is_renamed() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{Y}")
    await operator.start()
    operator.ask(B)
    operator.ask(C)
    await operator.settle()
    operator.ask(A)
    await operator.settle()
    assert operator.holders(X) | operator.holders(Y) == {B, C}
    operator.change_range(addressSpace="lab")
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.held() == {f"lab.{X}": B, f"lab.{Y}": C}
    assert operator.holders(X) == {B}
    assert operator.holders(Y) == {C}
    operator.give_up(B)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.holders(X) == {A}


async def test_a_rename_while_no_operator_ran_gives_nothing_to_an_older_floating_ip_that_waits() -> None:
    operator = SmallOperator()
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_guest(A)
    operator.ask(NEW)
    await operator.pass_time(10)
    operator.ask(A, has=X)
    operator.reserve(X, A)
    operator.carried.config_maps[A] = f"{X}/32"
    operator.carried.services[A] = X
    operator.change_range(addressSpace="lab")
    await operator.start()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.holders(X) == {A}
    assert operator.held() == {f"lab.{X}": A}
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.holders(X) == set(), "its guest carries it still"
    operator.carried.config_maps.clear()
    operator.carried.services.clear()
    await operator.pass_time(QUARANTINE)
    assert operator.holders(X) == {NEW}


async def renamed_under_one_that_cannot_move() -> SmallOperator:
    """A holds X and asks for what it cannot have, so it stays in the old space when the range is of a new one."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.ask_for_another(A, "10.0.0.99")
    await operator.settle()
    operator.change_range(addressSpace="lab")
    return operator


async def test_an_owner_that_cannot_move_to_the_new_space_keeps_its_address_from_others_there() -> None:
    """It asks for an address that it cannot have, so what it holds stays in the old space."""
    operator = await renamed_under_one_that_cannot_move()
    await operator.settle()
    await operator.pass_time(HOUR)
    operator.ask(NEW)
    await operator.settle()
    assert operator.holders(X) == {A}
    assert operator.holders(Y) == {NEW}
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(C)
    await operator.settle()
    assert operator.holders(X) == {C}


async def test_a_stranger_that_asks_by_name_does_not_get_it_in_the_new_space_either() -> None:
    operator = await renamed_under_one_that_cannot_move()
    operator.ask(NEW, X)
    await operator.settle()
    assert operator.holders(X) == {A}
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(2 * QUARANTINE)
    assert operator.holders(X) == {NEW}


async def test_a_quarantine_goes_on_in_the_new_space_as_long_as_the_guest_carries_the_address() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    operator.carried.services[A] = X
    await operator.settle()
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(HOUR)
    operator.change_range(addressSpace="lab")
    operator.ask(NEW)
    await operator.settle()
    assert operator.holders(X) == set()
    assert operator.holders(Y) == {NEW}
    operator.carried.services.clear()
    await operator.pass_time(2 * QUARANTINE)
    operator.ask(C)
    await operator.settle()
    assert operator.holders(X) == {C}


async def quarantined_in_the_old_space(operator: SmallOperator) -> None:
    """A moved to the new space with its address, which its guest carries; the old space's waits for its end."""
    operator.add_range(iprange=f"{X}-{X}")
    operator.add_guest(A)
    await operator.start()
    operator.ask(A)
    await operator.settle()
    operator.carried.services[A] = X
    operator.change_range(addressSpace="lab")
    await operator.settle()
    assert operator.held() == {f"lab.{X}": A}
    assert operator.quarantined() == {f"default.{X}"}


async def test_an_address_that_its_guest_carries_for_the_new_space_is_freed_in_the_old_one() -> None:
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    await operator.pass_time(QUARANTINE + 1)
    assert operator.quarantined() == set()
    assert operator.held() == {f"lab.{X}": A}


async def test_of_two_spaces_in_quarantine_neither_ends_while_the_guest_carries_the_address() -> None:
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    operator.give_up(A)
    await operator.settle()
    await operator.pass_time(3 * QUARANTINE)
    assert operator.quarantined() == {f"default.{X}", f"lab.{X}"}
    operator.carried.services.clear()
    await operator.pass_time(QUARANTINE)
    assert operator.quarantined() == set()


async def test_a_hold_in_the_new_space_that_only_a_late_store_still_knows_frees_nothing_in_the_old_one() -> (
    None
):
    operator = SmallOperator()
    await quarantined_in_the_old_space(operator)
    operator.remove_unseen(f"lab.{X}")
    await operator.pass_time(QUARANTINE + 1)
    assert f"default.{X}" in operator.quarantined()
