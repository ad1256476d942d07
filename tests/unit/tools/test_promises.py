"""A promise of the suite cannot go without a word."""

import pytest

from scripts.promises import Promise, add_new, find_problems, ids_in, note_moves, parse, render

OLD, NEW, OTHER = (
    "tests/api/test_a.py::test_old",
    "tests/api/test_a.py::test_new",
    "tests/unit/test_b.py::test_c",
)
NAMES_CASES = "tests/api/test_a.py::test_table[a, b]"
UNCHANGED: frozenset[str] = frozenset()


def problems(*lines: str, existing: tuple[str, ...] = (), elsewhere: tuple[str, ...] = ()) -> list[str]:
    return find_problems(parse("\n".join(lines)), set(existing), set(elsewhere))


@pytest.mark.parametrize(
    "line",
    [
        f"{OLD} -> replaced by {NEW}",
        f"{OLD} -> replaced by {NEW}, {OTHER}",
        f"{OLD} -> replaced by {NAMES_CASES}, {NEW}",
        f"{OLD} -> replaced by tests/api/test_a.py::test_table",
        f"{OLD} -> replaced by seeded::youngest-first",
        f"{OLD} -> withdrawn because the option is gone",
    ],
)
def test_a_promise_may_go_with_a_note(line: str) -> None:
    existing = (NEW, NAMES_CASES, "seeded::youngest-first")
    assert problems(line, *existing, existing=existing, elsewhere=(OTHER,)) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (OLD, "is gone"),
        (f"{OLD} -> replaced by {OTHER}", f"its replacement {OTHER} does not exist"),
        (f"{OLD} -> replaced by {NEW}, {OTHER}", f"its replacement {OTHER} does not exist"),
        (f"{OLD} -> replaced by tests/api/test_a.py::test_n", "does not exist"),
        (f"{OLD} -> withdrawn because slow", "at least 3 words"),
        (f"{OLD} -> it was slow", "must begin with"),
        (f"{NEW} -> withdrawn because it is gone", "its note must go"),
    ],
)
def test_a_line_that_is_not_true_is_a_problem(line: str, words: str) -> None:
    (found,) = problems(line, *({NEW} - {line.partition(" -> ")[0]}), existing=(NEW,))
    assert found.startswith(line.partition(" -> ")[0])
    assert words in found


def test_a_new_promise_must_be_listed_and_an_update_lists_it() -> None:
    (found,) = problems(OLD, existing=(OLD, NEW))
    assert found.startswith(f"{NEW}: is not in the list")
    updated = add_new(parse(OLD), {OLD, NEW})
    assert find_problems(updated, {OLD, NEW}, UNCHANGED) == []


def test_an_update_removes_nothing() -> None:
    assert add_new(parse(OLD), {NEW}) == [Promise(id=OLD), Promise(id=NEW)]


def test_a_promise_is_listed_once() -> None:
    (found,) = problems(OLD, OLD, existing=(OLD,))
    assert "is listed 2 times" in found


def test_a_moved_test_is_noted_only_if_its_new_id_exists() -> None:
    lost = "tests/api/test_a.py::test_lost"
    moved = note_moves(
        parse(f"{OLD}\n{lost}"),
        {OTHER.replace("test_c", "test_old")},
        *("tests/api/test_a", "tests/unit/test_b"),
    )
    assert [promise.line for promise in moved] == [
        f"{OLD} -> replaced by tests/unit/test_b.py::test_old",
        lost,
    ]


def test_a_written_list_is_sorted_and_keeps_its_comments_and_notes() -> None:
    text = f"# Comment\n{OLD} -> replaced by {NEW}\n{NEW}\n"
    assert render(text, parse(text)) == f"# Comment\n{NEW}\n{OLD} -> replaced by {NEW}\n"


def test_ids_are_read_without_the_group_that_a_run_in_groups_adds() -> None:
    output = "tests/a.py::test_a[b@c]\ntests/a.py::test_a[b@c]@ha\ntests/a.py::test_d@own-store\n\n3 tests collected\n"
    assert ids_in(output) == {"tests/a.py::test_a[b@c]", "tests/a.py::test_d"}
