"""The tables of the documentation that are made from the code are what the code makes of them now."""

import json
from pathlib import Path

import pytest

from scripts.docs_tables import (
    TableError,
    build_tables,
    describe_type,
    find_problems,
    main,
    names_of,
    render_table,
    replace_tables,
)

PAGE = """\
# Page

<!-- begin generated: one -->

| A |
| --- |
| old |

<!-- end generated: one -->

Text.
"""
DEFINITIONS = json.loads((Path(__file__).parents[3] / "values.schema.json").read_text())["definitions"]


def test_the_pages_have_the_tables_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_a_table_replaces_what_is_between_its_marks_and_nothing_else() -> None:
    replaced = replace_tables(PAGE, {"one": "new"})
    assert replaced == PAGE.replace("| A |\n| --- |\n| old |", "new")
    assert replace_tables(replaced, {"one": "new"}) == replaced
    assert names_of(replaced) == ["one"]


def test_a_page_with_a_table_that_nothing_makes_is_an_error() -> None:
    with pytest.raises(TableError, match="one"):
        replace_tables(PAGE, {"two": "new"})


def test_a_table_that_differs_and_one_that_no_page_has_are_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    problems = list(find_problems([page], {"one": "new", "two": "new"}, root=tmp_path))
    assert problems == [
        "page.md: the table one differs; run: python -m scripts.docs_tables --update",
        "no page of docs/ has the table two",
    ]


def test_a_bar_in_a_cell_does_not_end_it() -> None:
    assert render_table(("A", "B"), [("`x|y`", "")]) == "| A | B |\n| --- | --- |\n| `x\\|y` | |"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "boolean"}, "boolean"),
        ({"type": "integer", "minimum": 1, "maximum": 64}, "integer, 1 to 64"),
        ({"type": "integer", "minimum": 1, "maximum": 2147483647}, "integer, at least 1"),
        ({"type": "string", "maxLength": 9}, "string"),
        ({"enum": ["auto", True, False, "true", "false"]}, "`auto`, `true`, `false`"),
        ({"type": ["integer", "string"], "pattern": "^[1-9]%$"}, "number or percentage"),
        ({"type": ["object", "string"]}, "YAML"),
        ({"type": "array", "items": {"type": "string"}}, "list of strings"),
        ({"type": "array", "items": {"$ref": "#/definitions/namespace"}}, "list of namespace names"),
        ({"$ref": "#/definitions/chartVersion"}, "version"),
        ({"type": "string", "format": "date-time"}, "time"),
    ],
    ids=str,
)
def test_a_schema_is_described_in_words(schema: dict[str, object], words: str) -> None:
    assert describe_type(schema, DEFINITIONS) == words


def test_every_cell_is_one_line() -> None:
    tables = {name: text for name, text in build_tables().items() if text.startswith("|")}
    assert len(tables) > 30
    for name, text in tables.items():
        assert len({line.replace("\\|", "").count("|") for line in text.splitlines()}) == 1, name
