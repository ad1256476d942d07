"""Count what ties the tests to the inside of the product; the numbers may only fall.

    python -m scripts.coupling            one line for each difference from tests/coupling.toml; fails if there is any
    python -m scripts.coupling --update   lower the numbers in tests/coupling.toml to what is counted; never raise one

Counted in every Python file below tests/, from its syntax:

- private_reads: `x._name` unless x is `self`, `cls` or `os`, and `from fipop… import _name`. Dunder names do not count.
  Private names of the harness do: nothing in the syntax tells them from those of the product.
- patched_internals: `….setattr(target, …)`, as of pytest's monkeypatch, `mock.patch` and `patch.object`, and the
  assignment `name.attribute = …`. A target counts if it is a text that begins with "fipop", a name that was imported
  from fipop, or (for calls) a value of the test. Modules of others and `tempfile.tempdir` do not count.
- simple_namespaces: uses of SimpleNamespace, its import excepted.
- casts: calls of `typing.cast`.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "tests" / "coupling.toml"
UPDATE = "python -m scripts.coupling --update"
COMMENT = f"""\
# What ties the tests to the inside of the product, per file. The numbers may only fall.
# `python -m scripts.coupling` says what counts and compares; after a fall run: {UPDATE}
# If a test file is renamed, rename it here.
"""


class Kind(Enum):
    """What is counted; the value is the name of the table in the file."""

    PRIVATE_READ = "private_reads"
    PATCHED_INTERNAL = "patched_internals"
    SIMPLE_NAMESPACE = "simple_namespaces"
    CAST = "casts"


Numbers = Mapping[Kind, Mapping[str, int]]
"""By kind, the number in each file that has any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One use of a kind."""

    kind: Kind
    file: str
    line: int


def find_places(source: str, file: str) -> Iterator[Place]:
    """Return the places of a file with that source, by kind and line."""
    tree = ast.parse(source)
    origins = _origins(tree)
    found = [
        Place(kind=kind, file=file, line=node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt)
        for kind in _kinds(node, origins)
    ]
    return iter(sorted(found, key=lambda place: (place.kind.value, place.line)))


def _origins(tree: ast.Module) -> dict[str, str]:
    """Return by imported name the module that it comes from."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.update({each.asname or each.name: f"{node.module}." for each in node.names})
        elif isinstance(node, ast.Import):
            found.update({each.asname or each.name.partition(".")[0]: f"{each.name}." for each in node.names})
    return found


def _kinds(node: ast.expr | ast.stmt, origins: Mapping[str, str]) -> Iterator[Kind]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "fipop":
        yield from (Kind.PRIVATE_READ for each in node.names if _is_private(each.name))
    elif isinstance(node, ast.Attribute):
        if _is_private(node.attr) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os")  # os._exit is public
        ):
            yield Kind.PRIVATE_READ
        if isinstance(node.ctx, ast.Store) and _is_products(node.value, origins, unknown=False):
            yield Kind.PATCHED_INTERNAL
    elif isinstance(node, ast.Call):
        called = _dotted(node.func)
        if called in ("cast", "typing.cast"):
            yield Kind.CAST
        if _is_patching(called, origins):
            yield from (
                Kind.PATCHED_INTERNAL for each in node.args[:1] if _is_products(each, origins, unknown=True)
            )
    if _dotted(node) in ("SimpleNamespace", "types.SimpleNamespace"):
        yield Kind.SIMPLE_NAMESPACE


def _dotted(node: ast.AST) -> str:
    """Return the name as it is written; what is no name is empty."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_patching(called: str, origins: Mapping[str, str]) -> bool:
    if called in ("patch", "patch.object"):
        return origins.get("patch") == "unittest.mock."
    return called.endswith((".setattr", "mock.patch", "mock.patch.object"))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_products(target: ast.expr, origins: Mapping[str, str], *, unknown: bool) -> bool:
    """Whether what is patched belongs to the product; `unknown` if neither a text nor an import tells."""
    if isinstance(target, ast.JoinedStr):
        target = target.values[0]
    if isinstance(target, ast.Constant):
        return str(target.value).startswith("fipop.")
    root = target
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in origins:
        return origins[root.id].startswith("fipop.")
    return unknown


def count(places: Iterable[Place]) -> dict[Kind, dict[str, int]]:
    """Return how many places there are."""
    found: dict[Kind, dict[str, int]] = {kind: defaultdict(int) for kind in Kind}
    for place in places:
        found[place.kind][place.file] += 1
    return {kind: dict(files) for kind, files in found.items()}


def find_problems(listed: Numbers, places: Iterable[Place]) -> list[str]:
    """Return a line for each number that rose, with its places, and for each that fell and is not entered."""
    lines: dict[tuple[Kind, str], list[int]] = defaultdict(list)
    for place in places:
        lines[place.kind, place.file].append(place.line)
    entered = {(kind, file): number for kind, files in listed.items() for file, number in files.items()}
    found = []
    for kind, file in sorted({*lines, *entered}, key=lambda each: (each[1], each[0].value)):
        counted, allowed = lines.get((kind, file), []), entered.get((kind, file), 0)
        if len(counted) > allowed:
            where = ", ".join(f"{file}:{line}" for line in counted)
            found.append(f"{len(counted)} {kind.value}, at most {allowed} are allowed: {where}")
        elif len(counted) < allowed:
            found.append(f"{file}: {len(counted)} {kind.value}, {allowed} are entered; run: {UPDATE}")
    return found


def lower(listed: Numbers, counted: Numbers) -> dict[Kind, dict[str, int]]:
    """Return the lower number of each file that has an entry, without zeros."""
    lowered = {
        kind: {file: min(number, counted.get(kind, {}).get(file, 0)) for file, number in files.items()}
        for kind, files in listed.items()
    }
    return {
        kind: {file: number for file, number in files.items() if number} for kind, files in lowered.items()
    }


def parse(text: str) -> dict[Kind, dict[str, int]]:
    """Return the numbers of a file."""
    tables = tomllib.loads(text)
    return {kind: dict(tables.get(kind.value, {})) for kind in Kind}


def render(numbers: Numbers) -> str:
    """Return the file with these numbers."""
    tables = (
        f"\n[{kind.value}]\n"
        + "".join(f'"{file}" = {number}\n' for file, number in sorted(numbers[kind].items()))
        for kind in Kind
    )
    return COMMENT + "".join(tables)


def totals(numbers: Numbers) -> str:
    """Return the sums in one line."""
    sums = (f"{kind.value} {sum(numbers[kind].values())} in {len(numbers[kind])} files" for kind in Kind)
    return f"coupling: {', '.join(sums)}"


def main(arguments: list[str]) -> int:
    """Compare or update; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.coupling", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--update", action="store_true", help="lower the numbers to what is counted")
    options = parser.parse_args(arguments)
    places = [
        place
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for place in find_places(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]
    listed = parse(NUMBERS.read_text(encoding="utf-8"))
    if options.update:
        listed = lower(listed, count(places))
        NUMBERS.write_text(render(listed), encoding="utf-8")
    problems = find_problems(listed, places)
    for line in (*problems, totals(count(places))):
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
