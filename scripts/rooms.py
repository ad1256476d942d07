"""Run the tests of one room: a folder of fipop/ with its unit tests and the scenarios that drive it.

    python -m scripts.rooms ROOM [PYTEST-OPTION ...]      for example: operator/addresses

A room is a folder below tests/unit that has the name of a folder of fipop/. SCENARIOS lists the scenarios of a room.
Exit code 2 if there is no such room.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
UNIT = "tests/unit"
PROCESSES = 2
"""Processes that share the tests of a room. More only help rooms that take longer than a start of pytest."""


class UnknownRoomError(Exception):
    """There is no such room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenarios:
    """Scenarios as patterns of paths below the root of the repository."""

    files: tuple[str, ...]
    besides: tuple[str, ...] = ()
    """Files that match a pattern and do not belong to the room."""
    long: tuple[str, ...] = ()
    """Patterns of files that belong to the room and take too long to run once for each mutant."""


_ROLLOUTS = ("tests/scenarios/test_rollout*.py",)
_ADDRESSES = Scenarios(
    files=("tests/scenarios/test_*.py",),
    besides=_ROLLOUTS,
    long=("tests/scenarios/simulation/test_*.py", "tests/scenarios/test_worlds.py"),
)
SCENARIOS: Mapping[str, Scenarios] = {
    "ipam": _ADDRESSES,
    "operator/addresses": _ADDRESSES,
    "operator/guests": Scenarios(
        files=(
            "tests/scenarios/test_carried_by_others.py",
            "tests/scenarios/test_guest_claims.py",
            "tests/scenarios/test_left_rancher.py",
            "tests/scenarios/test_taking_the_lead.py",
        )
    ),
    "operator/rollout": Scenarios(files=_ROLLOUTS),
    "state": _ADDRESSES,
}
"""By room, its scenarios. Those of a room are also those of the rooms above it: `operator` has all of them."""


def room_names(root: Path = ROOT) -> tuple[str, ...]:
    """Return the names of all rooms, sorted."""
    unit = root / UNIT
    return tuple(sorted({str(test.parent.relative_to(unit)) for test in unit.glob("*/**/test_*.py")}))


def paths_of(room: str, root: Path = ROOT, *, with_long: bool = True) -> tuple[str, ...]:
    """Return the paths that pytest is to run for `room`, relative to `root`.

    Raises:
        UnknownRoomError: No folder of unit tests has this name.
    """
    room = room.strip("/").removeprefix("fipop/").removeprefix(f"{UNIT}/")
    names = room_names(root)
    if not any(name == room or _is_in(name, room) for name in names):
        message = f'There is no room "{room}". The rooms are {", ".join(names)}.'
        raise UnknownRoomError(message)
    owned = [scenarios for name, scenarios in SCENARIOS.items() if name == room or _is_in(name, room)]
    return (f"{UNIT}/{room}", *sorted({path for each in owned for path in _paths(each, root, with_long)}))


def _paths(scenarios: Scenarios, root: Path, with_long: bool) -> set[str]:
    patterns = (*scenarios.files, *(scenarios.long if with_long else ()))
    return _matches(patterns, root) - _matches(scenarios.besides, root)


def _matches(patterns: Iterable[str], root: Path) -> set[str]:
    return {str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}


def _is_in(name: str, room: str) -> bool:
    return name.startswith(f"{room}/")


def main(arguments: list[str]) -> int:
    """Run the tests and return the exit code of pytest."""
    if not arguments or arguments[0].startswith("-"):
        print(f"Name a room, for example operator/addresses. The rooms are {', '.join(room_names())}.")
        return 2
    room, *options = arguments
    try:
        tests = paths_of(room)
    except UnknownRoomError as error:
        print(error)
        return 2
    # Single tests go to the process that is free: a room often has one test that is longer than all others together.
    spread = (f"--numprocesses={min(PROCESSES, os.cpu_count() or 1)}", "--dist=worksteal")
    command = [sys.executable, "-m", "pytest", "--quiet", *spread, *options, *tests]
    return subprocess.run(command, check=False, cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
