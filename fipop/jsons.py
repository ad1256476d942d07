"""Objects of a Kubernetes API as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An object that is ours to change."""

JsonView: TypeAlias = Mapping[str, Any]
"""An object that is only read."""


def as_mapping(value: object) -> JsonView:
    """Return a value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_texts(value: object) -> dict[str, str]:
    """Return the texts of a mapping; other values are left out, and a value that is no mapping has none."""
    return {key: each for key, each in as_mapping(value).items() if isinstance(each, str)}


def as_list(value: object) -> list[Any]:
    """Return a value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""
