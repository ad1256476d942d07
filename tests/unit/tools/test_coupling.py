"""What ties tests to the inside of the product is counted, and may only fall."""

import pytest

from scripts.coupling import Kind, Place, count, find_places, find_problems, lower, parse, render, totals

PRIVATE, PATCHED, NAMESPACE, CAST = Kind.PRIVATE_READ, Kind.PATCHED_INTERNAL, Kind.SIMPLE_NAMESPACE, Kind.CAST
FILE = "tests/unit/test_a.py"


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("operator._services", [PRIVATE]),
        ("self.cache._take(1)", [PRIVATE]),
        ("self._own, cls._own, operator.__class__, _local", []),
        ("from fipop.cli.main import _COMMANDS, main", [PRIVATE]),
        ("from tests.harness.terms import _own", []),
        ('monkeypatch.setattr("fipop.cli.status.read_facts", read)', [PATCHED]),
        ('monkeypatch.setattr(f"fipop.{module}.time", clock)', [PATCHED]),
        ('monkeypatch.setattr("tempfile.tempdir", None)', []),
        ('from fipop.runtime import process\nmonkeypatch.setattr(process, "SECONDS", 0.1)', [PATCHED]),
        ("from fipop.runtime import process\nprocess.SECONDS = 0.1", [PATCHED]),
        ('import fipop.runtime.process\nmock.patch.object(fipop.runtime.process, "SECONDS")', [PATCHED]),
        ('from unittest.mock import patch\npatch("fipop.cli.main.main")', [PATCHED]),
        ('patch(story, "fipop.cli")', []),
        ('import getpass\nmonkeypatch.setattr(getpass, "getuser", nobody)', []),
        ('monkeypatch.setattr(operator.client, "create", refuse)', [PATCHED]),
        ("monkeypatch.setattr(*STORIES[story])", [PATCHED]),
        ("found.name = 1; self.name = 1", []),
        ("from types import SimpleNamespace\nSimpleNamespace(a=1)", [NAMESPACE]),
        ("def fake() -> types.SimpleNamespace: ...", [NAMESPACE]),
        ("from typing import cast\ncast(int, cast(str, a))", [CAST, CAST]),
        ('typing.cast("int", a), self.cast(a)', [CAST]),
    ],
)
def test_a_tie_to_the_inside_is_counted(source: str, kinds: list[Kind]) -> None:
    assert [place.kind for place in find_places(source, FILE)] == kinds


def places(*lines: int, file: str = FILE, kind: Kind = CAST) -> list[Place]:
    return [Place(kind=kind, file=file, line=line) for line in lines]


def test_the_same_number_is_no_problem() -> None:
    assert find_problems({CAST: {FILE: 2}}, places(3, 9)) == []


def test_a_rise_fails_with_its_places() -> None:
    (found,) = find_problems({CAST: {FILE: 1}}, places(3, 9))
    assert found == f"2 casts, at most 1 are allowed: {FILE}:3, {FILE}:9"


def test_a_file_without_an_entry_may_have_none() -> None:
    (found,) = find_problems({PRIVATE: {FILE: 1}}, [*places(3), *places(4, kind=PRIVATE)])
    assert found == f"1 casts, at most 0 are allowed: {FILE}:3"


@pytest.mark.parametrize("left", [(), (3,)])
def test_a_fall_must_be_entered_and_an_update_enters_it(left: tuple[int, ...]) -> None:
    listed = {CAST: {FILE: 2}}
    (found,) = find_problems(listed, places(*left))
    assert found.endswith("run: python -m scripts.coupling --update")
    assert find_problems(lower(listed, count(places(*left))), places(*left)) == []


def test_an_update_raises_nothing() -> None:
    counted = count([*places(1, 2, 3), *places(1, file="tests/unit/test_b.py"), *places(1, kind=PRIVATE)])
    assert lower({CAST: {FILE: 2}}, counted) == {CAST: {FILE: 2}}


def test_what_is_written_is_read_back() -> None:
    numbers = {PRIVATE: {}, PATCHED: {FILE: 1}, NAMESPACE: {}, CAST: {FILE: 2, "tests/b.py": 1}}
    assert parse(render(numbers)) == numbers
    assert "casts 3 in 2 files" in totals(numbers)
