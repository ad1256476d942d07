"""The seeded bugs are bugs of this source, and a few of them are caught in every test run."""

from pathlib import Path

import pytest

from tests.faults.bugs import BUGS
from tests.faults.lane import Lane
from tests.faults.scenarios import ALL
from tests.faults.seeded import Hunt, copy_with, is_caught

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ALWAYS = ("no-quarantine", "release-before-claim", "youngest-first")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_fits_the_source_and_leaves_it_python(bug, tmp_path: Path) -> None:
    folder = copy_with(bug, tmp_path)
    for edit in bug.edits:
        compile((folder / "fipop" / edit.file).read_text(), edit.file, "exec")


def test_there_are_at_least_twenty_bugs_and_each_has_a_name_of_its_own() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in ALWAYS], ids=lambda bug: bug.name)
async def test_a_seeded_bug_is_caught(lane: Lane, bug, tmp_path: Path) -> None:
    result = await Hunt(tmp_path).catch(lane, bug)
    assert is_caught(bug, result), result.violations


def test_the_page_on_reliability_lists_every_bug_and_story() -> None:
    page = PAGE.read_text()
    assert [bug.name for bug in BUGS if f"| `{bug.name}` | {bug.what} |" not in page] == []
    assert [name for name in ALL if f"| `{name}` |" not in page] == []
