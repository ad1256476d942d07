"""Who had an address when."""

from fipop.ipam.addresses import parse_address
from fipop.report.history import history_of_address
from tests.harness.objects import build_reservation
from tests.unit.report.holders import PAST
from tests.unit.report.pictures import picture


def test_history_is_the_latest_first_and_counts_the_last_owner_once() -> None:
    released = build_reservation(
        "10.0.0.5",
        "old",
        namespace="c-m-8",
        cluster="eight",
        quarantined_until="2026-03-01T13:00:00Z",
        history=PAST,
    )
    names = [
        each.cluster
        for each in history_of_address(picture(reservations=[released]), parse_address("10.0.0.5"))
    ]
    assert names == ["eight", "seven"]
    held = build_reservation("10.0.0.5", cluster="now", history=PAST)
    tenures = history_of_address(picture(reservations=[held]), parse_address("10.0.0.5"))
    assert [each.cluster for each in tenures] == ["now", "eight", "seven"]
    assert tenures[0].until is None
