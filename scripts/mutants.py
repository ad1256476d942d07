"""Change a module in many small ways, and name the changes that its own tests do not notice.

    python -m scripts.mutants fipop/operator/addresses/next_step.py              print the mutants that survive
    python -m scripts.mutants --record fipop/operator/addresses/next_step.py     and note what each mutant came to

mutmut makes the mutants and runs the tests, in a copy of the repository: the unit tests of the module's room and the
scenarios of that room, but for the long ones. A mutant is caught if a test fails or runs into the time limit.

tests/mutants/ holds one recording for each module. If there is one, the command fails (exit code 1) if a mutant that
was caught in it survives now. A mutant is known by its function and its change, not by a line or a path, so that a
recording outlives edits elsewhere. Rename the recording with the module. Exit code 2 if the mutants could not be tried.

Mutants that only change prose or a log statement are left out: messages are the matter of one table, not of each
module's tests.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from scripts.rooms import UNIT, UnknownRoomError, paths_of

ROOT = Path(__file__).parents[1]
RECORDINGS = Path("tests/mutants")
RUNNER = Path(__file__).with_name("mutation.py")
PACKAGE = "fipop"

LIMIT_FACTOR, LIMIT_EXTRA_SECONDS = 5, 2
"""The tests of a mutant may take five times as long as without it and ten seconds more; what takes longer is stuck."""
CONTEXT = 30
"""Characters beside the change by which a mutant is known."""

CAUGHT, SURVIVED = "caught", "survived"
_LOGGERS = ("log", "logger")
_STATUS = {
    "killed": CAUGHT,
    "timeout": CAUGHT,
    "segfault": CAUGHT,
    "survived": SURVIVED,
    "no tests": SURVIVED,
}
_IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", ".hypothesis", "*_cache", "*.egg-info", "build", "dist", "out", "mutants"
)
_PROFILE = """

from hypothesis import Phase as _Phase
from hypothesis import settings as _settings

_settings.register_profile(
    "mutants", phases=(_Phase.explicit, _Phase.generate), deadline=None, derandomize=True, database=None
)
"""
"""For the copy: the same examples for each mutant, and no search for the smallest one that fails."""
_MUTANT_NAME = re.compile(r"x(?:_|ǁ(?P<owner>\w+)ǁ)(?P<function>\w+)__mutmut_(?P<number>\d+|orig)")


class MutationError(Exception):
    """The mutants of a module could not be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a mutant changes."""

    function: str
    """With its class, if it has one."""
    old: str
    new: str
    """The statements that differ; without comments, in the layout of `ast.unparse`."""

    @property
    def excerpts(self) -> tuple[str, str]:
        """The statements without the parts that are far from the change."""
        start = _common_length(self.old, self.new)
        end = _common_length(self.old[start:][::-1], self.new[start:][::-1])
        old, new = (_shorten(text, start, len(text) - end) for text in (self.old, self.new))
        return old, new

    @property
    def id(self) -> str:
        """The change as one line."""
        old, new = self.excerpts
        return f"{self.function}: {old} => {new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A mutant and what became of it."""

    id: str
    change: Change
    status: str


def changes_in(source: str) -> dict[str, Change]:
    """Return what the functions in `source`, a module as mutmut writes it, change, by the names of these functions.

    Functions that only differ in prose or in what they log are missing.
    """
    found = {
        node.name: node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _MUTANT_NAME.fullmatch(node.name)
    }
    changes = {}
    for name, node in sorted(found.items(), key=lambda item: _order(item[0])):
        match = _MUTANT_NAME.fullmatch(name)
        if match is None or match["number"] == "orig":
            continue
        original = found[f"{name.rpartition('_')[0]}_orig"]
        node.name = original.name = match["function"]
        if _dump_without_prose(node) == _dump_without_prose(original):
            continue
        owner = f"{match['owner']}." if match["owner"] else ""
        old, new = _differing(ast.unparse(original), ast.unparse(node))
        changes[name] = Change(function=owner + match["function"], old=old, new=new)
    return changes


def judge(changes: Mapping[str, Change], outcomes: Mapping[str, str]) -> list[Mutant]:
    """Join the changes with what mutmut says about each; two mutants with one text get numbers.

    Raises:
        MutationError: A mutant was not tried, or what came of it means nothing.
    """
    seen: Counter[str] = Counter()
    mutants = []
    for name, change in changes.items():
        outcome = outcomes.get(name, "not tried")
        if outcome not in _STATUS:
            message = f"Mutant {name} ({change.id}) is neither caught nor alive: {outcome}."
            raise MutationError(message)
        seen[change.id] += 1
        number = f" (#{seen[change.id]})" if seen[change.id] > 1 else ""
        mutants.append(Mutant(id=change.id + number, change=change, status=_STATUS[outcome]))
    return mutants


def render(mutants: Iterable[Mutant]) -> str:
    """Return the text of a recording: a line for each mutant, sorted."""
    return "".join(f"{each.status:<8} {each.id}\n" for each in sorted(mutants, key=lambda each: each.id))


def parse(text: str) -> dict[str, str]:
    """Return what is recorded for each mutant."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: status for status, name in lines}


def find_lost(mutants: Iterable[Mutant], recorded: Mapping[str, str]) -> list[Mutant]:
    """Return the mutants that were caught when they were recorded, and survive now."""
    return [each for each in mutants if each.status == SURVIVED and recorded.get(each.id) == CAUGHT]


def recording_of(module: Path) -> Path:
    """Return the path of the recording of `module`: one folder for all, so that a move is one rename."""
    return RECORDINGS / f"{'.'.join(module.with_suffix('').parts[1:])}.txt"


def selected_tests(module: Path, root: Path) -> tuple[str, ...]:
    """Return the tests of the room of `module`, or of the nearest room above that has unit tests.

    Raises:
        MutationError: No tests belong to the module.
    """
    for folder in module.relative_to(PACKAGE).parents:
        if folder == Path():
            break
        try:
            return paths_of(str(folder), root, with_long=False)
        except UnknownRoomError:
            continue
    own = Path(UNIT, f"test_{module.stem}.py")
    if not (root / own).is_file():
        message = f"No tests belong to {module}: neither a folder below {UNIT} nor {own}."
        raise MutationError(message)
    return (str(own),)


def run_mutmut(module: Path, root: Path, processes: int, only: Sequence[str]) -> list[Mutant]:
    """Have mutmut try the mutants of `module`, those of the functions `only` or all.

    Raises:
        MutationError: The tests fail without any mutant, or mutmut failed.
    """
    tests = selected_tests(module, root)
    with tempfile.TemporaryDirectory(prefix="fipop-mutants-") as folder:
        copy = Path(folder, "copy")
        shutil.copytree(root, copy, ignore=_IGNORED)
        _configure(copy, module, tests)
        names = [f"*{_mangle(name)}__mutmut_*" for name in only]
        _mutmut(copy, "run", "--max-children", str(processes), *names, is_shown=True)
        results = _mutmut(copy, "results", "--all", "true")
        outcomes = dict(re.findall(r"(x[_ǁ][\wǁ]+__mutmut_\d+): (.+)", results))
        changes = changes_in((copy / "mutants" / module).read_text(encoding="utf-8"))
    if only:
        changes = {name: each for name, each in changes.items() if each.function in only}
    if not changes:
        message = f"There is nothing to change in {module}."
        raise MutationError(message)
    return judge(changes, outcomes)


def _mangle(function: str) -> str:
    owner, _, name = function.rpartition(".")
    return f".xǁ{owner}ǁ{name}" if owner else f".x_{name}"


def _configure(copy: Path, module: Path, tests: Sequence[str]) -> None:
    """Write the settings of mutmut, which has no options for them, into the copy."""
    arguments = ["-p", "no:cacheprovider", "--numprocesses=0", "--hypothesis-profile=mutants"]
    arguments.append("--override-ini=faulthandler_timeout=0")  # all tests of a room run as one first
    settings = {
        "source_paths": [PACKAGE],
        "only_mutate": [str(module)],
        "also_copy": sorted(path.name for path in copy.iterdir() if path.name != PACKAGE),
        "pytest_add_cli_args": arguments,
        "pytest_add_cli_args_test_selection": list(tests),
        "timeout_multiplier": float(LIMIT_FACTOR),
        "timeout_constant": float(LIMIT_EXTRA_SECONDS),
        "use_git_change_detection": False,
    }
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in settings.items()]
    with (copy / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n" + "".join(lines))
    with (copy / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(_PROFILE)


def _mutmut(copy: Path, *arguments: str, is_shown: bool = False) -> str:
    """Run mutmut in `copy` and return what it prints; a terminal sees its progress."""
    # Sets of tests are in the same order for each run.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    is_terminal = is_shown and sys.stdout.isatty()
    done = subprocess.run(
        [sys.executable, str(RUNNER), *arguments],
        cwd=copy,
        env=environment,
        check=False,
        text=True,
        stdout=None if is_terminal else subprocess.PIPE,
        stderr=None if is_terminal else subprocess.STDOUT,
    )
    if done.returncode != 0:
        # Each step of its progress begins with a carriage return.
        output = re.sub(r"[^\n]*\r", "", done.stdout or "")
        message = f"mutmut failed with exit code {done.returncode}.\n{output[-4000:]}"
        raise MutationError(message)
    return done.stdout or ""


def _order(name: str) -> tuple[str, int]:
    function, _, number = name.rpartition("_")
    return function, int(number) if number.isdecimal() else 0


class _WithoutProse(ast.NodeTransformer):
    """Empty the texts that hold more than one word, and leave out log statements."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name.lstrip("_") in _LOGGERS:
                return ast.Pass()
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        is_prose = isinstance(node.value, str) and " " in node.value
        return ast.Constant("") if is_prose else node


def _dump_without_prose(node: ast.AST) -> str:
    return ast.dump(_WithoutProse().visit(ast.parse(ast.unparse(node))))


def _differing(old: str, new: str) -> tuple[str, str]:
    """Return the lines of each text that the other does not have, as one line each."""
    lines = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    removed, added = (
        " ; ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in ("- ", "+ ")
    )
    return removed or "(nothing)", added or "(nothing)"


def _common_length(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _shorten(text: str, start: int, end: int) -> str:
    first, last = max(0, start - CONTEXT), min(len(text), end + CONTEXT)
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")


def _print_mutants(title: str, mutants: Sequence[Mutant]) -> None:
    print(f"\n{title}:")
    for each in mutants:
        old, new = each.change.excerpts
        print(f"\n  {each.change.function}\n    - {old}\n    + {new}")


def _report(module: Path, mutants: Sequence[Mutant], recorded: Mapping[str, str], seconds: float) -> int:
    lost = find_lost(mutants, recorded)
    survivors = [each for each in mutants if each.status == SURVIVED and each not in lost]
    if survivors:
        _print_mutants("Survived", survivors)
    if lost:
        _print_mutants("Survived, and was caught when it was recorded", lost)
    total, caught = len(mutants), sum(each.status == CAUGHT for each in mutants)
    print(f"\n{module}: {total} mutants, {caught} caught, {total - caught} survived, {seconds:.0f} s")
    if lost:
        print(f"{len(lost)} of the survivors were caught when {recording_of(module)} was recorded.")
    return 1 if lost else 0


def _parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("module", type=Path, help="path of the module, below fipop/")
    parser.add_argument("--record", action="store_true", help="write the recording of the module")
    parser.add_argument("--function", action="append", default=[], help="only this function, or CLASS.METHOD")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="mutants tried at once")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to copy")
    options = parser.parse_args(arguments)
    if options.record and options.function:
        parser.error("--record needs the whole module")
    if options.module.parts[:1] != (PACKAGE,) or not (options.root / options.module).is_file():
        parser.error(f"{options.module} is not a module below {PACKAGE}/")
    return options


def main(arguments: Sequence[str]) -> int:
    """Try the mutants, print, record; see the module's text for the exit code."""
    options = _parse_arguments(arguments)
    module, root = options.module, options.root
    began = time.monotonic()
    try:
        mutants = run_mutmut(module, root, options.processes, options.function)
    except MutationError as error:
        print(error)
        return 2
    recording = root / recording_of(module)
    recorded = parse(recording.read_text(encoding="utf-8")) if recording.exists() else {}
    if options.record:
        recording.parent.mkdir(parents=True, exist_ok=True)
        recording.write_text(render(mutants), encoding="utf-8")
        recorded = {}
    exit_code = _report(module, mutants, recorded, time.monotonic() - began)
    gone = recorded.keys() - {each.id for each in mutants}
    if gone and not options.function:
        print(f"{len(gone)} mutants of the recording do not exist any more: their statements changed.")
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
