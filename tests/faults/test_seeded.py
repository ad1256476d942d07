"""The seeded bugs are bugs of this source, and the tests catch a few of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.anchors import Edit, apply
from tests.faults.bugs import BUGS, Bug
from tests.faults.lane import Lane
from tests.faults.scenarios import ALL
from tests.faults.seeded import (
    NAMES,
    Hunt,
    Shown,
    UnitRun,
    Verdict,
    WrongPackageError,
    absent_tests,
    all_edits,
    copy_with,
    judge,
    judge_control,
    judge_guards,
    judge_unit_run,
    parse,
    run_unit_tests,
    try_out_by_unit_tests,
)
from tests.faults.service_bugs import SERVICE_BUGS
from tests.faults.unit_bugs import UNIT_BUGS

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "testing.md"
ALWAYS = ("no-quarantine", "left-is-free")
"""The bugs that tests hunt, of each kind one that is quick; `make faults-seeded` hunts all."""
UNIT_BUGS_OF_EACH_KIND = ("nobody-is-suspected", "older-entry-replaces", "retry-overwrites")
CRASH = "free-0 ended by itself with [1]"
QUARANTINE = next(bug for bug in BUGS if bug.name == "no-quarantine")
GUARDED = next(bug for bug in BUGS if bug.name == "free-on-failed-list")
OLD_EVENTS = next(bug for bug in UNIT_BUGS if bug.name == "old-events-count")
TOMBSTONE = next(bug for bug in UNIT_BUGS if bug.name == "tombstone-forgotten")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, which each test leaves as it was."""
    return copy_with("copied", (), tmp_path_factory.mktemp("copied")) / "fipop"


@pytest.fixture
def changed(copied: Path) -> Iterator[Callable[[str, Iterable[Edit]], list[Path]]]:
    """Apply edits to the copy; the files that they changed."""
    sources = {path: path.read_bytes() for path in copied.rglob("*.py")}

    def change(name: str, edits: Iterable[Edit]) -> list[Path]:
        apply(name, edits, copied)
        return [path for path, source in sources.items() if path.read_bytes() != source]

    yield change
    for path, source in sources.items():
        path.write_bytes(source)


@pytest.mark.parametrize("bug", [*BUGS, *UNIT_BUGS, *SERVICE_BUGS], ids=lambda bug: bug.name)
def test_every_bug_fits_the_source_and_leaves_it_python(bug, changed) -> None:
    files = changed(bug.name, all_edits(bug))
    assert files
    for path in files:
        compile(path.read_bytes(), path.name, "exec")


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.with_guards_off], ids=lambda bug: bug.name)
def test_guards_out_fit_the_source_alone_and_are_told(bug: Bug, changed) -> None:
    assert changed(bug.name, bug.with_guards_off)
    assert " out: " in bug.what


@pytest.mark.slow
def test_the_unit_tests_that_are_named_for_bugs_are_there() -> None:
    assert absent_tests((*UNIT_BUGS, *SERVICE_BUGS)) == []


@pytest.mark.slow
def test_a_unit_test_that_is_no_longer_there_is_told_and_where_it_may_be() -> None:
    renamed = replace(TOMBSTONE, tests=(f"{TOMBSTONE.tests[0]}_not",))
    without_parameter = replace(OLD_EVENTS, tests=(OLD_EVENTS.tests[0].removesuffix("[4]"),))
    moved = replace(TOMBSTONE, file="tests/unit/test_gone.py", tests=TOMBSTONE.tests[:1])
    bugs = (renamed, without_parameter, moved)
    hints = (
        f"alike are: {TOMBSTONE.file}::{TOMBSTONE.tests[0]}",
        f"one of that name is in {OLD_EVENTS.file}",
        f"one of that name is in {TOMBSTONE.file}",
    )
    for found, bug, hint in zip(absent_tests(bugs), bugs, hints, strict=True):
        assert found.startswith(f"bug {bug.name}: there is no test {bug.file}::{bug.tests[0]}; {hint}")


def test_there_are_at_least_twenty_bugs_and_each_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 20


def test_no_sign_is_one_that_any_failure_shows() -> None:
    anything = [f"I{number} at revision 7: " for number in (1, 2, 3)]
    anything += [f"I4: chapter {number} does not end" for number in (1, 2, 3, 4)]
    found = {bug.name: judge(bug, Shown(violations=anything)) for bug in BUGS}
    assert [name for name, finding in found.items() if finding.is_caught] == []
    assert [bug.name for bug in BUGS if not bug.signs] == []


def test_a_sign_is_caught_and_another_violation_is_not() -> None:
    sign = f"I3 at revision 7: {QUARANTINE.signs[0]}"
    assert judge(QUARANTINE, Shown(violations=["I4: another", sign])).evidence == sign
    assert judge(QUARANTINE, Shown(violations=[sign])).verdict is Verdict.CAUGHT
    assert judge(QUARANTINE, Shown(traces=[sign])).verdict is Verdict.CAUGHT
    assert judge(QUARANTINE, Shown(violations=["I4: chapter 1 does not end"])).verdict is Verdict.MISSED
    assert judge(QUARANTINE, Shown()).verdict is Verdict.MISSED


def test_a_program_that_ends_by_itself_is_never_caught() -> None:
    found = judge(QUARANTINE, Shown(violations=[*QUARANTINE.signs, CRASH]))
    assert (found.verdict, found.is_caught) == (Verdict.CRASHED, False)


def test_a_plan_that_finds_something_without_the_bug_catches_nothing() -> None:
    for shown in (Shown(violations=["I4: chapter 1 does not end"]), Shown(traces=QUARANTINE.signs)):
        found = judge_control(QUARANTINE, shown)
        assert found is not None
        assert (found.verdict, found.is_caught) == (Verdict.BY_THE_PLAN, False)
    assert judge_control(QUARANTINE, Shown(traces=["end: c-m-steady00/dynamic has 10.9.0.11"])) is None


def test_guards_that_show_the_sign_by_themselves_or_crash_catch_nothing() -> None:
    for violations in (QUARANTINE.signs, [CRASH]):
        found = judge_guards(QUARANTINE, Shown(violations=violations))
        assert found is not None
        assert (found.verdict, found.is_caught) == (Verdict.BY_THE_GUARDS, False)
    assert judge_guards(QUARANTINE, Shown(violations=["I4: another"])) is None


class ToldHunt(Hunt):
    """Is told what its plans find: by the bug, without it, without its guards alone."""

    def __init__(self, folder: Path, *, plain: Sequence[str], alone: Sequence[str]) -> None:
        super().__init__(folder)
        self.plain, self.alone = Shown(violations=plain), Shown(violations=alone)
        self.runs: list[str] = []

    async def _run(self, _lane, _plan, name, edits):
        self.runs.append(name)
        if not edits:
            return self.plain
        return self.alone if name.endswith("-guards") else Shown(violations=GUARDED.signs)


@pytest.mark.parametrize(
    ("plain", "alone", "verdict"),
    [
        ([], [], Verdict.CAUGHT),
        (["I4: chapter 1 does not end"], [], Verdict.BY_THE_PLAN),
        ([], GUARDED.signs, Verdict.BY_THE_GUARDS),
    ],
)
async def test_a_bug_is_caught_by_itself_alone(plain, alone, verdict: Verdict, tmp_path: Path) -> None:
    hunt = ToldHunt(tmp_path, plain=plain, alone=alone)
    assert (await hunt.try_out(None, GUARDED)).verdict is verdict


async def test_each_plan_is_run_once_without_a_bug(tmp_path: Path) -> None:
    hunt = ToldHunt(tmp_path, plain=[], alone=[])
    await hunt.try_out(None, GUARDED)
    await hunt.try_out(None, replace(GUARDED, name="another"))
    assert sum("-control-" in name for name in hunt.runs) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in ALWAYS], ids=lambda bug: bug.name)
async def test_a_seeded_bug_is_caught(lane: Lane, bug: Bug, tmp_path: Path) -> None:
    found = await Hunt(tmp_path).catch(lane, bug)
    assert found.is_caught, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    [bug for bug in (*UNIT_BUGS, *SERVICE_BUGS) if bug.name in (*ALWAYS, *UNIT_BUGS_OF_EACH_KIND)],
    ids=lambda bug: bug.name,
)
def test_a_bug_that_no_plan_shows_is_caught_by_each_of_its_unit_tests(bug, tmp_path: Path) -> None:
    found = try_out_by_unit_tests(bug, tmp_path)
    assert found.is_caught, found


@pytest.mark.slow
def test_unit_tests_that_do_not_notice_the_bug_miss_it(tmp_path: Path) -> None:
    blind = "TestPut::test_a_new_object_is_a_change"
    found = try_out_by_unit_tests(replace(TOMBSTONE, tests=(TOMBSTONE.tests[0], blind)), tmp_path)
    assert found.verdict is Verdict.MISSED, found


@pytest.mark.slow
def test_unit_tests_that_do_not_pass_without_the_bug_catch_nothing(tmp_path: Path) -> None:
    found = try_out_by_unit_tests(replace(TOMBSTONE, tests=(f"{TOMBSTONE.tests[0]}_not",)), tmp_path)
    assert found.verdict is Verdict.BY_THE_PLAN, found


def test_unit_tests_that_break_otherwise_than_by_an_assertion_miss_the_bug() -> None:
    failures = dict.fromkeys(TOMBSTONE.tests, "AssertionError: assert 1 == 2")
    run = UnitRun(code=1, ran=len(TOMBSTONE.tests), failures=failures, output="")
    assert judge_unit_run(TOMBSTONE, run).is_caught
    broken = failures | {TOMBSTONE.tests[0]: "NameError: name 'x' is not defined"}
    assert not judge_unit_run(TOMBSTONE, replace(run, failures=broken)).is_caught
    assert not judge_unit_run(TOMBSTONE, replace(run, code=2)).is_caught


@pytest.mark.slow
def test_unit_tests_that_run_on_another_package_are_told(tmp_path: Path) -> None:
    with pytest.raises(WrongPackageError, match="did not import"):
        run_unit_tests(TOMBSTONE, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-bug"], "there is no bug 'no-such-bug'; there are: "),
        (["--lanes", "0"], "'0' is no whole number from 1 on"),
        (["--lanes", "many"], "'many' is no whole number from 1 on"),
    ],
)
def test_what_cannot_be_chosen_is_refused(arguments, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    assert "Put known bugs into a copy of the program" in capsys.readouterr().out


def test_all_bugs_or_those_that_are_named_are_chosen() -> None:
    assert parse([]).names == []
    assert parse(["finalizer", "tombstone-forgotten"]).names == ["finalizer", "tombstone-forgotten"]


def test_the_page_on_testing_lists_every_story() -> None:
    page = PAGE.read_text()
    assert [name for name in ALL if f"| `{name}` |" not in page] == []
