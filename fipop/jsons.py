"""Objects of a Kubernetes API as JSON has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
"""An object that is ours to change."""

JsonView: TypeAlias = Mapping[str, Any]
"""An object that is only read."""


def as_mapping(value: object) -> JsonView:
    """Read a mapping where somebody may have written anything; an empty one where there is none."""
    return value if isinstance(value, Mapping) else {}


def as_texts(value: object) -> dict[str, str]:
    """Read a mapping of texts where somebody may have written anything; what is no text is left out."""
    return {key: each for key, each in as_mapping(value).items() if isinstance(each, str)}


def as_list(value: object) -> list[Any]:
    """Read a list where somebody may have written anything; an empty one where there is none."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Read a text where somebody may have written anything; an empty one where there is none."""
    return value if isinstance(value, str) else ""
