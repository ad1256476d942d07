"""Which addresses a range gives out next, and why it gives out no more."""

import pytest

from fipop.errors import RangeUnknownError
from fipop.ipam.addresses import Family
from fipop.report.free import report_free
from tests.harness.objects import build_range, build_reservation
from tests.unit.report.pictures import picture


def test_free_addresses_come_in_the_order_of_the_range() -> None:
    pool = build_range("pool", "10.0.0.0/29", searchOrder="desc", exclude=["10.0.0.4"])
    found = report_free(picture(ranges=[pool], reservations=[build_reservation("10.0.0.6")]), "pool", None, 3)
    assert found.addresses == ("10.0.0.5", "10.0.0.3", "10.0.0.2")
    assert (found.free, found.used) == (4, 1)
    assert found.withheld == {"excluded": 1, "ends of CIDRs, .0 and .255": 2}
    assert not found.problem


def test_a_full_or_draining_range_says_why_it_gives_nothing() -> None:
    full = picture(ranges=[build_range("pool", "10.0.0.1")], reservations=[build_reservation("10.0.0.1")])
    found = report_free(full, "pool", None, 1)
    assert found.problem
    assert (found.free, found.addresses) == (0, ())
    draining = picture(ranges=[build_range("pool", "10.0.0.1", draining=True)])
    found = report_free(draining, "pool", None, 1)
    assert found.problem
    assert (found.free, found.addresses) == (0, ())


def test_addresses_of_an_older_range_are_counted_as_its_own() -> None:
    older = build_range("older", "10.0.0.1-10.0.0.5")
    younger = build_range("younger", "10.0.0.1-10.0.0.8", created="2026-02-01T00:00:00Z")
    found = report_free(picture(ranges=[older, younger]), "younger", None, 10)
    assert found.addresses == ("10.0.0.6", "10.0.0.7", "10.0.0.8")
    assert found.withheld == {"of an older range": 5}


def test_a_family_that_the_range_has_not_and_a_range_that_is_not_there() -> None:
    found = picture(ranges=[build_range("pool", "2001:db8::1-2001:db8::9")])
    assert report_free(found, "pool", None, 1).addresses == ("2001:db8::1",)
    assert "IPv4" in report_free(found, "pool", Family.IPV4, 1).problem
    with pytest.raises(RangeUnknownError):
        report_free(found, "other", None, 1)
