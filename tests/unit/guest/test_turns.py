"""Helm runs in few guests at a time; nobody is forgotten in the line, and nobody holds it up."""

from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.turns import HelmTurns

GUESTS = st.sampled_from("abcdef")
STEPS = st.lists(st.tuples(st.sampled_from(["ask", "done", "end"]), GUESTS), max_size=60)


def new_turns(limit: int = 1) -> tuple[HelmTurns, list[str]]:
    called: list[str] = []
    return HelmTurns(limit=limit, called=called.append), called


def test_who_asked_first_is_called_first_and_has_a_right_to_the_turn() -> None:
    turns, called = new_turns()
    assert [turns.take(guest) for guest in "abc"] == [True, False, False]
    for guest in "bc":
        turns.end_visit(guest)
    assert turns.waiting == 2
    turns.give_back("a")
    assert called == ["b"]
    assert not turns.take("d"), "who comes now comes last"
    assert not turns.take("c")
    assert turns.take("b")
    turns.end_visit("b")
    assert called == ["b", "c"]


def test_a_turn_is_for_all_releases_of_a_guest() -> None:
    turns, _ = new_turns()
    assert turns.take("a")
    assert turns.take("a")
    turns.end_visit("a")
    assert turns.take("b")


def test_who_no_longer_wants_its_turn_does_not_hold_up_the_others() -> None:
    turns, called = new_turns()
    for guest in "abc":
        turns.take(guest)
        if guest != "a":
            turns.end_visit(guest)
    turns.end_visit("a")
    assert called == ["b"]
    turns.end_visit("b")  # it was paused meanwhile: visited, and nothing asked
    assert called == ["b", "c"]
    assert turns.take("c")


@given(limit=st.integers(1, 3), steps=STEPS)
def test_no_more_than_allowed_run_and_whoever_is_next_was_called(
    limit: int, steps: list[tuple[str, str]]
) -> None:
    turns, called = new_turns(limit)
    running: set[str] = set()
    line: list[str] = []
    asked: set[str] = set()
    for step, guest in steps:
        if step == "ask":
            asked.add(guest)
            granted = turns.take(guest)
            if guest not in running and guest not in line:
                line.append(guest)
            expected = guest in running or guest in line[: limit - len(running)]
            assert granted == expected
            if granted and guest in line:
                line.remove(guest)
                running.add(guest)
        else:
            running.discard(guest)
            if step == "done":
                turns.give_back(guest)
            else:
                turns.end_visit(guest)
                if guest in line and guest not in asked:
                    line.remove(guest)
                asked.discard(guest)
        assert len(running) <= limit
        assert turns.waiting == len(line)
        # Whoever could go on now knows, or is at it: a pass of its that began before.
        assert all(one in called or one in asked for one in line[: limit - len(running)])
