"""Views as people and programs want them: tables as kubectl writes them, JSON, YAML, CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any

import yaml

from fipop.api.codec import format_time
from fipop.ipam.ranges import Usage
from fipop.texts import clean

_GAP = "   "
_LONGEST_CELL = 300


class Output(StrEnum):
    """The formats that `-o` knows; SHORT is a table of what somebody should look at, without remarks."""

    TABLE = "table"
    SHORT = "short"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


def to_json(value: Any) -> Any:
    """Give a view as JSON has it: fields in camelCase, times in RFC 3339, null for what is not known."""
    if hasattr(value, "to_fields"):
        return to_json(value.to_fields())
    if is_dataclass(value) and not isinstance(value, type):
        return {camel_case(each.name): to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Usage):
        return {camel_case(name): count for name, count in value.counts().items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _clean_whole(value)
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {_clean_whole(str(key)): to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple | frozenset | set):
        return [to_json(each) for each in value]
    return value


def _clean_whole(text: str) -> str:
    return clean(text, len(text))


def camel_case(name: str) -> str:
    """Give a field's name as our JSON has it."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def dump(value: object, output: Output) -> str:
    """Give a view as JSON or YAML text."""
    found = to_json(value)
    if output is Output.YAML:
        return yaml.safe_dump(found, sort_keys=False, allow_unicode=True)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align cells under their headings; nothing is cut to a terminal's width, as kubectl does."""
    cells = [[clean(cell, _LONGEST_CELL) or "-" for cell in row] for row in rows]
    lines = [list(header), *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    padded = (
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return "\n".join(padded) + "\n"


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give rows as RFC 4180 has them; a cell that a spreadsheet would take for a formula gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(header)
    for row in rows:
        cells = map(_clean_whole, row)
        writer.writerow([f"'{cell}" if cell.startswith(_FORMULA) and cell != "-" else cell for cell in cells])
    return text.getvalue()


def bar(percent: float, width: int = 20) -> str:
    """Draw how full something is."""
    full = min(width, round(percent / 100 * width)) if percent < 100 else width
    return "█" * full + "░" * (width - full)


def moment(time: datetime | None) -> str:
    """Write a time for people: UTC, to the second; "" for none."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ") if time is not None else ""


def age(seconds: float) -> str:
    """Write a duration as kubectl does, in its two largest units at most."""
    left = max(0, int(seconds))
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if left >= 2 * size:
            rest = left % size // small
            return f"{left // size}{unit}{f'{rest}{smaller}' if rest and left < 10 * size else ''}"
    return f"{left}s"
