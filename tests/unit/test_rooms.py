"""Every module of the product has a test file of its name: whoever changes one knows where its tests are."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]

PUTS_TOGETHER = {"operator/address_parts.py"}
"""Builds parts out of others and decides nothing: every test of a leader's term goes through it."""


def decides_nothing(path: Path) -> bool:
    """Whether a module only declares: types, fields, protocols, constants."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return all(_is_declared(each) for each in functions)


def _is_declared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in function.body)


def test_every_module_that_decides_anything_has_a_test_file_of_its_name() -> None:
    """Where several modules share a name, so many test files have it, too."""
    package = ROOT / "fipop"
    modules: dict[str, list[str]] = defaultdict(list)
    for path in package.rglob("*.py"):
        if path.name != "__init__.py" and not decides_nothing(path):
            modules[path.name].append(str(path.relative_to(package)))
    files = Counter(path.name.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py"))
    untested = {each for name, found in modules.items() if files[name] < len(found) for each in found}
    assert untested == PUTS_TOGETHER
