"""What memory this process may have, and how many helms that carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fipop.operator.configuration import Configuration

_MIB = 1024 * 1024
_OWN_BYTES = 256 * _MIB
_HELM_BYTES = 160 * _MIB
_UNLIMITED = 1 << 60
_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""Of cgroup v2 and v1."""


def read_memory_limit(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Give the limit of the container, in bytes; None where there is none."""
    for name in _FILES:
        try:
            limit = int((cgroup / name).read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if limit < _UNLIMITED:
            return limit
    return None


def most_helms(limit: int | None) -> int | None:
    """Give how many helms a limit carries beside ourselves, at least one; None: as many as are asked for."""
    return None if limit is None else max(1, (limit - _OWN_BYTES) // _HELM_BYTES)


@dataclass(frozen=True, slots=True)
class HelmConcurrency:
    """How many helms run at once: as many as are wanted, and no more than our memory carries."""

    configuration: Configuration
    most: int | None = field(default_factory=lambda: most_helms(read_memory_limit()))

    def __call__(self) -> int:
        """Give how many run now."""
        wanted = self.configuration.settings.helm_concurrency
        return wanted if self.most is None else min(wanted, self.most)

    def settle(self, *resize: Callable[[int], None]) -> None:
        """Have so many run from now on, and tell people where that is fewer than they want."""
        wanted, count = self.configuration.settings.helm_concurrency, self()
        if count < wanted:
            message = (
                f"Option helmConcurrency is {wanted}: fipop runs only {count} helm processes at once. Increase the "
                "memory limit of the pod to run more."
            )
            self.configuration.complain("UnwiseOption", message)
        for each in resize:
            each(count)
