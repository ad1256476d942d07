"""What was read, as everything else sees it: names, spaces, who leads by whose clock."""

from datetime import timedelta

import pytest

from fipop.report.snapshot import Kind, LeaderLease, Unread, read_address
from tests.harness.objects import NOW, build_floating_ip, build_range, build_reservation, held_by, v4
from tests.unit.report.snapshots import build_cluster, snapshot

A = "10.0.0.5"


def test_spaces_are_those_of_ranges_reservations_and_statuses() -> None:
    found = snapshot(
        ranges=[build_range("pool", "10.0.0.0/24")],
        reservations=[build_reservation("10.9.0.1", space="gone")],
        floating_ips=[build_floating_ip("web", status=held_by([A], space="lab"))],
    )
    assert found.spaces() == ["default", "gone", "lab"]
    assert snapshot().spaces() == ["default"]


def test_a_cluster_is_called_as_rancher_calls_it_or_as_the_status_remembers() -> None:
    remembered = {**held_by([A]), "guest": {"cluster": "former", "id": "c-m-1", "reachable": False}}
    named = snapshot(floating_ips=[build_floating_ip("web", status=remembered)])
    assert named.cluster_of("c-m-1") == "former"
    assert named.cluster_of("c-m-2", "fallback") == "fallback"
    assert snapshot(clusters=[build_cluster("demo", "c-m-1")]).cluster_of("c-m-1") == "demo"


def test_a_kind_that_could_not_be_read_is_not_read() -> None:
    found = snapshot(unread=(Unread(what=Kind.RESERVATIONS, problem="missing right"),))
    assert not found.is_counted
    assert found.is_read(Kind.RANGES)


def test_what_is_no_address_is_none() -> None:
    assert read_address(A) == v4(A)
    assert read_address("demo") is None


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
    assert LeaderLease(holder=holder, renewed=renewed, duration_seconds=15.0).holds(NOW) is holds
