"""Reports as text: tables as kubectl writes them, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from fipop.api.codec import format_time
from fipop.ipam.ranges import Usage
from fipop.texts import clean

_GAP = "   "
_LONGEST_CELL = 300


def to_json(value: object) -> str:
    """Return a report as JSON: fields in camelCase, times in RFC 3339, null for what is not known."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "to_fields"):
        return _plain(value.to_fields())
    if is_dataclass(value) and not isinstance(value, type):
        return {_camel_case(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Usage):
        return {_camel_case(name): count for name, count in value.counts().items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _clean_whole(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {_clean_whole(str(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [_plain(each) for each in value]
    return value


def _clean_whole(text: str) -> str:
    return clean(text, len(text))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align cells under their headings. As with kubectl, nothing is cut to the width of the terminal."""
    cells = [[clean(cell, _LONGEST_CELL) or "-" for cell in row] for row in rows]
    lines = [list(header), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    padded = (
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded) + "\n"


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
