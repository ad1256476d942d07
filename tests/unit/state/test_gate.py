"""What must have happened before addresses are given out."""

from typing import Any

from fipop.state.gate import AllocationGate
from tests.harness.objects import reservation


def build(**fields: Any) -> AllocationGate:
    """A gate where each guest could be served by range "blue"."""
    return AllocationGate(lambda range_name, _guest_id: range_name == "blue", **fields)


HELD = reservation("10.0.0.1", namespace="c-m-1", range_name="blue")


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
    assert gate.may_write(reservation("10.0.1.1", namespace="c-m-1", range_name="green"))


def test_no_owner_waits_for_its_own_guest() -> None:
    assert build(is_shut=False, awaited={"c-m-1": 60.0}).may_write(HELD)


def test_a_range_opens_with_the_last_guest_that_it_could_serve_and_shuts_for_one_that_it_can_serve_later() -> (
    None
):
    served = {("blue", "c-m-2"), ("blue", "c-m-3")}
    gate = AllocationGate(lambda *pair: pair in served, adopted=True, is_shut=False)
    gate.wait_for(["c-m-2", "c-m-3", "c-m-4"], 60.0)
    assert not gate.is_open("blue")
    for guest_id in ("c-m-2", "c-m-3"):
        assert not gate.is_open("blue")
        del gate.awaited[guest_id]
    assert gate.is_open("blue")
    served.add(("blue", "c-m-4"))
    gate.note_changed("c-m-4")
    assert not gate.is_open("blue")
    served.remove(("blue", "c-m-4"))
    assert gate.is_open("blue")
    gate.wait_for(["c-m-3"], 60.0)
    assert not gate.is_open("blue")


def test_hundreds_of_ranges_and_thousands_of_guests_are_not_all_compared_again_and_again() -> None:
    asked: list[tuple[str, str]] = []

    def could_serve(range_name: str, guest_id: str) -> bool:
        asked.append((range_name, guest_id))
        return guest_id.endswith(range_name)

    gate = AllocationGate(could_serve, adopted=True, is_shut=False)
    gate.wait_for([f"c-m-{number}" for number in range(400)], 60.0)
    ranges = [f"-{number}" for number in range(0, 800, 10)]
    found = [gate.is_open(each) for each in ranges]
    assert found == [number >= 400 for number in range(0, 800, 10)]
    first, rounds = len(asked), 100
    for _ in range(rounds):
        assert [gate.is_open(each) for each in ranges] == found
    assert len(asked) - first <= rounds * len(ranges)
