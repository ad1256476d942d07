"""Durations as people write them: 90s, 5m, 1h30m, or seconds."""

from __future__ import annotations

import re

import click

_PARTS = re.compile(r"(?:(?P<h>\d{1,4})h)?(?:(?P<m>\d{1,4})m)?(?:(?P<s>\d{1,6})s?)?", re.ASCII)


class Duration(click.ParamType[float]):
    """A duration; the command gets seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it; UsageError quotes what is none."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        found = _PARTS.fullmatch(text)
        if not text or found is None:
            self.fail(f"{text!r} is no duration: write 90s, 5m or 1h30m", param, ctx)
        hours, minutes, seconds = (int(found[unit] or 0) for unit in "hms")
        return float(hours * 3600 + minutes * 60 + seconds)


DURATION = Duration()
