"""What a work queue and its handlers tell each other."""

from fipop.control.runs import Priority


def test_what_is_more_urgent_sorts_first() -> None:
    assert sorted(Priority) == [Priority.URGENT, Priority.NORMAL, Priority.BACKGROUND]
