"""Flags as programs in Go take them, for a click command: bare booleans, `-v=2`, durations.

And what several commands check.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

from fipop.api.names import parse_go_bool
from fipop.texts import is_namespace

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_LONGEST_DURATION = 64


class GoBool(click.ParamType[bool]):
    """A boolean as Go reads it."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Return the value."""
        read = value if isinstance(value, bool) else parse_go_bool(value)
        if read is None:
            self.fail(f'it must be true or false, and is "{value[:64]}"', param, ctx)
        return read


class GoDuration(click.ParamType[float]):
    """A duration as Go reads it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            return float(value) if isinstance(value, int | float) else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class GoInt(click.types.IntParamType):
    """A number as Go reads it, for a short flag too: `-v=2`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        text: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(text, param, ctx)


def go_flag(*names: str, **attributes: Any) -> Callable[[F], F]:
    """Return an option of click for a boolean of Go, which is true without a value."""
    return click.option(*names, type=GoBool(), is_flag=False, flag_value="true", **attributes)


def check_namespace(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a name that a namespace can have, for a callback of click."""
    if not is_namespace(value):
        raise click.BadParameter("must be a DNS label: a-z, 0-9 and -, at most 63 characters")
    return value


def parse_duration(text: str) -> float:
    """Read a duration such as 15s or 1m30s, in seconds. Raises: ValueError."""
    parts = _DURATION.findall(text[:_LONGEST_DURATION])
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f'it must be a duration such as 15s or 1m30s, and is "{text[:64]}"')
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))
