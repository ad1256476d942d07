"""How full ranges are."""

from datetime import timedelta

from fipop.api.codec import format_time
from fipop.report.ranges import RangeReport, report_ranges
from tests.harness.objects import NOW, Json, build_range, build_reservation
from tests.unit.report.snapshots import snapshot


def days_ago(days: float) -> str:
    return format_time(NOW - timedelta(days=days))


def only(**objects: list[Json]) -> RangeReport:
    (found,) = report_ranges(snapshot(**objects))
    return found


def test_a_range_is_counted_from_the_ledger_not_from_its_status() -> None:
    pool = build_range("pool", "10.0.0.1-10.0.0.10", annotations={"harvesterNetworkName": "vlan-1"})
    held = [build_reservation("10.0.0.1"), build_reservation("10.0.0.2", "api")]
    waiting = build_reservation("10.0.0.3", "gone", quarantined_until=days_ago(-1))
    outside = build_reservation("10.9.0.1", "far")
    found = only(ranges=[pool], reservations=[*held, waiting, outside])
    assert (found.whole.total, found.whole.used, found.whole.quarantined, found.whole.free) == (10, 2, 1, 7)
    assert found.whole.out_of_range == 1
    assert found.percent == 30.0
    assert found.harvester_network == "vlan-1"
    assert found.ready


def test_a_range_that_cannot_be_read_is_full_and_says_why() -> None:
    found = only(ranges=[build_range("pool", "10.0.0.300")])
    assert not found.ready
    assert found.reason == "Invalid"
    assert "10.0.0.300" in found.message
    assert found.percent == 100.0


def test_a_conflict_names_the_older_range() -> None:
    older = build_range("older", "10.0.0.0/24")
    younger = build_range("younger", "10.0.0.10-10.0.0.20", created="2026-02-01T00:00:00Z")
    found = {each.name: each for each in report_ranges(snapshot(ranges=[older, younger]))}
    assert "older" in found["younger"].conflict
    assert not found["older"].conflict
    assert found["younger"].whole.total == 0


def test_the_state_of_a_range_is_that_of_its_fullest_family() -> None:
    full = [build_reservation(f"10.0.0.{number}", f"f{number}") for number in range(1, 11)]
    found = only(ranges=[build_range("pool", "10.0.0.1-10.0.0.10,fd00::/64")], reservations=full)
    assert (found.state, found.percent, found.family) == ("Full", 100.0, "IPv4")
    six = only(ranges=[build_range("pool", "fd00::/64")])
    assert (six.state, six.percent, six.family) == ("Ready", 0.0, "IPv6")
