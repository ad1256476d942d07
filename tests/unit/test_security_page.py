"""The page on testing names the tests behind each statement of the security model: those tests exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contributing" / "testing.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    found = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 30
    assert sorted(set(named) - found) == []


def test_every_statement_of_the_table_names_its_test() -> None:
    table = PAGE.partition("| statement | tests |\n|---|---|\n")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert [row for row in rows if "`test_" not in row] == []
