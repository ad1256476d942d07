"""Errors of one guest: nothing that the guest wrote stands in them, and people are told what helps."""

import pytest

from fipop.guests.access import VisitTimeoutError
from fipop.helm.errors import ChartError, HelmError, HelmFailure


@pytest.mark.parametrize("failure", list(HelmFailure))
def test_each_failure_of_helm_completes_a_sentence(failure: HelmFailure) -> None:
    text = str(HelmError(action="upgrade", subject="release a/b", failure=failure))
    assert failure.value in text
    assert "release a/b" in text
    assert text.isprintable()


def test_a_visit_that_took_too_long_says_how_long() -> None:
    assert "30 s" in str(VisitTimeoutError(seconds=29.6))


def test_a_chart_that_cannot_be_had_has_a_condition_of_its_own() -> None:
    assert ChartError(source="s", version="", reason="no").condition
    closed = ChartError(source="s", version="", reason="no", condition="ChartUnauthorized")
    assert closed.condition == "ChartUnauthorized"
