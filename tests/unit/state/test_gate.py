"""What must have happened before addresses are given out."""

from typing import Any

from fipop.state.gate import AllocationGate
from tests.harness.objects import reservation


def build(**fields: Any) -> AllocationGate:
    """A gate where each guest could be served by range "blue", and carry what begins with 10.0.0."""
    return AllocationGate(
        lambda range_name, guest_ids: range_name == "blue" and any(guest_ids),
        lambda _guest_id, reservation: reservation.address.startswith("10.0.0."),
        **fields,
    )


HELD = reservation("10.0.0.1", namespace="c-m-1")


def answers(gate: AllocationGate) -> list[bool]:
    """Whether all are open, range "blue", range "green", and whether what is held may be written."""
    return [gate.is_open(), gate.is_open("blue"), gate.is_open("green"), gate.may_write(HELD)]


def test_everything_starts_closed() -> None:
    gate = build()
    gate.adopted = True
    assert answers(gate) == [False, False, False, False]


def test_it_is_open_when_all_were_adopted_and_no_guest_is_waited_for() -> None:
    gate = build(is_shut=False)
    assert gate.looked
    assert answers(gate) == [False, False, False, True]
    gate.adopted = True
    assert answers(gate) == [True, True, True, True]


def test_a_guest_that_is_waited_for_keeps_shut_what_could_serve_it() -> None:
    gate = build(adopted=True, is_shut=False, awaited={"c-m-2": 60.0})
    assert not gate.looked
    assert answers(gate) == [False, False, True, False]
    assert gate.may_write(reservation("10.0.1.1", namespace="c-m-1"))


def test_no_owner_waits_for_its_own_guest() -> None:
    assert build(is_shut=False, awaited={"c-m-1": 60.0}).may_write(HELD)
