"""Reports as text: tables as kubectl writes them, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic.alias_generators import to_camel

from fipop.api.codec import format_time
from fipop.ipam.ranges import AddressCounts
from fipop.texts import clean

_GAP = "   "
_WIDEST = 64
"""A longer cell moves what follows it in its own line, instead of every line."""


def to_json(value: object) -> str:
    """Return a report as JSON: fields in camelCase, times in RFC 3339, null for what is not known."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "to_fields"):
        return _plain(value.to_fields())
    if is_dataclass(value) and not isinstance(value, type):
        return {to_camel(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, AddressCounts):
        return {to_camel(name): count for name, count in value.counts().items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean_whole(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {clean_whole(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [_plain(each) for each in value]
    return value


def clean_whole(text: str) -> str:
    """Return a text printable and uncut."""
    return clean(text, len(text))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align cells under their headings. Nothing is cut, neither to the width of the terminal."""
    lines = [list(header), *([clean_whole(cell) or "-" for cell in row] for row in rows)]
    widths = [
        max(len(cell) for cell in column if len(cell) <= _WIDEST) for column in zip(*lines, strict=True)
    ]
    padded = (
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded)


def count_of(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: "1 guest cluster", "2 guest clusters"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def moment(time: datetime | None) -> str:
    """Return a time for people: UTC, to the second; "" for none."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ") if time is not None else ""


def age(seconds: float) -> str:
    """Return a duration as kubectl writes it, in its two largest units at most."""
    left = max(0, int(seconds))
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= 2 * size:
            rest = left % size // small
            return f"{left // size}{unit}{f'{rest}{smaller}' if rest and left < 10 * size else ''}"
    return f"{left}s"
