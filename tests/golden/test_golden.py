"""What fipop publicly does is what is recorded; a difference is recorded, too, and named in its commit."""

import pytest

from tests.golden.recording import RECORDED, Subject, difference, explain, subjects

SUBJECTS = subjects()


@pytest.mark.parametrize(
    "subject", [each for each in SUBJECTS if not each.needs_helm], ids=lambda each: each.name
)
def test_what_fipop_does_is_as_recorded(subject: Subject) -> None:
    shown = difference(subject)
    assert not shown, explain(subject, shown)


def test_the_names_of_the_subjects_are_unique() -> None:
    names = [each.name for each in SUBJECTS]
    assert sorted(set(names)) == names


def test_no_recorded_file_is_left_over() -> None:
    """A file that no subject makes would never be compared; an update of everything removes it."""
    names = {each.name for each in SUBJECTS}
    folders = {name.partition("/")[0] for name in names}
    files = (file.relative_to(RECORDED) for file in RECORDED.rglob("*") if file.is_file())
    found = {file.with_suffix("").as_posix() for file in files}
    assert not {name for name in found - names if name.partition("/")[0] not in folders}
