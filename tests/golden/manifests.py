"""Manifests as a recording shows them."""

from typing import Any

from tests.golden.normal import Json, to_yaml

MAX_LINES = 50
"""Of a text that is recorded whole."""


def dump_objects(objects: list[Any]) -> str:
    """Return objects in the order of their kinds and names, without what helm adds for itself."""
    found = sorted((each for each in objects if each), key=_order)
    return "---\n".join(f"# {_title(each)}\n{to_yaml(_shorten(each), sort=True)}" for each in found)


def _shorten(value: Any) -> Any:
    """Return a value with only the size of a text that is a file of the chart, as a dashboard is."""
    if isinstance(value, dict):
        return {key: _shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shorten(each) for each in value]
    is_file = isinstance(value, str) and value.count("\n") > MAX_LINES
    return f"(a file of {len(value.splitlines())} lines)" if is_file else value


def _order(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _title(obj: Json) -> str:
    return f"{obj['kind']} {'/'.join(part for part in _order(obj)[1:] if part)}"
