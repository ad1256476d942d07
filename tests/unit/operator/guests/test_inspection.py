"""What a guest carries, and what a pass may be about to write there."""

from __future__ import annotations

import pytest

from fipop.errors import GuestUnreadableError
from fipop.ipam.addresses import parse_address
from tests.harness.small_operator import SmallOperator

A, X = "c-m-a", parse_address("10.0.0.10")


async def serving() -> SmallOperator:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    return operator


async def test_who_carries_an_address_is_told_as_a_sentence() -> None:
    operator = await serving()
    inspector = operator.manager.inspector
    assert await inspector.find_carrier(A, X) is None
    operator.carried.services[A] = "10.0.0.10"
    carrier = await inspector.find_carrier(A, X)
    assert carrier == f"Service shop/web in guest cluster {A} uses 10.0.0.10"
    assert await inspector.carries(A, X)


async def test_an_address_that_a_pass_may_be_writing_counts_as_carried_until_its_end() -> None:
    """Its write may come after the look."""
    operator = await serving()
    inspector = operator.manager.inspector
    operator.manager.guests.under_way[A] = frozenset({"10.0.0.10"})
    assert A in (await inspector.find_carrier(A, X) or "")
    assert not await inspector.carries(A, X), "the guest itself does not"
    del operator.manager.guests.under_way[A]
    assert await inspector.find_carrier(A, X) is None


async def test_in_a_check_a_pass_counts_that_ended_since_the_guest_was_asked() -> None:
    """The guest is asked once, for all addresses: what the pass wrote after that is not in the answer."""
    operator = await serving()
    inspector = operator.manager.inspector.asking_once()
    operator.manager.guests.under_way[A] = frozenset({"10.0.0.10"})
    assert await inspector.find_carrier(A, parse_address("10.0.0.11")) is None
    del operator.manager.guests.under_way[A]
    operator.carried.config_maps[A] = "10.0.0.10/32"
    assert A in (await inspector.find_carrier(A, X) or "")


async def test_a_guest_that_does_not_answer_is_not_one_that_carries_nothing() -> None:
    operator = await serving()
    operator.carried.silent.add(A)
    with pytest.raises(GuestUnreadableError):
        await operator.manager.inspector.read_in_use(A)


async def test_only_a_guest_that_rancher_is_connected_to_can_be_asked() -> None:
    operator = await serving()
    operator.add_guest("c-m-b", connected=False)
    assert await operator.manager.inspector.can_be_asked(A)
    assert not await operator.manager.inspector.can_be_asked("c-m-b")
