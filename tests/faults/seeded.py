"""Known bugs of the field, put into a copy of the program one at a time: the suite must catch every one.

A bug is a small edit of the source; the program runs from a copy that has it (PYTHONPATH), everything else is as in
any plan. It counts as caught when its plan shows a sign of the bug, in a violation, in how its end differs from that of
the undisturbed run, or in who has what then, and
- the program lives on: one that ends by itself shows that it ended, and nothing else;
- the plan finds nothing in the program as it is, under the same patience;
- where guards are out as well, the program without them alone does not show the sign.
A few bugs no plan shows: the unit tests that are named for them must fail, each by an assertion.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import fipop
from localfleet.arguments import positive
from localfleet.assets import ensure_all
from localfleet.fleet import PROGRAMS, LocalFleet
from tests.faults.anchors import Edit, apply
from tests.faults.bugs import BUGS, Bug
from tests.faults.lane import GROUP, Lane
from tests.faults.plans import Plan, undisturbed
from tests.faults.runner import PATIENCE_SECONDS, Reference, Result, run_plan
from tests.faults.service_bugs import SERVICE_BUGS
from tests.faults.unit_bugs import UNIT_BUGS, UnitBug
from tests.harness.ends import difference, unsettled
from tests.harness.history import FLOATING_IPS
from tests.harness.stored import slots_named_by

PACKAGE = Path(fipop.__file__).parent
ROOT = Path(__file__).parents[2]
BUG_PATIENCE_SECONDS = 25.0
ENDED = "ended by itself"
STUCK = "does not end"
ASSERTIONS = ("AssertionError", "assert ", "Failed: DID NOT RAISE")
UNIT_SECONDS = 1000.0
"""A bound for a run that hangs: on a busy machine a run of many examples takes minutes."""
UNITS_AT_ONCE = 2
"""So many bugs are tried out by unit tests at the same time, each in a process of its own."""
NAMES = tuple(bug.name for bug in (*BUGS, *UNIT_BUGS, *SERVICE_BUGS))


class Verdict(Enum):
    """What became of a bug; all but the first count as missed."""

    CAUGHT = "caught"
    MISSED = "MISSED"
    CRASHED = "CRASHED"
    BY_THE_PLAN = "MISSED (the plan finds this without the bug)"
    BY_THE_GUARDS = "MISSED (its guards alone show this)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a plan shows: violations, and traces, which are no harm by themselves (who has what, when)."""

    violations: Sequence[str] = ()
    traces: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A verdict, and the violation that speaks for it."""

    verdict: Verdict
    evidence: str

    @property
    def is_caught(self) -> bool:
        return self.verdict is Verdict.CAUGHT


class WrongPackageError(Exception):
    """Unit tests ran on another package than the copy."""

    def __init__(self, *, name: str, copy: Path, output: str) -> None:
        super().__init__(f"the unit tests of {name} did not import {copy}:\n{output}")


def copy_with(name: str, edits: Iterable[Edit], folder: Path) -> Path:
    """A copy of the package with the edits, in a new folder of that name for PYTHONPATH."""
    target = folder / name
    shutil.copytree(PACKAGE, target / "fipop", ignore=shutil.ignore_patterns("__pycache__"))
    apply(name, edits, target / "fipop")
    return target


def all_edits(bug: Bug | UnitBug) -> tuple[Edit, ...]:
    """The edits that make a bug, those of its guards too."""
    return (*bug.edits, *bug.with_guards_off) if isinstance(bug, Bug) else bug.edits


def judge(bug: Bug, shown: Shown) -> Finding:
    """Whether a plan that showed this found what the bug does."""
    ended = [violation for violation in shown.violations if ENDED in violation]
    if ended:
        return Finding(verdict=Verdict.CRASHED, evidence=ended[0])
    for line in (*shown.violations, *shown.traces):
        if any(sign in line for sign in bug.signs):
            return Finding(verdict=Verdict.CAUGHT, evidence=line)
    return Finding(verdict=Verdict.MISSED, evidence="; ".join(shown.violations[:3]) or "no violation")


def judge_control(bug: Bug, shown: Shown) -> Finding | None:
    """What is wrong with a plan that showed this in the program as it is; None where nothing is."""
    plain = judge(bug, shown)
    if not shown.violations and not plain.is_caught:
        return None
    return Finding(verdict=Verdict.BY_THE_PLAN, evidence=plain.evidence)


def judge_guards(bug: Bug, shown: Shown) -> Finding | None:
    """What is wrong with a bug whose guards alone, taken out, led to this; None where nothing is."""
    alone = judge(bug, shown)
    if alone.verdict is Verdict.MISSED:
        return None
    return Finding(verdict=Verdict.BY_THE_GUARDS, evidence=alone.evidence)


class Hunt:
    """Runs bugs on lanes; the references, and what the plans show without a bug, are kept.

    Every program runs from a copy of its own, the one without a bug too: they differ in their edits alone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._references: dict[str, Reference] = {}
        self._controls: dict[str, Shown] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def catch(self, lane: Lane, bug: Bug) -> Finding:
        """Judge the bug's plan on a program that has it."""
        return judge(bug, await self._run(lane, bug.plan, bug.name, all_edits(bug)))

    async def try_out(self, lane: Lane, bug: Bug) -> Finding:
        """Judge the bug, then its plan on the program as it is, and on one that lacks its guards alone."""
        found = await self.catch(lane, bug)
        if not found.is_caught:
            return found
        wrong = judge_control(bug, await self._control(lane, bug.plan))
        if wrong is None and bug.with_guards_off:
            alone = await self._run(lane, bug.plan, f"{bug.name}-guards", bug.with_guards_off)
            wrong = judge_guards(bug, alone)
        return wrong or found

    async def _run(self, lane: Lane, plan: Plan, name: str, edits: Iterable[Edit]) -> Shown:
        """What a plan shows in a program with edits; its end must be that of the undisturbed run."""
        reference = await self._reference(lane, plan.scenario)
        environment = {"PYTHONPATH": str(copy_with(name, edits, self._folder))}
        result = await run_plan(
            lane,
            plan,
            reference,
            environment=environment,
            variant=name,
            patience_seconds=_patience_seconds(plan),
        )
        stuck = next((each for each in result.violations if STUCK in each), "end")
        ends = (f"{stuck}: {line}" for line in _difference(reference, result))
        traces = tuple(f"{stuck}: {each}" for each in _traces(lane))
        shown = Shown(violations=(*result.violations, *ends), traces=traces)
        await _drop_finalizers(lane)
        return shown

    async def _control(self, lane: Lane, plan: Plan) -> Shown:
        """What a plan finds in a copy of the program as it is; each plan is run once."""
        line = plan.to_line()
        async with self._locks[line]:
            if line not in self._controls:
                name = f"{plan.scenario}-control-{len(self._locks)}"
                self._controls[line] = await self._run(lane, plan, name, ())
        return self._controls[line]

    async def _reference(self, lane: Lane, scenario: str) -> Reference:
        async with self._locks[scenario]:
            if scenario not in self._references:
                name = f"{scenario}-reference"
                environment = {"PYTHONPATH": str(copy_with(name, (), self._folder))}
                result = await run_plan(
                    lane, undisturbed(scenario), None, environment=environment, variant=name
                )
                self._references[scenario] = Reference.of(result)
        return self._references[scenario]


def _traces(lane: Lane) -> list[str]:
    """Which addresses each floating IP has, where any would do too; and what is not at rest."""
    now = lane.recorder.now
    owned = [
        f"{key[1]}/{key[2]} has {address}"
        for key, obj in sorted(now.items())
        if key[0] == FLOATING_IPS
        for _, address in sorted(slots_named_by(obj))
    ]
    return owned + unsettled(now, lane.carried())


async def _drop_finalizers(lane: Lane) -> None:
    """What a bug keeps from going would be in the way of all later plans of the lane."""
    client = lane.plane.client
    for (plural, namespace, name), obj in list(lane.recorder.now.items()):
        if plural != FLOATING_IPS or not obj["metadata"].get("finalizers"):
            continue
        place = f"/api/v1/namespaces/{namespace}"
        is_orphan = await client.find(place) is None
        # Nothing can be written in a namespace that is gone.
        await lane.ensure_namespace(namespace)
        await client.patch(
            f"{GROUP}/namespaces/{namespace}/{plural}/{name}", {"metadata": {"finalizers": None}}
        )
        if is_orphan:
            await client.delete(place)
            await lane._finish_namespace(namespace)


def _difference(reference: Reference, result: Result) -> list[str]:
    if result.plan.operators > 1:
        return difference(reference.end_of_two, result.end_of_two)
    return difference(reference.end, result.end)


def _patience_seconds(plan: Plan) -> float:
    """Who sleeps past a lease takes longer than what a bug keeps from ending."""
    return PATIENCE_SECONDS if plan.election else BUG_PATIENCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRun:
    """What named unit tests came to: pytest's exit code, and the message of each failure, by the test's name."""

    code: int
    ran: int
    failures: dict[str, str]
    output: str


def try_out_by_unit_tests(bug: UnitBug, folder: Path) -> Finding:
    """Run the tests of a bug on a copy that has it, and on one that does not. Raises WrongPackageError."""
    control = run_unit_tests(bug, copy_with(f"{bug.name}-control", (), folder))
    if control.code != 0 or control.ran != len(bug.tests):
        return Finding(verdict=Verdict.BY_THE_PLAN, evidence=_last_line(control.output))
    return judge_unit_run(bug, run_unit_tests(bug, copy_with(bug.name, bug.edits, folder)))


def judge_unit_run(bug: UnitBug, run: UnitRun) -> Finding:
    """Whether every test of a bug failed by an assertion."""
    asserted = [name for name, message in run.failures.items() if message.startswith(ASSERTIONS)]
    if run.code == 1 and len(asserted) == run.ran == len(bug.tests):
        return Finding(
            verdict=Verdict.CAUGHT, evidence=f"{len(asserted)} unit tests fail, {asserted[0]} first"
        )
    return Finding(
        verdict=Verdict.MISSED,
        evidence=f"{len(asserted)} of {len(bug.tests)} unit tests fail by an assertion: {_last_line(run.output)}",
    )


def run_unit_tests(bug: UnitBug, copy: Path) -> UnitRun:
    """Run the tests of a bug, as they are in this checkout, on a fresh copy. Raises WrongPackageError."""
    report = copy / "report.xml"
    # -P and the option: neither the current folder nor the checkout may come before the copy.
    command = (sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}")
    settings = (f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={ROOT}")
    path = ("-o", f"pythonpath={copy} {ROOT}", "--hypothesis-profile=hunt")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    done = subprocess.run(
        (*command, *settings, *path, *(f"{ROOT / bug.file}::{test}" for test in bug.tests)),
        cwd=copy,
        env={**kept, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=UNIT_SECONDS,
        check=False,
    )
    # Python leaves bytecode beside what it imports, and the copy came without any.
    if not (copy / "fipop" / "__pycache__").is_dir():
        raise WrongPackageError(name=copy.name, copy=copy, output=done.stdout + done.stderr)
    cases = list(ET.parse(report).iter("testcase"))
    failures = {
        case.get("name", ""): failure.get("message", "") for case in cases for failure in case.iter("failure")
    }
    return UnitRun(code=done.returncode, ran=len(cases), failures=failures, output=done.stdout)


def absent_tests(bugs: Sequence[UnitBug]) -> list[str]:
    """Return, in a sentence each, the tests named for bugs that pytest does not collect in this checkout."""
    files = sorted({bug.file for bug in bugs if (ROOT / bug.file).is_file()})
    command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        (*command, f"--rootdir={ROOT}", *files),
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        timeout=UNIT_SECONDS,
        check=False,
    )
    if done.returncode:
        return [f"pytest cannot collect {', '.join(files)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"]
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    named = [(bug.name, f"{bug.file}::{test}") for bug in bugs for test in bug.tests]
    return [
        f"bug {name}: there is no test {test}; {_alike(test, collected)}"
        for name, test in named
        if test not in collected
    ]


def _alike(test: str, collected: Sequence[str]) -> str:
    """Say where a test may be by now: in another file by its name, or by another name in one of these files."""
    definition = f"def {test.partition('[')[0].rpartition('::')[2]}("
    files = [path for path in sorted(ROOT.glob("tests/**/test_*.py")) if definition in path.read_text()]
    places = [str(path.relative_to(ROOT)) for path in files]
    if places:
        return f"one of that name is in {', '.join(places)}"
    return f"alike are: {', '.join(get_close_matches(test, collected, n=3)) or 'none'}"


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1]


def report(name: str, finding: Finding) -> bool:
    """Say what became of a bug; whether it was caught."""
    sys.stdout.write(f"{finding.verdict.value} {name}: {finding.evidence[:240]}\n")
    sys.stdout.flush()
    return finding.is_caught


async def hunt_on_lanes(bugs: Sequence[Bug], lanes: int) -> int:
    """Try bugs out on that many lanes; how many were missed."""
    missed = 0
    async with LocalFleet(ensure_all(*PROGRAMS, "helm")) as fleet, AsyncExitStack() as exits:
        hunt = Hunt(fleet.folder)
        waiting = list(reversed(bugs))

        async def work(lane: Lane) -> None:
            nonlocal missed
            while waiting:
                bug = waiting.pop()
                finding = await hunt.try_out(lane, bug)
                missed += not report(bug.name, finding)

        numbers = range(min(lanes, len(bugs)))
        there = [await exits.enter_async_context(Lane(fleet, number)) for number in numbers]
        await asyncio.gather(*(work(lane) for lane in there))
    return missed


def hunt_by_unit_tests(bugs: Sequence[UnitBug]) -> int:
    """Try bugs out that no plan shows; how many were missed."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(UNITS_AT_ONCE) as pool:
        findings = pool.map(lambda bug: try_out_by_unit_tests(bug, Path(folder)), bugs)
        return sum(not report(bug.name, found) for bug, found in zip(bugs, findings, strict=True))


def main(options: argparse.Namespace) -> int:
    chosen = set(options.names or NAMES)
    if options.units:
        chosen -= {bug.name for bug in BUGS}
    units = [bug for bug in (*UNIT_BUGS, *SERVICE_BUGS) if bug.name in chosen]
    bugs = [bug for bug in BUGS if bug.name in chosen]
    missed = hunt_by_unit_tests(units)
    if bugs:
        missed += asyncio.run(hunt_on_lanes(bugs, options.lanes))
    sys.stdout.write(f"seeded: bugs={len(chosen)} missed={missed}\n")
    return 1 if missed else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.seeded",
        description="Put known bugs into a copy of the program, one at a time: the suite must catch every one.",
        epilog="Exit code 0: every bug was caught; 1: some were not.",
    )
    parser.add_argument("names", nargs="*", type=_bug_name, metavar="NAME", help="of a bug; without any: all")
    parser.add_argument(
        "--units",
        action="store_true",
        help="leave out the bugs that need control planes: a matter of minutes",
    )
    parser.add_argument(
        "--lanes", type=positive, default=4, help="how many bugs run side by side (default: 4)"
    )
    return parser.parse_args(arguments)


def _bug_name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"there is no bug {text!r}; there are: {', '.join(sorted(NAMES))}")
    return text


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
