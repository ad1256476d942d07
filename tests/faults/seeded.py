"""Known bugs of the field, put into a copy of the program one at a time: the suite must catch every one.

    python -m tests.faults.seeded [NAME…]

A bug is a small edit of the source; the program runs from a copy that has it (PYTHONPATH), everything else is as in
any plan. It counts as caught when the plan finds a violation that shows the `sign` of the bug.
"""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import fipop
from localfleet.assets import ensure_all
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults.bugs import BUGS, Bug
from tests.faults.lane import Lane
from tests.faults.plans import undisturbed
from tests.faults.runner import PATIENCE_SECONDS, Reference, Result, run_plan

PACKAGE = Path(fipop.__file__).parent


class BugDoesNotFitError(Exception):
    """The source is not what the bug was written for."""

    def __init__(self, *, bug: str, file: str, found: int) -> None:
        self.bug = bug
        self.file = file
        self.found = found
        super().__init__(f"bug {bug}: its text stands {found} times in {file}, not once")


def apply(bug: Bug, package: Path) -> None:
    """Put the bug into a package. Raises BugDoesNotFitError."""
    for edit in bug.edits:
        file = package / edit.file
        text = file.read_text()
        if text.count(edit.before) != 1:
            raise BugDoesNotFitError(bug=bug.name, file=edit.file, found=text.count(edit.before))
        file.write_text(text.replace(edit.before, edit.after))


def copy_with(bug: Bug, folder: Path) -> Path:
    """A copy of the package with the bug, in a new folder for PYTHONPATH."""
    target = folder / bug.name
    shutil.copytree(PACKAGE, target / "fipop", ignore=shutil.ignore_patterns("__pycache__"))
    apply(bug, target / "fipop")
    return target


class Hunt:
    """Runs bugs on lanes; the references are runs of the program as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._references: dict[str, Reference] = {}

    async def catch(self, lane: Lane, bug: Bug) -> Result:
        """The result of the bug's plan on a program that has it."""
        reference = await self._reference(lane, bug.plan.scenario)
        environment = {"PYTHONPATH": str(copy_with(bug, self._folder))}
        return await run_plan(
            lane,
            bug.plan,
            reference,
            environment=environment,
            variant=bug.name,
            # Who sleeps past a lease takes longer than what a bug keeps from ending.
            patience_seconds=PATIENCE_SECONDS if bug.plan.election else 25.0,
        )

    async def _reference(self, lane: Lane, scenario: str) -> Reference:
        if scenario not in self._references:
            result = await run_plan(lane, undisturbed(scenario), None)
            self._references[scenario] = Reference.of(result)
        return self._references[scenario]


def is_caught(bug: Bug, result: Result) -> bool:
    """Whether the plan found what the bug does."""
    return any(bug.sign in violation for violation in result.violations)


async def main(options: argparse.Namespace) -> int:
    chosen = [bug for bug in BUGS if not options.names or bug.name in options.names]
    missed = 0
    async with LocalFleet(ensure_all(*PROGRAMS, "helm")) as fleet, AsyncExitStack() as exits:
        hunt = Hunt(fleet.folder)
        lanes = [await exits.enter_async_context(Lane(fleet, number)) for number in range(options.lanes)]
        waiting = list(reversed(chosen))

        async def work(lane: Lane) -> None:
            nonlocal missed
            while waiting:
                bug = waiting.pop()
                result = await hunt.catch(lane, bug)
                caught = is_caught(bug, result)
                missed += not caught
                first = result.violations[0] if result.violations else "no violation"
                sys.stdout.write(f"{'caught' if caught else 'MISSED'} {bug.name}: {first[:160]}\n")
                sys.stdout.flush()

        await asyncio.gather(*(work(lane) for lane in lanes))
    sys.stdout.write(f"seeded: bugs={len(chosen)} missed={missed}\n")
    return 1 if missed else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.seeded")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--lanes", type=int, default=4)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse(sys.argv[1:]))))
