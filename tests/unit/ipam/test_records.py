"""The values that go into a ledger and come out of it."""

from datetime import UTC, datetime

from fipop.ipam.pool import parse_pool
from fipop.ipam.records import Range, Record, Usage

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_record_is_held_until_it_waits() -> None:
    assert Record("web", "r").is_held
    assert not Record("web", "r", NEW_YEAR).is_held


def test_of_two_ranges_the_older_is_by_time_then_by_name() -> None:
    pool = parse_pool("10.0.0.0/24")
    ranges = [Range(name=name, pool=pool, created=NEW_YEAR) for name in ("b", "a")]
    ranges.append(Range(name="z", pool=pool))
    assert [each.name for each in sorted(ranges, key=lambda each: each.age)] == ["z", "a", "b"]


def test_what_is_out_of_range_is_not_in_the_total() -> None:
    assert Usage(used=3, free=4, quarantined=2, out_of_range=9).total == 9
