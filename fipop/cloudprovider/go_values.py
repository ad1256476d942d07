"""Values as Go reads them: flags, environment and keys of the programs that this role takes the place of."""

from __future__ import annotations

import re

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_LONGEST_DURATION = 64


def parse_bool(text: str) -> bool:
    """Read a boolean. Raises ValueError."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f'it must be true or false, and is "{text[:64]}"')


def parse_duration(text: str) -> float:
    """Read a duration such as 15s or 1m30s, in seconds. Raises ValueError."""
    parts = _DURATION.findall(text[:_LONGEST_DURATION])
    if text != "0" and (not parts or "".join(number + unit for number, unit in parts) != text):
        raise ValueError(f'it must be a duration such as 15s or 1m30s, and is "{text[:64]}"')
    return float(sum(float(number) * _UNITS[unit] for number, unit in parts))
