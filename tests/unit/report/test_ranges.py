"""How full ranges are, and when they will be."""

from datetime import timedelta

import pytest

from fipop.api.conditions import format_time
from fipop.report.ranges import RangeReport, report_ranges
from tests.harness.objects import NOW, Json, build_range, build_reservation
from tests.unit.report.snapshots import snapshot


def days_ago(days: float) -> str:
    return format_time(NOW - timedelta(days=days))


def remembering(iprange: str, created: str = "2026-01-01T00:00:00Z") -> Json:
    """A range whose releases are remembered for a month."""
    return build_range("pool", iprange, created=created, quarantineSeconds=30 * 86400)


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
    assert found.full_in_days is None


def test_a_conflict_names_the_older_range() -> None:
    older = build_range("older", "10.0.0.0/24")
    younger = build_range("younger", "10.0.0.10-10.0.0.20", created="2026-02-01T00:00:00Z")
    found = {each.name: each for each in report_ranges(snapshot(ranges=[older, younger]))}
    assert "older" in found["younger"].conflict
    assert not found["older"].conflict
    assert found["younger"].whole.total == 0


@pytest.mark.parametrize(
    ("reservations", "grown"),
    [
        ([build_reservation("10.0.0.1", since=days_ago(1))], 1),
        ([build_reservation("10.0.0.1", since=days_ago(31))], 0),
        ([build_reservation("10.0.0.1", since=days_ago(31), quarantined_until=days_ago(-1), history=[])], 0),
        (
            [
                build_reservation(
                    "10.0.0.1",
                    since=days_ago(40),
                    quarantined_until=days_ago(-1),
                    history=[{"namespace": "c-m-1", "name": "web", "releasedAt": days_ago(2)}],
                )
            ],
            -1,
        ),
        (
            [
                build_reservation(
                    "10.0.0.1",
                    since=days_ago(1),
                    history=[{"namespace": "c-m-2", "name": "was", "releasedAt": days_ago(2)}],
                )
            ],
            0,
        ),
    ],
    ids=["new", "old", "released long ago", "released", "handed on"],
)
def test_growth_is_held_now_less_held_then(reservations: list[Json], grown: int) -> None:
    found = only(ranges=[remembering("10.0.0.1-10.0.0.60")], reservations=reservations)
    assert found.growth_per_day == pytest.approx(grown / 30, abs=0.01)


def test_a_range_that_fills_tells_when_it_is_full() -> None:
    new = [build_reservation(f"10.0.0.{number}", f"f{number}", since=days_ago(3)) for number in range(1, 31)]
    found = only(ranges=[remembering("10.0.0.1-10.0.0.40")], reservations=new)
    assert found.growth_per_day == 1.0
    assert found.full_in_days == 10.0


def test_without_remembered_releases_there_is_no_forecast() -> None:
    """Of clusters that are made anew every three weeks only the present ones are remembered."""
    new = [build_reservation(f"10.0.0.{number}", f"f{number}", since=days_ago(3)) for number in range(1, 31)]
    found = only(ranges=[build_range("pool", "10.0.0.1-10.0.0.40")], reservations=new)
    assert (found.growth_per_day, found.full_in_days) == (None, None)


def test_a_range_of_some_minutes_has_no_forecast() -> None:
    young = remembering("10.0.0.1-10.0.0.40", created=days_ago(0.002))
    found = only(ranges=[young], reservations=[build_reservation("10.0.0.1", since=days_ago(0.001))])
    assert (found.growth_per_day, found.full_in_days) == (None, None)


def test_the_family_that_is_full_first_tells_when_a_range_is_full() -> None:
    new = [build_reservation(f"10.0.0.{number}", f"f{number}", since=days_ago(3)) for number in range(1, 31)]
    found = only(ranges=[remembering("10.0.0.1-10.0.0.40,fd00::/64")], reservations=new)
    assert (found.full_in_days, found.family, found.percent) == (10.0, "IPv4", 75.0)


def test_the_state_of_a_range_is_that_of_its_fullest_family() -> None:
    full = [build_reservation(f"10.0.0.{number}", f"f{number}") for number in range(1, 11)]
    found = only(ranges=[build_range("pool", "10.0.0.1-10.0.0.10,fd00::/64")], reservations=full)
    assert (found.state, found.percent, found.family) == ("Full", 100.0, "IPv4")
    six = only(ranges=[build_range("pool", "fd00::/64")])
    assert (six.state, six.percent, six.family) == ("Ready", 0.0, "IPv6")
