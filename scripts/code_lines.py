#!/usr/bin/env python3
"""Count the lines of code of packages: without blanks, comments and docstrings.

    scripts/code_lines.py [FOLDER ...]      default: fipop

Prints the whole, and modules above 300 lines and functions above 40 (of the file, as people read them).
"""

from __future__ import annotations

import ast
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 300
FUNCTION_LINES = 40
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(path: Path) -> set[int]:
    """The numbers of the lines that hold code."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    with path.open("rb") as file:
        found = {
            line
            for token in tokenize.tokenize(file.readline)
            if token.type not in _NO_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
    for node in ast.walk(tree):
        for body in getattr(node, "body", None), getattr(node, "orelse", None):
            for each in body if isinstance(body, list) else ():
                # A text that stands alone is a docstring, of an attribute too.
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    found -= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    return found


def long_functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of more than FUNCTION_LINES lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield node.name, length


def main(folders: list[str]) -> int:
    """Print; 0."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*.py"))
    for path in paths:
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > MODULE_LINES:
            print(f"{path}: {length} lines")
        for name, lines in long_functions(path):
            print(f"{path}: {name} has {lines} lines")
    print(sum(len(code_lines(path)) for path in paths))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["fipop"]))
