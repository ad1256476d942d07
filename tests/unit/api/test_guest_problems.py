"""The problems of guest clusters on the Lease: bounded, complete in number, and nothing of what is no such text."""

import json

import pytest

from fipop.api.guest_problems import MOST_BYTES, GuestProblem, read_problems, write_problems

IDS = [f"c-m-{number:08}" for number in range(600)]


@pytest.mark.parametrize("message", ["Short.", "x" * 1024, "é" * 300, '"' * 200])
@pytest.mark.parametrize("of_each", [1, 40, 600])
@pytest.mark.parametrize("count", [1, 20, 600])
def test_problems_are_bounded_and_each_guest_cluster_is_named_or_counted(
    message: str, of_each: int, count: int
) -> None:
    guests = IDS[:count]
    problems = [
        GuestProblem(
            reason="GuestUnresolved", message=f"{number}{message}", guests=tuple(guests[number:][:of_each])
        )
        for number in range(0, count, of_each)
    ]
    text = write_problems(problems)
    assert len(json.dumps(text)) <= MOST_BYTES
    found = read_problems(text)
    assert sum(len(each.guests) + each.more for each in found) == count
    assert found[0].guests[0] == guests[0]
    named = [guest for each in found for guest in each.guests]
    assert named == guests[: len(named)]


@pytest.mark.parametrize(
    "text",
    ["", "{[", "[" * 1000, "1" * 1500, "{}", "null", json.dumps([{"reason": "R"}] * 9999), '"\\ud800"'],
)
def test_what_is_no_text_of_problems_has_none(text: str) -> None:
    assert read_problems(text) == ()


@pytest.mark.parametrize(
    "entry", [1, None, [], {"guests": 7, "more": "x", "reason": {}, "message": "\ud800"}]
)
def test_an_entry_of_wrong_types_names_nobody(entry: object) -> None:
    (found,) = read_problems(json.dumps([entry]))
    assert (found.reason, found.guests, found.more) == ("", (), 0)
