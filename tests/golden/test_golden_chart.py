"""The chart renders as it is recorded. It needs helm, which is built first where it is missing."""

import pytest

from tests.golden.recording import Subject, difference, explain, subjects


@pytest.mark.parametrize(
    "subject", [each for each in subjects() if each.needs_helm], ids=lambda each: each.name
)
def test_the_chart_renders_as_recorded(subject: Subject) -> None:
    shown = difference(subject)
    assert not shown, explain(subject, shown)
