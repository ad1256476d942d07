"""What is read of an installation: who leads, by whose clock."""

from datetime import timedelta

import pytest

from fipop.report.facts import Leadership
from tests.harness.objects import NOW


@pytest.mark.parametrize(
    ("holder", "age_seconds", "holds"),
    [
        ("fipop-1", 5, True),
        ("fipop-1", 29, True),
        ("fipop-1", 31, False),
        ("", 5, False),
        ("fipop-1", None, False),
    ],
)
def test_a_lease_is_held_while_it_is_renewed_with_some_leave_for_clocks(
    holder: str, age_seconds: int | None, holds: bool
) -> None:
    renewed = None if age_seconds is None else NOW - timedelta(seconds=age_seconds)
    assert Leadership(holder=holder, renewed=renewed, duration_seconds=15.0).holds(NOW) is holds
