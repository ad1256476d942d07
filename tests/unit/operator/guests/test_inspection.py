"""What a guest cluster uses now, and what a visit may be about to write there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from fipop.api.models import Reservation
from fipop.errors import GuestUnreadableError
from tests.harness.small_operator import SmallOperator

A, X, Y = "c-m-a", "10.0.0.10", "10.0.0.11"


async def releasing() -> SmallOperator:
    """Guest cluster A had X and Y, which are in quarantine."""
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    for address in (X, Y):
        operator.reserve(address, A, until=operator.memory.now + timedelta(hours=1))
    await operator.start()
    return operator


def reservation_of(operator: SmallOperator, address: str) -> Reservation:
    found = operator.cache.reservations.get("", f"default.{address}")
    assert found is not None
    return found


@contextmanager
def visit_under_way(operator: SmallOperator, guest_id: str) -> Iterator[None]:
    """A visit goes on that may write X."""
    operator.manager.guests.under_way[guest_id] = frozenset({X})
    yield
    del operator.manager.guests.under_way[guest_id]


async def users(operator: SmallOperator, address: str) -> dict[str, str]:
    return await operator.manager.reported.begin_check()(reservation_of(operator, address), ())


async def test_what_uses_an_address_is_reported_as_a_sentence() -> None:
    operator = await releasing()
    assert await users(operator, X) == {}
    operator.carried.services[A] = X
    assert await users(operator, X) == {A: f"Service shop/web in guest cluster {A} uses {X}"}


async def test_an_address_that_a_visit_may_be_writing_counts_as_used_until_its_end() -> None:
    """It may write after the answer."""
    operator = await releasing()
    with visit_under_way(operator, A):
        assert A in await users(operator, X)
    assert await users(operator, X) == {}


async def test_in_a_check_a_visit_counts_that_ended_since_the_guest_cluster_was_asked() -> None:
    """The guest cluster is asked once, for all addresses: what the visit wrote after that is not in the answer."""
    operator = await releasing()
    find_users = operator.manager.reported.begin_check()
    with visit_under_way(operator, A):
        assert await find_users(reservation_of(operator, Y), ()) == {}
    operator.carried.config_maps[A] = f"{X}/32"
    assert A in await find_users(reservation_of(operator, X), ())


async def test_a_guest_cluster_that_does_not_answer_is_not_one_that_uses_nothing() -> None:
    operator = await releasing()
    operator.carried.silent.add(A)
    with pytest.raises(GuestUnreadableError):
        await users(operator, X)


async def test_only_a_guest_cluster_that_rancher_is_connected_to_is_asked() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.add_guest(A)
    operator.add_guest("c-m-b", connected=False)
    operator.carried.services |= {A: X, "c-m-b": Y}
    await operator.start()
    assert operator.quarantined() == {f"default.{X}"}
