"""The page on security names a test behind each of its sentences: those tests are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_test_that_the_page_names_is_there() -> None:
    found = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) > 30
    assert sorted(set(named) - found) == []


def test_every_claim_of_the_lists_names_its_test() -> None:
    trusted = PAGE.partition("## Fleet admin")[2].partition("## What remains")[0]
    claims = re.split(r"^- ", trusted, flags=re.MULTILINE)[1:]
    assert len(claims) > 20
    untested = [claim[:80] for claim in claims if "`test_" not in claim]
    assert untested == [
        "The options choose what helm installs in every guest that opted in, and so the editor rules t"[:80]
    ]
