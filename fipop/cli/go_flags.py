"""Flags as programs in Go take them, for a click command: `--key=value`, bare booleans, `-v=2`, unknown ones.

And the types of values that several commands take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from fipop.api.names import parse_go_bool
from fipop.texts import is_namespace

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


class Namespace(click.ParamType[str]):
    """The name of a namespace."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        if not is_namespace(value):
            self.fail("must be a DNS label: a-z, 0-9 and -, at most 63 characters", param, ctx)
        return str(value)


class GoCommand(click.Command):
    """A command whose flags are written as for a program in Go; those that it does not know are in `ctx.args`."""

    ignore_unknown_options = True
    allow_extra_args = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the flags."""
        booleans = {
            name
            for each in self.params
            if isinstance(each.type, GoBool)
            for name in getattr(each, "opts", ())
        }
        return super().parse_args(ctx, spell_out(args, booleans))


def parse_duration(text: str) -> float:
    """Read a duration such as 15s or 1m30s, in seconds. Raises: ValueError."""
    parts = _DURATION.findall(text[:_LONGEST_DURATION])
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f'it must be a duration such as 15s or 1m30s, and is "{text[:64]}"')
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))


def spell_out(args: Sequence[str], booleans: set[str]) -> list[str]:
    """Write flags so that click reads them as Go does: a bare boolean is true and never takes the next word."""
    return [_spell_out(each, booleans) for each in args]


def _spell_out(arg: str, booleans: set[str]) -> str:
    if arg in booleans:
        return f"{arg}=true"
    is_short = arg.startswith("-") and not arg.startswith("--")
    name, equals, value = arg.partition("=")
    return f"{name}{value}" if is_short and equals and len(name) == 2 else arg
