"""What is written is read again as it was, and nothing old stays behind."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.models import FloatingIPStatus, GuestStatus, Owner, ReleaseStatus, Reported
from fipop.api.parsing import parse_floating_ip, parse_range, parse_reservation
from fipop.api.rendering import (
    INT64_MAX,
    render_capacity,
    render_floating_ip_status,
    render_range_status,
    render_reservation,
)
from fipop.ipam.ranges import RangeUsage, Usage
from tests.harness.objects import build_floating_ip, build_range, build_reservation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
READY = Condition(type=ConditionType.READY, verdict=Verdict.TRUE, reason="Ready", message="m", since=NOW)


@given(st.booleans(), st.booleans(), st.integers(0, 10), st.sampled_from(["static", "dynamic"]))
def test_a_reservation_is_read_as_it_was_written(
    waits: bool, imported: bool, past: int, requested: str
) -> None:
    until = "2026-03-01T12:00:00Z" if waits else None
    former = {"namespace": "c-m-1", "cluster": "c", "releasedAt": "2026-02-01T00:00:00Z"}
    history = [{**former, "name": f"n{number}"} for number in range(past)]
    body = build_reservation("10.0.0.9", requested=requested, quarantined_until=until, history=history)
    body["spec"]["owner"]["imported"] = imported
    found = parse_reservation(body)
    again = parse_reservation({**render_reservation(found), "metadata": body["metadata"]})
    assert again == found


def test_what_is_not_known_of_an_owner_is_left_out() -> None:
    found = parse_reservation(build_reservation("10.0.0.9"))
    nobody = type(found)(
        **{name: getattr(found, name) for name in ("meta", "address", "space", "range")},
        owner=Owner(namespace="c-m-1", name="", uid=""),
    )
    assert render_reservation(nobody)["spec"]["owner"] == {"namespace": "c-m-1"}


def test_a_new_object_has_no_version_and_one_that_was_read_has_its_own() -> None:
    found = parse_reservation(build_reservation("10.0.0.9"))
    metadata = render_reservation(found)["metadata"]
    assert metadata["resourceVersion"] == str(found.resource_version)
    assert metadata["uid"] == found.uid


def test_a_status_is_read_as_it_was_written_and_what_is_absent_is_null() -> None:
    release = ReleaseStatus(
        role="kube-vip", name="v", namespace="n", revision=3, digest="d", version="1", status="deployed"
    )
    full = FloatingIPStatus(
        addresses=("10.0.0.1",),
        range="pool",
        address_space="default",
        guest=GuestStatus(cluster="demo", id="c-m-1", reachable=True, releases=(release,)),
        conditions=(READY,),
        observed_generation=4,
    )
    for status in (full, FloatingIPStatus()):
        rendered = render_floating_ip_status(status)
        assert parse_floating_ip(build_floating_ip("web", status=rendered)).status == status
    absent = [name for name, value in rendered.items() if value is None]
    assert absent == ["addresses", "range", "addressSpace", "guest"]


def test_counts_fit_into_a_status_however_wide_the_range() -> None:
    wide = Usage(used=3, free=(1 << 128) - 3)
    found = render_capacity(RangeUsage(whole=wide, ipv4=Usage(), ipv6=wide))
    assert (found["total"], found["used"], found["ipv6"]["free"]) == (INT64_MAX, 3, INT64_MAX)
    assert set(found["ipv4"].values()) == {0}


def test_the_status_of_a_range_is_read_as_it_was_written() -> None:
    counts = Usage(used=3, free=4, quarantined=2, out_of_range=1)
    capacity = render_capacity(RangeUsage(whole=counts, ipv4=counts, ipv6=Usage()))
    later = Condition(
        type=ConditionType.CONFLICT, verdict=Verdict.FALSE, reason="r", since=NOW + timedelta(days=1)
    )
    reported = (Reported("10.0.0.1", "c-m-9"), Reported("fd00::1", "c-m-8"))
    status = render_range_status(capacity, reported, 3, (READY, later), 7)
    found = parse_range({**build_range("pool", "10.0.0.0/28"), "status": status})
    assert (found.status_capacity, found.conditions) == (capacity, (READY, later))
    assert found.observed_generation == 7
    assert (found.reported, found.reported_count) == (reported, 3)
    empty = render_range_status(None, (), 0, (), 7)
    assert (empty["capacity"], empty["reported"], empty["reportedCount"]) == (None, None, None)
