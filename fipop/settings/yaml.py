"""Untrusted YAML, read in bounded time and memory, as the JSON that helm would make of it.

Bounded: size, depth and the absence of aliases are checked on the stream of events, before a value is built.
Explicit tags but `!!str` are refused there too: PyYAML's constructors trust them, and then fail with its words.
As helm: plain scalars mean what Go's YAML reader takes them for (`1e3` is a number, `2024-01-01` and `1:30`
are texts), and keys become texts. A plain scalar that would differ (`y`, `0o17`, `.inf`) is refused with its line.
No error quotes the document, because it can have a secret.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import yaml

from fipop.errors import FipopError

JsonValue: TypeAlias = "Mapping[str, JsonValue] | Sequence[JsonValue] | str | int | float | bool | None"

MAX_YAML_BYTES = 64 * 1024
MAX_YAML_DEPTH = 32
_TEXT_TAG = "tag:yaml.org,2002:str"
_UNCLEAR_TAG = "!unclear"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_SCALARS = {
    "tag:yaml.org,2002:null": r"~|null|Null|NULL|",
    "tag:yaml.org,2002:bool": r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
    "tag:yaml.org,2002:int": r"[-+]?(0b[01]+|0[0-7]*|[1-9][0-9_]{0,99}|0x[0-9a-fA-F]+)",
    "tag:yaml.org,2002:float": r"[-+]?(\.[0-9]+|(0[0-9]*|[1-9][0-9_]*)(\.[0-9_]*)?)([eE][-+]?[0-9]+)?",
    _MERGE_TAG: "<<",
    _UNCLEAR_TAG: (
        r"[yYnN]|[-+]?(0[bBoO][0-9_]*|0[xX][0-9a-fA-F_]*|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9_]+)?"
        r"|\.[0-9][0-9_]*([eE][-+]?[0-9_]+)?|\.(inf|Inf|INF|nan|NaN|NAN))"
    ),
}
"""Plain scalars by their tag; the first pattern that matches counts."""


_LIBYAML_ERRORS = (yaml.scanner.ScannerError, yaml.parser.ParserError)
"""Raised by the C parser with a constant as the problem; others of PyYAML can quote the text."""


class RefusedError(FipopError, ValueError):
    """A text is refused; the message is "must …" and never quotes the text."""


class _JsonLoader(yaml.CSafeLoader):
    """PyYAML's safe loader with plain scalars as Go reads them, without YAML 1.1's dates and base 60."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_finite(self, node: yaml.ScalarNode) -> float:
        """Build a number that JSON knows."""
        value: float = self.construct_yaml_float(node)
        if not math.isfinite(value):
            self.refuse_unclear(node)
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse the key null, as helm does, and a key that is there twice: readers of YAML differ about it."""
        lines: dict[str, int] = {}
        # What is merged is only a default of the keys beside it.
        for key in (each for each, _ in node.value if each.tag != _MERGE_TAG):
            # In JSON, 1 and "1" are one key.
            name, line = json.dumps(self.construct_object(key, deep=True)).strip('"'), key.start_mark.line + 1
            if name in lines:
                raise RefusedError(
                    f"must not have a key twice: line {line} repeats that of line {lines[name]}"
                )
            lines[name] = line
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if None in found:
            raise RefusedError("must have only texts as keys")
        return found

    def refuse_unclear(self, node: yaml.Node) -> None:
        """Refuse a plain scalar whose meaning depends on the reader."""
        line = node.start_mark.line + 1
        raise RefusedError(f"must have a quoted scalar in line {line}: readers of YAML differ about it")


for _tag, _pattern in _SCALARS.items():
    # Whatever their first character is.
    _JsonLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), None)
_JsonLoader.add_constructor("tag:yaml.org,2002:float", _JsonLoader.construct_finite)
_JsonLoader.add_constructor(_UNCLEAR_TAG, _JsonLoader.refuse_unclear)


def parse_yaml(text: str, *, max_bytes: int = MAX_YAML_BYTES) -> JsonValue:
    """Read one YAML document; an empty one is None. Raises RefusedError."""
    # Characters first: encoding a text of any size costs as much as the text.
    if len(text) > max_bytes or len(text.encode("utf-8", "replace")) > max_bytes:
        raise RefusedError(f"must have at most {max_bytes} bytes")
    try:
        _check_events(text)
        # A safe loader: nothing but plain values is ever built.
        found = yaml.load(text, _JsonLoader)  # noqa: S506
        # The keys become texts.
        return cast("JsonValue", json.loads(json.dumps(found)))
    except RefusedError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise RefusedError(f"must be YAML{where}: {_name_cause(text, error)}") from None
    except yaml.reader.ReaderError as error:
        raise RefusedError(f"must be YAML: {error.reason}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError):
        # A control character, a lone surrogate, a number too long to convert; `from None`, for they quote the text.
        raise RefusedError("must be YAML") from None


def parse_yaml_mapping(text: str, *, max_bytes: int = MAX_YAML_BYTES) -> Mapping[str, JsonValue]:
    """Read one YAML document that is a mapping; an empty one is an empty mapping. Raises RefusedError."""
    value = parse_yaml(text, max_bytes=max_bytes)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError("must be a YAML mapping")
    return value


def find_line(text: str, place: Iterable[str | int]) -> int:
    """Return the line, from 1, of the innermost part of a place that is there, in what `parse_yaml` has read."""
    node = yaml.compose(text, _JsonLoader)
    line = 0
    for step in place:
        parts: Iterable[tuple[object, yaml.Node, yaml.Node]] = ()
        if isinstance(node, yaml.SequenceNode):
            parts = ((number, each, each) for number, each in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            parts = ((key.value, key, each) for key, each in node.value)
        found = next(((where, each) for known, where, each in parts if known == step), None)
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return line + 1


def _name_cause(text: str, error: yaml.MarkedYAMLError) -> str:
    """Return what is wrong at a place, without what stands there: libyaml's words are constants."""
    mark = error.problem_mark
    line = text.split("\n")[mark.line] if mark and mark.line <= text.count("\n") else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "the line is indented with a tab, use spaces"
    return (
        str(error.problem)
        if isinstance(error, _LIBYAML_ERRORS)
        else "it must be one document whose keys are texts"
    )


def _check_events(source: str) -> None:
    # Event by event: the parser itself takes quadratic time on deep nesting, so stop before it gets there.
    depth = 0
    for event in yaml.parse(source, yaml.CSafeLoader):
        where = f"(line {event.start_mark.line + 1})" if event.start_mark else ""
        if isinstance(event, yaml.AliasEvent):
            raise RefusedError(f"must not have a YAML alias {where}")
        tag = getattr(event, "tag", None)
        if tag is not None and not (tag == _TEXT_TAG and isinstance(event, yaml.ScalarEvent)):
            raise RefusedError(f"must not have a YAML tag {where}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_YAML_DEPTH:
                raise RefusedError(f"must be nested at most {MAX_YAML_DEPTH} levels deep {where}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
