"""What memory this process may have, and how many helms that carries."""

from __future__ import annotations

from pathlib import Path

_MIB = 1024 * 1024
_OWN_BYTES = 256 * _MIB
_HELM_BYTES = 160 * _MIB
_UNLIMITED = 1 << 60
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Of cgroup v2 and v1."""


def read_memory_limit(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the limit of the container, in bytes; None where there is none."""
    for name in _FILES:
        try:
            limit = int((cgroup / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < _UNLIMITED:
            return limit
    return None


def most_helms(limit: int | None) -> int | None:
    """Return how many helm processes a limit allows beside this process, at least 1; None: any number."""
    return None if limit is None else max(1, (limit - _OWN_BYTES) // _HELM_BYTES)
