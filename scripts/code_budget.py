"""Hold the code lines of each folder of fipop/ to code-budget.toml.

    python -m scripts.code_budget            one line for each number that is not held; fails if there is any
    python -m scripts.code_budget --update   lower the numbers to what is counted; never raise one

A number fails above and, by more than SLACK, below: so it follows the code down. To raise one, write it by hand with a
comment behind it that says why. It is compared with its value before the last change of the file, as git has it;
outside of a clone that part is left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from scripts.code_lines import code_lines

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fipop"
BUDGET = ROOT / "code-budget.toml"
UPDATE = "python -m scripts.code_budget --update"
SLACK = 20
"""Lines that a folder may be below its number, so that not every change needs a new one."""
REASON_WORDS = 3
"""A comment of fewer words explains nothing."""
TOTAL = "total"
ROOT_MODULES = "."
_LINE = re.compile(r'^"?(?P<folder>[\w./]+)"?(?P<equals> = )(?P<lines>\d+)(?: *# *(?P<why>.*))?$')


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A number of the file, and the comment behind it."""

    lines: int
    why: str = ""


def parse(text: str) -> dict[str, Entry]:
    """Return the entries of a budget file by folder."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {each["folder"]: Entry(lines=int(each["lines"]), why=each["why"] or "") for each in found if each}


def count(modules: Mapping[str, int], folders: Iterable[str]) -> dict[str, int]:
    """Return the lines of each folder, by the lines of each module, whose path is relative to the package.

    A module belongs to the nearest of `folders` above it, else to the folder of the first level.
    """
    known = set(folders)
    counted = {TOTAL: sum(modules.values())}
    for path, lines in modules.items():
        above = [str(each) for each in PurePosixPath(path).parents][:-1]
        outermost = above[-1] if above else ROOT_MODULES
        folder = next((each for each in above if each in known), outermost)
        counted[folder] = counted.get(folder, 0) + lines
    return counted


def find_problems(entries: Mapping[str, Entry], counted: Mapping[str, int]) -> list[str]:
    """Return a line for each number that is not held, and for each folder or number without the other."""
    found = []
    for folder in sorted({*entries, *counted}):
        if folder not in counted:
            found.append(f"{folder}: there is no such folder; run: {UPDATE}")
        elif folder not in entries:
            found.append(f'{folder}: has no budget; add the line: "{folder}" = {counted[folder]}')
        else:
            over = counted[folder] - entries[folder].lines
            if over > 0:
                found.append(
                    f"{folder}: {counted[folder]} code lines are {over} over the budget of {entries[folder].lines}. "
                    "Remove code, or raise the number with a comment behind it that says why."
                )
            elif -over > SLACK:
                found.append(
                    f"{folder}: {counted[folder]} code lines are {-over} under the budget; lower it, run: {UPDATE}"
                )
    return found


def find_unexplained(before: Mapping[str, Entry], now: Mapping[str, Entry]) -> list[str]:
    """Return a line for each number that was raised without a new comment that says why."""
    return [
        f"{folder}: was raised from {before[folder].lines} to {entry.lines}; "
        f"write a comment of at least {REASON_WORDS} words behind the number that says why"
        for folder, entry in now.items()
        if folder in before
        and entry.lines > before[folder].lines
        and (len(entry.why.split()) < REASON_WORDS or entry.why == before[folder].why)
    ]


def lower(text: str, counted: Mapping[str, int]) -> str:
    """Return the budget file with its numbers lowered to what is counted, without folders that are gone."""
    lines = []
    for line in text.splitlines():
        found = _LINE.match(line)
        if not found:
            lines.append(line)
        elif found["folder"] in counted:
            number = min(int(found["lines"]), counted[found["folder"]])
            lines.append(f"{line[: found.start('lines')]}{number}{line[found.end('lines') :]}")
    return "".join(f"{line}\n" for line in lines)


def text_before_the_last_change(text: str) -> str | None:
    """Return the file as it was before it came to be `text`; None without a clone or an earlier state."""
    committed = _git("show", f"HEAD:{BUDGET.name}")
    if committed is None or committed != text:
        return committed
    changed = _git("log", "-1", "--format=%H", "--", BUDGET.name) or ""
    return _git("show", f"{changed.strip()}^:{BUDGET.name}")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def main(arguments: list[str]) -> int:
    """Compare or update; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.code_budget", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--update", action="store_true", help="lower the numbers to what is counted")
    options = parser.parse_args(arguments)
    text = BUDGET.read_text(encoding="utf-8")
    modules = {path.relative_to(PACKAGE).as_posix(): len(code_lines(path)) for path in PACKAGE.rglob("*.py")}
    counted = count(modules, parse(text))
    if options.update:
        text = lower(text, counted)
        BUDGET.write_text(text, encoding="utf-8")
    entries, before = parse(text), text_before_the_last_change(text)
    problems = [*find_problems(entries, counted), *find_unexplained(parse(before or ""), entries)]
    for problem in problems:
        print(f"{BUDGET.name}: {problem}")
    if not problems:
        print(f"{counted[TOTAL]} code lines in {len(entries) - 1} folders are within their budgets")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
