"""How far a guest's word about addresses reaches: to the ranges that concern it, and no further."""

from functools import partial

from fipop.operator.guests.reported import MAX_CLAIMS, ClaimScope
from fipop.state.guests import GuestDirectory
from tests.harness.answering_client import AnsweringClient
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    reservation,
)

POOL, OTHER = build_range("pool", "10.0.0.0/24"), build_range("other", "10.0.1.0/24")
BOUND = build_range("bound", "10.0.2.0/24", clusterSelector={"matchLabels": {"a": "b"}})


def build(**objects: list[Json]) -> ClaimScope:
    """A guest of which Rancher does not tell anything yet."""
    cache = cache_of(ranges=[POOL, OTHER, BOUND], **objects)
    return ClaimScope(GuestDirectory(cache=cache, client=AnsweringClient()))  # type: ignore[arg-type]


def names(scope: ClaimScope) -> set[str]:
    return {each.name for each in scope.ranges_for("c-m-1")}


def test_of_a_guest_that_is_not_known_only_ranges_for_anybody_are_concerned() -> None:
    assert names(build()) == {"pool", "other"}


def test_a_range_that_a_floating_ip_or_a_reservation_of_the_guest_names_concerns_it() -> None:
    asked = build_floating_ip("web", annotations={"fiprange": "x"}, status={"range": "bound"})
    assert "bound" in names(build(floating_ips=[asked]))
    assert "bound" in names(build(reservations=[build_reservation("10.0.2.1", range_name="bound")]))
    assert "bound" not in names(
        build(reservations=[build_reservation("10.0.2.1", namespace="c-m-2", range_name="bound")])
    )


def test_a_word_reaches_a_reservation_of_its_ranges_and_spaces_alone() -> None:
    scope = build()
    reaches = partial(scope.reaches, scope.ranges_for("c-m-1"))
    assert reaches(reservation("10.0.0.7", namespace="c-m-2"))
    assert not reaches(reservation("10.0.2.7", namespace="c-m-2", range_name="bound"))
    assert not reaches(reservation("10.0.0.7", namespace="c-m-2", space="lab"))
    assert reaches(reservation("10.9.9.9", namespace="c-m-2", range_name="gone"))


def test_what_was_found_in_a_guest_is_counted_until_somebody_owned_it() -> None:
    until = "2026-03-01T12:00:00Z"
    found = build_reservation("10.0.0.1", quarantined_until=until)
    released = build_reservation(
        "10.0.0.2",
        quarantined_until=until,
        history=[{"namespace": "c-m-1", "name": "web", "releasedAt": until}],
    )
    scope = build(reservations=[found, released, build_reservation("10.0.0.3")])
    assert scope.unowned_left("c-m-1") == MAX_CLAIMS - 1
