"""A reservation that vanishes is created again for its owner: what a status names is in use, and is not released."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.fleet import Fleet, build_fleet

A, B, C = "c-m-a", "c-m-b", "c-m-c"
X, Y, Z = "10.0.0.10", "10.0.0.11", "10.0.0.12"
NAME = f"default.{X}"
V6, V6_NAME = "fd00::10", "default.fd000000000000000000000000000010"
ENDED = 1200
"""A quarantine is over by then, and so are the visits after it."""


async def holding(iprange: str = "10.0.0.10-10.0.0.13") -> Fleet:
    """Have A hold X, and B hold Y."""
    fleet = build_fleet(A, B, C, iprange=iprange)
    await fleet.start(leader_election=False)
    for each in (A, B):
        fleet.ask(each)
        await fleet.pass_time(2)
    assert fleet.held() == {NAME: A, f"default.{Y}": B}
    return fleet


REQUESTS: dict[str, Callable[[Fleet], Any]] = {
    "nothing else": lambda _: None,
    "an address of another one": lambda fleet: fleet.ask_for_another(A, Y),
    "a family that the range does not have": lambda fleet: fleet.change(A, ipFamilyPolicy="RequireDualStack"),
    "both families in an order": lambda fleet: fleet.change(A, ipFamilies=["IPv4", "IPv6"]),
    "an address of the other family out of the range": lambda fleet: fleet.change(
        A, ipaddress=f"{X},fd00::99"
    ),
    "a range that does not exist": lambda fleet: fleet.ask_for_range(A, "typo"),
    "a full range of another address space": lambda fleet: fleet.move_to_space(A, iprange=Y, exclude=Y),
    "nothing else, and another one for it": lambda fleet: fleet.ask_for_another(B, X),
    "a range that was made unreadable": lambda fleet: fleet.change_range(iprange="nonsense"),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_reservation_that_vanishes_is_created_again_while_its_owner_asks_for(what: str) -> None:
    fleet = await holding()
    REQUESTS[what](fleet)
    fleet.remove_reservation(NAME)
    await fleet.pass_time(5)
    assert fleet.held() == {NAME: A, f"default.{Y}": B}
    assert (fleet.addresses(A), fleet.guests[A].addresses) == ([X], {X})
    assert fleet.problems == []
    fleet.change_range(iprange="10.0.0.10-10.0.0.13")
    fleet.ask(C)
    await fleet.pass_time(5)
    assert fleet.addresses(C) == [Z]


async def test_an_address_whose_reservation_was_created_again_becomes_free_when_its_owner_is_gone() -> None:
    fleet = await holding()
    fleet.remove_reservation(NAME)
    await fleet.pass_time(5)
    fleet.give_up(A)
    await fleet.pass_time(ENDED)
    fleet.ask(C)
    await fleet.pass_time(5)
    assert fleet.addresses(C) == [X]


async def test_what_a_status_alone_names_stays_its_owners_when_its_range_is_created_later() -> None:
    fleet = Fleet()
    for each in (A, B):
        fleet.add_guest(each)
    fleet.ask(B, has=X)
    await fleet.start(leader_election=False)
    fleet.ask(A)
    await fleet.pass_time(5)
    assert (fleet.holders(X), fleet.addresses(A)) == ({B}, [])
    fleet.add_range()
    await fleet.pass_time(70)
    assert fleet.held() == {NAME: B, f"default.{Y}": A}


async def test_a_request_outlives_the_reservation_that_vanishes() -> None:
    fleet = await holding()
    fleet.ask_for_another(A, Y)
    fleet.remove_reservation(NAME)
    await fleet.pass_time(5)
    assert fleet.asked_for(A) == Y
    fleet.give_up(B)
    await fleet.pass_time(ENDED)
    assert (fleet.held(), fleet.guests[A].addresses) == ({f"default.{Y}": A}, {Y})


async def test_an_address_that_its_owner_leaves_while_its_reservation_vanishes_ends_in_quarantine() -> None:
    fleet = await holding("10.0.0.10-10.0.0.13,fd00::10-fd00::13")
    fleet.remove_reservation(NAME)
    fleet.change(A, ipaddress=V6)
    await fleet.pass_time(5)
    assert fleet.held() == {V6_NAME: A, f"default.{Y}": B}
    assert fleet.quarantined() == {NAME}


async def test_two_statuses_that_name_an_address_leave_it_to_the_one_with_the_reservation() -> None:
    fleet = build_fleet(A, B)
    fleet.ask(A, has=X)
    fleet.ask(B, has=X)
    fleet.reserve(X, B)
    await fleet.start(leader_election=False)
    assert fleet.holders(X) == {B}
    assert fleet.condition(A) == ("False", "AddressInUse")


async def test_two_statuses_that_name_an_address_without_a_reservation_leave_it_to_the_older_floating_ip() -> (
    None
):
    fleet = build_fleet(A, B)
    fleet.ask(B, has=X)
    await fleet.pass_time(1000)
    fleet.ask(A, has=X)
    fleet.guests[B].add_service(X)
    await fleet.start(leader_election=False)
    await fleet.pass_time(120)
    assert (fleet.held()[NAME], fleet.holders(X)) == (B, {B})


async def test_a_reservation_that_vanished_while_no_leader_worked_is_created_again_in_a_limited_range() -> (
    None
):
    fleet = await holding()
    fleet.change_range(maxPerGuest=2)
    await fleet.pass_time(5)
    await fleet.stop()
    fleet.remove_reservation(NAME)
    fleet.ask(C)
    await fleet.start(leader_election=False)
    await fleet.pass_time(60)
    assert fleet.held() == {NAME: A, f"default.{Y}": B, f"default.{Z}": C}
