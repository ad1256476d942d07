"""Hold the constructors of fipop/ to a number of collaborators.

    python -m scripts.collaborators     one line for each class that has too many; fails if there is any

A parameter without a default counts if it is a collaborator: a callable, an object that changes, a Protocol, or a
frozen object that has collaborators of its own. Values (frozen dataclasses, named tuples, enums, texts, numbers) do
not count. Parameters are those of `__init__`, and the fields of a dataclass. Classes are told apart by their names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "fipop"
MOST = 8
EXCEPTIONS: Mapping[str, str] = {}
"""Classes that may have more, each with the reason."""
_VALUES = {"NamedTuple", "StrEnum", "IntEnum", "Enum", "Exception", "TypedDict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Class:
    """A class, and the names in the types of its parameters without a default."""

    name: str
    is_value: bool
    """Whether it is a value as long as it has no collaborators."""
    parameters: tuple[frozenset[str], ...]


def read_classes(sources: Iterable[str]) -> list[Class]:
    """Return the classes of modules."""
    trees = map(ast.parse, sources)
    return [_read(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def _read(node: ast.ClassDef) -> Class:
    decorators = [each for each in node.decorator_list if "dataclass" in ast.unparse(each)]
    is_frozen = any("frozen=True" in ast.unparse(each) for each in decorators)
    bases = {name for base in node.bases for name in _names(base)}
    return Class(
        name=node.name,
        is_value=is_frozen or any(base in _VALUES or base.endswith("Error") for base in bases),
        parameters=tuple(map(_names, _annotations(node, is_dataclass=bool(decorators)))),
    )


def _annotations(node: ast.ClassDef, *, is_dataclass: bool) -> Iterator[ast.expr]:
    for each in node.body:
        if is_dataclass and isinstance(each, ast.AnnAssign) and each.value is None:
            yield each.annotation
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            arguments, options = each.args.args[1:], each.args.kwonlyargs
            required = arguments[: len(arguments) - len(each.args.defaults)]
            pairs = zip(options, each.args.kw_defaults, strict=True)
            required += [argument for argument, default in pairs if default is None]
            yield from (argument.annotation for argument in required if argument.annotation is not None)


def _names(annotation: ast.expr) -> frozenset[str]:
    return frozenset(each.id for each in ast.walk(annotation) if isinstance(each, ast.Name))


def count_collaborators(classes: Iterable[Class]) -> dict[str, int]:
    """Return the number of collaborators of each class that has any."""
    classes = tuple(classes)
    known = {"Callable", *(each.name for each in classes if not each.is_value)}
    while True:
        counted = {
            each.name: sum(not known.isdisjoint(names) for names in each.parameters) for each in classes
        }
        found = known | {name for name, number in counted.items() if number}
        if found == known:
            return {name: number for name, number in counted.items() if number}
        known = found


def find_problems(counted: Mapping[str, int], exceptions: Mapping[str, str] = EXCEPTIONS) -> list[str]:
    """Return a line for each class with too many, and for each exception that is none."""
    too_many = {name: number for name, number in counted.items() if number > MOST}
    found = [
        f"{name}: its constructor has {number} collaborators, {MOST} are allowed. Split it, or have one of them "
        "answer for others."
        for name, number in sorted(too_many.items())
        if name not in exceptions
    ]
    return found + [f"{name}: is no exception any more" for name in exceptions if name not in too_many]


def main() -> int:
    """Check; return the exit code."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))]
    counted = count_collaborators(read_classes(sources))
    problems = find_problems(counted)
    print("\n".join(problems) or f"No constructor has more than {MOST} collaborators")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
