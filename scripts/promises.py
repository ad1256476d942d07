"""Compare what the test suite promises with the list of promises.

    python -m scripts.promises                  one line for each difference; fails if there is any
    python -m scripts.promises --update         add new promises to the list; never remove one
    python -m scripts.promises --moved OLD NEW  note that the ids that began with OLD begin with NEW now

A promise is a test of one of FOLDERS, a bug that is put into the program (seeded::NAME), or a kind of hostile guest
cluster or Service (hostile::NAME). A promise whose test is gone stays in the list, with a note of what became of it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.faults.seeded import NAMES
from tests.hostile.cases import CASES
from tests.hostile.service_kinds import KINDS

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "promises.txt"
FOLDERS = ("tests/api/", "tests/scenarios/", "tests/faults/", "tests/hostile/")
WITHOUT_CASES = ("tests/api/cli/test_documented.py::",)
"""Tests whose cases are read from the documentation: an edit of a page is no promise that came or went."""
ARROW = " -> "
REPLACED = "replaced by "
WITHDRAWN = "withdrawn because "
REASON_WORDS = 3
"""A reason of fewer words explains nothing."""
_NEXT_ID = re.compile(r", (?=tests/|seeded::|hostile::)")
_GROUP = re.compile(r"(?<=[\w\]])@[\w.-]+$")
"""What pytest-xdist adds to the id of a test that belongs to a group of `--dist=loadgroup`."""


class CollectionError(Exception):
    """pytest could not collect the tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A line of the list."""

    id: str
    note: str = ""
    """What became of a promise that is gone; empty for one that is kept."""

    @property
    def line(self) -> str:
        """The line as it is in the list."""
        return f"{self.id}{ARROW}{self.note}" if self.note else self.id

    @property
    def replacements(self) -> tuple[str, ...]:
        """The ids of the tests that hold the promise now."""
        if not self.note.startswith(REPLACED):
            return ()
        return tuple(_NEXT_ID.split(self.note.removeprefix(REPLACED)))


def parse(text: str) -> list[Promise]:
    """Return the promises of a list, without its comments."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, note = line.partition(ARROW)
            found.append(Promise(id=name, note=note))
    return found


def render(text: str, promises: Iterable[Promise]) -> str:
    """Return the list with the comments of `text` and these promises in order."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    return "".join(f"{line}\n" for line in (*comments, *sorted(promise.line for promise in promises)))


def is_among(replacement: str, existing: AbstractSet[str]) -> bool:
    """Whether a test exists; the name of a parametrized one stands for all of its cases."""
    return replacement in existing or any(each.startswith(f"{replacement}[") for each in existing)


def find_problems(
    promises: Iterable[Promise], existing: AbstractSet[str], elsewhere: AbstractSet[str]
) -> list[str]:
    """Return a line for each difference between the list and what exists.

    `existing` are the promises that are there, `elsewhere` further tests that may replace one.
    """
    found = []
    ordered = sorted(promises, key=lambda promise: promise.id)
    for name, same in groupby(ordered, key=lambda promise: promise.id):
        first, *others = same
        if others:
            found.append(f"{name}: is listed {len(others) + 1} times")
        found.extend(f"{name}: {problem}" for problem in _problems_of(first, existing, elsewhere))
    new = existing - {promise.id for promise in ordered}
    return [
        *found,
        *(f"{name}: is not in the list; run: python -m scripts.promises --update" for name in sorted(new)),
    ]


def _problems_of(promise: Promise, existing: AbstractSet[str], elsewhere: AbstractSet[str]) -> list[str]:
    if not promise.note:
        gone = (
            f'is gone; note "{ARROW.lstrip()}{REPLACED}ID" or "{ARROW.lstrip()}{WITHDRAWN}REASON" beside it'
        )
        return [] if promise.id in existing else [gone]
    if promise.id in existing:
        return ["exists, so its note must go"]
    if promise.replacements:
        return [
            f"its replacement {each} does not exist"
            for each in promise.replacements
            if not is_among(each, existing | elsewhere)
        ]
    if not promise.note.startswith(WITHDRAWN):
        return [f'its note must begin with "{REPLACED}" or "{WITHDRAWN}"']
    if len(promise.note.removeprefix(WITHDRAWN).split()) < REASON_WORDS:
        return [f"the reason must have at least {REASON_WORDS} words"]
    return []


def add_new(promises: Iterable[Promise], existing: AbstractSet[str]) -> list[Promise]:
    """Return the promises and those of `existing` that are not among them."""
    kept = list(promises)
    return [*kept, *(Promise(id=name) for name in sorted(existing - {promise.id for promise in kept}))]


def note_moves(promises: Sequence[Promise], existing: AbstractSet[str], old: str, new: str) -> list[Promise]:
    """Return the promises, with a note at each one that is gone and exists with `new` for its beginning `old`."""
    renames: Mapping[str, str] = {
        promise.id: new + promise.id.removeprefix(old)
        for promise in promises
        if promise.id.startswith(old) and not promise.note and promise.id not in existing
    }
    return [
        Promise(id=promise.id, note=f"{REPLACED}{renames[promise.id]}")
        if renames.get(promise.id) in existing
        else promise
        for promise in promises
    ]


def ids_in(output: str) -> set[str]:
    """Return the ids in the output of a quiet collection."""
    found = (
        _GROUP.sub("", line) for line in output.splitlines() if line.startswith("tests/") and "::" in line
    )
    return {each.partition("[")[0] if each.startswith(WITHOUT_CASES) else each for each in found}


def collect(*paths: str) -> set[str]:
    """Return the ids of the tests below paths that exist, also of those that a default selection leaves out.

    Raises: CollectionError.
    """
    present = [path for path in paths if (ROOT / path).exists()]
    if not present:
        return set()
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", *present)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CollectionError(done.stdout + done.stderr)
    return ids_in(done.stdout)


def main(arguments: list[str]) -> int:
    """Compare or update; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m scripts.promises", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="add new promises to the list")
    parser.add_argument("--moved", nargs=2, metavar=("OLD", "NEW"), help="note what ids begin with now")
    options = parser.parse_args(arguments)
    text = LIST.read_text(encoding="utf-8")
    promises = parse(text)
    bugs, kinds = (
        (f"seeded::{name}" for name in NAMES),
        (f"hostile::{each.name}" for each in (*CASES, *KINDS)),
    )
    existing = collect(*FOLDERS) | {*bugs, *kinds}
    if options.moved:
        promises = note_moves(
            promises, existing | collect(options.moved[1].partition("::")[0]), *options.moved
        )
    if options.update:
        promises = add_new(promises, existing)
    if options.moved or options.update:
        LIST.write_text(render(text, promises), encoding="utf-8")
    others = {each.partition("::")[0] for promise in promises for each in promise.replacements}
    elsewhere = collect(*(path for path in sorted(others) if not path.startswith(FOLDERS)))
    problems = find_problems(promises, existing, elsewhere)
    for problem in problems:
        print(f"{LIST.relative_to(ROOT)}: {problem}")
    if not problems:
        print(
            f"{len(existing)} promises are kept, {len(promises) - len(existing)} were replaced or withdrawn"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CollectionError as error:
        sys.exit(f"pytest could not collect the tests:\n{error}")
