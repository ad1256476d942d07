"""What a pass reports."""

import pytest

from fipop.errors import ApiError, FipopError, UnavailableError
from fipop.guest.errors import ChartError, HelmError, HelmFailure
from tests.unit.operator.guests.test_schedules import report


@pytest.mark.parametrize(
    ("error", "mends"),
    [
        (None, False),
        (UnavailableError("list Secret", status=500), True),
        (ApiError("patch ConfigMap", status=422), False),
        (ChartError(source="s", version="", reason="no"), False),
        (HelmError(action="upgrade", subject="release", failure=HelmFailure.DENIED), False),
    ],
)
def test_only_what_mends_itself_brings_a_guest_back_soon(error: FipopError | None, mends: bool) -> None:
    assert report(error).mends_soon is mends
