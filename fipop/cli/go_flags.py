"""Flags as programs in Go take them, for a click command: `--key=value`, bare booleans, `-v=2`, unknown ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from fipop.cloudprovider.go_values import parse_bool, parse_duration


class GoBool(click.ParamType[bool]):
    """A boolean as Go reads it."""

    name = "boolean"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        """Return the value."""
        try:
            return value if isinstance(value, bool) else parse_bool(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class GoDuration(click.ParamType[float]):
    """A duration as Go reads it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        try:
            return float(value) if isinstance(value, int | float) else parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


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


def spell_out(args: Sequence[str], booleans: set[str]) -> list[str]:
    """Write flags so that click reads them as Go does: a bare boolean is true and never takes the next word."""
    return [_spell_out(each, booleans) for each in args]


def _spell_out(arg: str, booleans: set[str]) -> str:
    if arg in booleans:
        return f"{arg}=true"
    is_short = arg.startswith("-") and not arg.startswith("--")
    name, equals, value = arg.partition("=")
    return f"{name}{value}" if is_short and equals and len(name) == 2 else arg
