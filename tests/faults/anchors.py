"""Edits of a package's source, each anchored at a function and at what is replaced in it, not at source text.

Both are compared as syntax trees: layout, quotes, parentheses, comments and trailing commas do not matter. Nor does the
file, as long as the edit fits one function of that qualified name in the package. Only the replaced part of the file is
written anew, and the result must be the tree that the edit asks for.
"""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SHOWN = 5
"""Bounds the places that an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Replace a part of a function; it must be found there exactly once."""

    scope: str
    """Qualified name of the function, such as `Store.put`, with all that is inside it.

    The name of a class means its body without its functions; an empty name means the module without its functions
    and classes.
    """
    before: str
    """An expression, statements, keyword arguments of a call, or items of a dict, as Python source.

    It is an expression if `after` is one as well.
    """
    after: str
    """What stands there instead: `pass` removes a statement, `**{}` removes an item of a dict."""
    file: str = ""
    """Path in the package; needed only if the edit fits a scope of that name in several files."""
    nth: int | None = None
    """Which one it is, from 1 on and in the order of the source, if it is found more than once."""


class BugDoesNotFitError(Exception):
    """The source is not what the bug was written for."""

    def __init__(self, *, bug: str, edit: Edit, problem: str) -> None:
        self.bug = bug
        self.edit = edit
        super().__init__(f"bug {bug}: {problem}")


def apply(bug: str, edits: Iterable[Edit], package: Path) -> None:
    """Write the edits of a bug into a package, one after another.

    Raises:
        BugDoesNotFitError: if one of them fits nowhere, or in several places.
    """
    for edit in edits:
        try:
            _apply(edit, package)
        except _MisfitError as error:
            raise BugDoesNotFitError(bug=bug, edit=edit, problem=str(error)) from error


class _MisfitError(Exception):
    """Says why an edit does not fit."""


class _Kind(Enum):
    """What a piece of source is."""

    EXPRESSION = auto()
    STATEMENTS = auto()
    KEYWORDS = auto()
    ITEMS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """The two sides of an edit, read as one kind of source."""

    kind: _Kind
    before: Sequence[Any]
    after: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """A place that an edit fits: nodes of a field of their parent, from an index on."""

    pattern: _Pattern
    parent: ast.AST
    field: str
    index: int | None
    """None if the field is a single node."""
    first: ast.AST
    last: ast.AST

    def replace(self) -> None:
        """Put the new nodes into the tree, instead of those that were found."""
        new = self.pattern.after
        if self.index is None:
            setattr(self.parent, self.field, new[0])
            return
        place = slice(self.index, self.index + len(self.pattern.before))
        if self.pattern.kind is _Kind.ITEMS:
            assert isinstance(self.parent, ast.Dict)
            self.parent.keys[place] = [key for key, _ in new]
            self.parent.values[place] = [value for _, value in new]
            return
        getattr(self.parent, self.field)[place] = new


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    """A file of the package, and its definitions by their qualified names."""

    path: Path
    data: bytes
    tree: ast.Module
    scopes: dict[str, list[ast.AST]]

    @classmethod
    def read(cls, path: Path) -> "_Module":
        data = path.read_bytes()
        tree = ast.parse(data)
        scopes: dict[str, list[ast.AST]] = {"": [tree]}
        _collect(tree, "", scopes)
        return cls(path=path, data=data, tree=tree, scopes=scopes)

    def find(self, scope: str, patterns: Sequence[_Pattern]) -> list[_Match]:
        """Return what fits in a scope, in the order of the source."""
        nodes = (node for each in self.scopes.get(scope, ()) for node in _inside(each))
        found = [match for node in nodes for pattern in patterns for match in _matches(node, pattern)]
        return sorted(found, key=lambda match: _start(match.first))

    def bytes_between(self, first: ast.AST, last: ast.AST) -> tuple[int, int]:
        """Return where the source of these nodes begins and ends."""
        starts = [0]
        for line in self.data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        (first_line, column), (last_line, end_column) = _start(first), _end(last)
        return starts[first_line - 1] + column, starts[last_line - 1] + end_column


def _apply(edit: Edit, package: Path) -> None:
    patterns = _read_patterns(edit)
    module = _find_module(edit, patterns, package)
    matches = module.find(edit.scope, patterns)
    file = module.path.relative_to(package)
    if len(matches) < (edit.nth or 1) or (len(matches) > 1 and edit.nth is None):
        lines = ", ".join(str(_start(match.first)[0]) for match in matches)
        remedy = (
            f"lines {lines}; take more of the source, or nth" if lines else _hint(edit, patterns, package)
        )
        wanted = "once" if edit.nth is None else f"{edit.nth} times"
        raise _MisfitError(
            f"`{edit.before}` is found {len(matches)} times, not {wanted}, in {_shown(edit.scope)} of {file}: {remedy}"
        )
    module.path.write_bytes(_written(module, matches[(edit.nth or 1) - 1], edit))


def _find_module(edit: Edit, patterns: Sequence[_Pattern], package: Path) -> _Module:
    """Return the file that has the scope of an edit."""
    if edit.file and (package / edit.file).is_file():
        module = _Module.read(package / edit.file)
        if edit.scope in module.scopes:
            return module
    if not edit.scope:
        raise _MisfitError(f"there is no {edit.file or 'file named'} for a place outside of all functions")
    modules = [module for module in _candidates(edit.scope, package) if edit.scope in module.scopes]
    places = ", ".join(str(module.path.relative_to(package)) for module in modules)
    if edit.file:
        now = f"it is in {places} now" if modules else _hint(edit, patterns, package)
        raise _MisfitError(f"{edit.file} has no {edit.scope}: {now}")
    if not modules:
        raise _MisfitError(f"the package has no {edit.scope}: {_hint(edit, patterns, package)}")
    fitting = modules if len(modules) == 1 else [each for each in modules if each.find(edit.scope, patterns)]
    if len(fitting) != 1:
        raise _MisfitError(
            f"{edit.scope} is in {places}, and `{edit.before}` in {len(fitting)} of them: name one of these files"
        )
    return fitting[0]


def _candidates(scope: str, package: Path) -> Iterator[_Module]:
    """Yield the files that may define a scope: to parse all of them takes long."""
    definition = re.compile(rb"\b(?:def|class)\s+%s\b" % re.escape(scope.rpartition(".")[2]).encode())
    for path in sorted(package.rglob("*.py")):
        if definition.search(path.read_bytes()):
            yield _Module.read(path)


def _hint(edit: Edit, patterns: Sequence[_Pattern], package: Path) -> str:
    """Say where else an edit would fit, or else which definitions have the last part of its name."""
    name = edit.scope.rpartition(".")[2]
    fitting, named = [], []
    for path in sorted(package.rglob("*.py")):
        module = _Module.read(path)
        file = path.relative_to(package)
        # The innermost scope is the best answer: a class does not hold what its functions hold, a function does.
        found = [scope for scope in module.scopes if module.find(scope, patterns)]
        inner = [scope for scope in found if not any(each.startswith(f"{scope}.") for each in found)]
        fitting += [f"{_shown(scope)} of {file}" for scope in inner]
        named += [f"{scope} of {file}" for scope in module.scopes if scope.rpartition(".")[2] == name]
    if fitting:
        return f"`{edit.before}` is in {_few(fitting)}"
    if named and name:
        return f"`{edit.before}` is nowhere; there are {_few(named)}"
    return f"`{edit.before}` is nowhere, and nothing has such a name"


def _few(places: Sequence[str]) -> str:
    more = len(places) - _SHOWN
    return ", ".join(places[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _shown(scope: str) -> str:
    return scope or "the module"


def _read_patterns(edit: Edit) -> list[_Pattern]:
    """Read both sides of an edit in each way that is Python for both."""
    before, after = _readings(edit.before), _readings(edit.after)
    kinds = [kind for kind in _Kind if kind in before and kind in after]
    if not kinds:
        raise _MisfitError(f"`{edit.before}` and `{edit.after}` are not both Python of one kind")
    if _Kind.EXPRESSION in kinds:
        kinds = [_Kind.EXPRESSION]
    return [_Pattern(kind=kind, before=before[kind], after=after[kind]) for kind in kinds]


def _readings(source: str) -> dict[_Kind, Sequence[Any]]:
    text = textwrap.dedent(source).strip()
    if not text:
        return {}
    found: dict[_Kind, Sequence[Any]] = {}
    expression = _parse_expression(f"(\n{text}\n)")
    if expression is not None:
        found[_Kind.EXPRESSION] = [expression]
    with suppress(SyntaxError):
        found[_Kind.STATEMENTS] = ast.parse(text).body
    call = _parse_expression(f"call({text}\n)")
    if isinstance(call, ast.Call) and call.keywords and not call.args:
        found[_Kind.KEYWORDS] = call.keywords
    items = _parse_expression(f"{{{text}\n}}")
    if isinstance(items, ast.Dict):
        found[_Kind.ITEMS] = list(zip(items.keys, items.values, strict=True))
    return found


def _parse_expression(source: str) -> ast.expr | None:
    try:
        return ast.parse(source, mode="eval").body
    except SyntaxError:
        return None


def _collect(node: ast.AST, prefix: str, scopes: dict[str, list[ast.AST]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _DEFINITIONS):
            name = f"{prefix}{child.name}"
            # A property and its setter have one name.
            scopes.setdefault(name, []).append(child)
            _collect(child, f"{name}.", scopes)
        else:
            _collect(child, prefix, scopes)


def _inside(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a scope; those of a module or class without their definitions."""
    enters_definitions = isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
    waiting = [scope]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if enters_definitions or not isinstance(child, _DEFINITIONS)
        ]


def _matches(node: ast.AST, pattern: _Pattern) -> Iterator[_Match]:
    """Yield the places right below a node that a pattern fits."""
    if pattern.kind is _Kind.ITEMS:
        if isinstance(node, ast.Dict):
            items = list(zip(node.keys, node.values, strict=True))
            for index in _indexes(items, pattern.before):
                (first, _), (_, last) = items[index], items[index + len(pattern.before) - 1]
                if first is not None:
                    yield _Match(
                        pattern=pattern, parent=node, field="keys", index=index, first=first, last=last
                    )
        return
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            for index in _indexes(value, pattern.before):
                last = value[index + len(pattern.before) - 1]
                yield _Match(
                    pattern=pattern, parent=node, field=field, index=index, first=value[index], last=last
                )
        elif isinstance(value, ast.expr) and _is_same([value], pattern.before):
            yield _Match(pattern=pattern, parent=node, field=field, index=None, first=value, last=value)


def _indexes(values: Sequence[Any], before: Sequence[Any]) -> Iterator[int]:
    for index in range(len(values) - len(before) + 1):
        if _is_same(values[index : index + len(before)], before):
            yield index


def _is_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(_is_same_node, some, others))


def _is_same_node(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _is_same(one, other)
    if type(one) is not type(other) or not isinstance(one, ast.AST):
        return one is None and other is None
    return ast.dump(one) == ast.dump(other)


def _written(module: _Module, match: _Match, edit: Edit) -> bytes:
    """Return the file with the new source in its place."""
    start, end = module.bytes_between(match.first, match.last)
    head, tail = module.data[:start], module.data[end:]
    match.replace()
    wanted = ast.dump(module.tree)
    text = textwrap.dedent(edit.after).strip()
    if match.pattern.kind is _Kind.STATEMENTS:
        indent = head.rpartition(b"\n")[2].decode()
        texts = [textwrap.indent(text, indent).removeprefix(indent)]
    else:
        texts = [text, f"({text})"]
    for each in texts:
        written = head + each.encode() + tail
        try:
            compile(written, module.path.name, "exec")
            if ast.dump(ast.parse(written)) == wanted:
                return written
        except SyntaxError:
            continue
    raise _MisfitError(f"`{edit.after}` cannot be written instead of `{edit.before}` in {_shown(edit.scope)}")


def _start(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _end(node: ast.AST) -> tuple[int, int]:
    return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
