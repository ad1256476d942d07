"""An edit is found by function and expression, whatever the layout and the file, and replaces nothing else."""

from pathlib import Path

import pytest

from tests.faults.anchors import BugDoesNotFitError, Edit, apply

SOURCE = '''"""A module."""

LIMIT = 3  # of all


class Store:
    size = 1

    @property
    def is_open(self) -> bool:
        return self.ready and self.known

    def put(self, name: str, version: int) -> str | None:
        if (
            version   <= self.known( name, )  # an old one
        ):
            return None
        größe = "ß"; text = 'of ' + name
        self.note(name, key=lambda each: (each.a, each.b))
        return text

    async def sync(self) -> None:
        await self.refresh()
        body = {"name": "x", "version": str(self.version)}
        for each in range(LIMIT):
            # Twice, on purpose.
            self.note(each)
            self.note(each)
        await self.write(body)


def put(name: str) -> bool:
    return name != "" and len(name) < LIMIT
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "store.py").write_text(SOURCE)
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "other.py").write_text(
        "def put(name):\n    return name\n\n\ndef only():\n    return 1\n"
    )
    return tmp_path


def edited(
    package: Path, scope: str, before: str, after: str, *, file: str = "", nth: int | None = None
) -> str:
    """Return the source of the store after an edit."""
    edit = Edit(scope=scope, before=before, after=after, file=file, nth=nth)
    apply("a-bug", [edit], package)
    return (package / "store.py").read_text()


@pytest.mark.parametrize(
    ("scope", "before", "after", "old", "new"),
    [
        (
            "Store.put",
            "version<=(self.known(name))",
            "version < 0",
            "version   <= self.known( name, )",
            "version < 0",
        ),
        ("Store.put", "'''of '''", '"for "', "'of '", '"for "'),
        ("Store.put", "'of ' + name", "name", "'of ' + name", "name"),
        (
            "Store.put",
            "return text",
            "name = text\nreturn name",
            "return text",
            "name = text\n        return name",
        ),
        (
            "Store.put",
            "key=lambda each: (each.a, each.b,)",
            "key=None, reverse=True",
            "key=lambda each: (each.a, each.b)",
            "key=None, reverse=True",
        ),
        ("Store.is_open", "self.known", "self.a or self.b", "and self.known", "and (self.a or self.b)"),
        ("Store.is_open", "self.ready and self.known", "True", "self.ready and self.known", "True"),
        ("Store.sync", "await self.refresh()", "pass", "await self.refresh()", "pass"),
        ("Store.sync", "self.refresh()", "self.other()", "self.refresh()", "self.other()"),
        ("Store.sync", "'version': str(self.version)", "**{}", '"version": str(self.version)', "**{}"),
        ("Store.sync", '"name": "x"', '"a": 1, "name": "y"', '"name": "x"', '"a": 1, "name": "y"'),
        (
            "Store.sync",
            "self.note(each)\nself.note(each)",
            "if each:\n    self.note(each)",
            "self.note(each)\n            self.note(each)",
            "if each:\n                self.note(each)",
        ),
        ("put", "len(name) < LIMIT", "False", "len(name) < LIMIT", "False"),
    ],
    ids=(
        "another-layout",
        "other-quotes",
        "sub-expression",
        "statement-by-several",
        "keywords-of-a-call",
        "parentheses",
        "whole-expression",
        "no-statement",
        "part-of-a-statement",
        "no-item-of-a-dict",
        "items-of-a-dict",
        "statements",
        "function-of-a-module",
    ),
)
def test_a_part_of_a_function_is_replaced_and_nothing_else(
    package: Path, scope: str, before: str, after: str, old: str, new: str
) -> None:
    assert SOURCE.count(old) == 1
    assert edited(package, scope, before, after) == SOURCE.replace(old, new)


def test_a_class_and_a_module_are_places_without_their_functions(package: Path) -> None:
    assert "size = 2\n" in edited(package, "Store", "1", "2")
    with pytest.raises(
        BugDoesNotFitError, match=r"found 0 times.* in Store of store\.py: .*Store\.is_open of"
    ):
        edited(package, "Store", "self.ready", "True")
    assert "LIMIT = 4  # of all\n" in edited(package, "", "3", "4", file="store.py")
    with pytest.raises(BugDoesNotFitError, match=r"in the module of store\.py: .*Store\.put of store\.py"):
        edited(package, "", "'of '", "''", file="store.py")


def test_of_several_that_are_alike_the_nth_is_replaced(package: Path) -> None:
    with pytest.raises(BugDoesNotFitError, match=r"bug a-bug: .* found 2 times, not once.*: lines 27, 28"):
        edited(package, "Store.sync", "self.note(each)", "pass")
    with pytest.raises(BugDoesNotFitError, match="found 2 times, not 3 times"):
        edited(package, "Store.sync", "self.note(each)", "pass", nth=3)
    text = edited(package, "Store.sync", "self.note(each)", "pass", nth=2)
    assert "            self.note(each)\n            pass\n" in text


def test_a_function_that_moved_is_found_or_told(package: Path) -> None:
    (package / "store.py").rename(package / "room" / "moved.py")
    edit = {"scope": "Store.put", "before": "'of ' + name", "after": "name"}
    with pytest.raises(
        BugDoesNotFitError, match=r"store\.py has no Store\.put: it is in room/moved\.py now$"
    ):
        apply("a-bug", [Edit(**edit, file="store.py")], package)
    apply("a-bug", [Edit(**edit)], package)
    assert "text = name\n" in (package / "room" / "moved.py").read_text()


def test_a_function_that_is_called_otherwise_now_is_told_by_what_it_holds(package: Path) -> None:
    with pytest.raises(
        BugDoesNotFitError, match=r"has no Ledger\.set: `'of ' \+ name` is in Store\.put of store\.py"
    ):
        edited(package, "Ledger.set", "'of ' + name", "name")
    with pytest.raises(BugDoesNotFitError, match=r"is nowhere; there are Store\.sync of store\.py"):
        edited(package, "Ledger.sync", "self.unheard_of", "name")
    with pytest.raises(BugDoesNotFitError, match="is nowhere, and nothing has such a name"):
        edited(package, "Ledger.unheard_of", "self.unheard_of", "name")


def test_of_functions_with_one_name_the_one_that_fits_is_meant(package: Path) -> None:
    assert "return name != x and" in edited(package, "put", "''", "x")
    with pytest.raises(BugDoesNotFitError, match=r"put is in room/other\.py, store\.py, and `name` in 2 of"):
        edited(package, "put", "name", "x")
    with pytest.raises(BugDoesNotFitError, match="`x == y` in 0 of them"):
        edited(package, "put", "x == y", "x")
    edited(package, "put", "name", "x", file="room/other.py")
    assert "    return x\n" in (package / "room" / "other.py").read_text()


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("return (", "pass", "not both Python of one kind"),
        ("return text", "", "not both Python of one kind"),
        ("text = 'of ' + name", "if name:\n    pass\nelse:\n    pass", "cannot be written instead of"),
        ("return text", "break", "cannot be written instead of"),
    ],
    ids=("no-python", "nothing", "beside-another-statement", "out-of-place"),
)
def test_what_leaves_no_python_is_refused_and_changes_nothing(
    package: Path, before: str, after: str, problem: str
) -> None:
    with pytest.raises(BugDoesNotFitError, match=problem):
        edited(package, "Store.put", before, after)
    assert (package / "store.py").read_text() == SOURCE


def test_a_target_is_no_expression_to_replace(package: Path) -> None:
    assert "return name" in edited(package, "Store.put", "text", "name")
