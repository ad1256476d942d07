from dataclasses import replace
from typing import Any

import pytest

from fipop.ipam.addresses import parse_address
from fipop.operator.addresses.range_selection import choose_for_guest, find_range
from fipop.operator.addresses.request import Blocker, Request
from fipop.rancher.matching import Guest
from fipop.state.cache import ClusterCache
from tests.harness.guests import HARVESTER_POOL, build_guest
from tests.harness.objects import (
    build_range,
    build_reservation,
    cache_of,
    floating_ip,
    held_by,
    reservation,
)

GUEST = build_guest(pools=(HARVESTER_POOL,), harvester_cluster_name="harvester", networks=("default/vlan10",))


def serving(name: str, iprange: str, network: str | None = None, **fields: Any) -> dict[str, Any]:
    annotations = {"harvesterClusterName": "harvester"} | (
        {"harvesterNetworkName": network} if network else {}
    )
    return build_range(name, iprange, annotations=annotations, **fields)


def found(
    cache: ClusterCache,
    *,
    guest: Guest | None = GUEST,
    held: tuple[str, ...] = (),
    static: str = "",
    had_from: tuple[str, ...] = (),
    **fields: Any,
) -> str:
    """The name of the range, or the reason why there is none."""
    result = find_range(
        cache,
        floating_ip(**fields),
        tuple(reservation(each, range_name="held-from") for each in held),
        guest,
        Request(static={each.family: each for each in map(parse_address, static.split())}),
        had_from,
    )
    return result.reason if isinstance(result, Blocker) else result.name


RANGES = [
    serving("held-from", "10.9.0.0/24", "vlan99"),
    serving("first", "10.1.0.0/24"),
    serving("second", "10.2.0.0/24"),
]


def test_the_range_that_is_named_serves_and_no_other_where_it_is_missing() -> None:
    cache = cache_of(ranges=RANGES)
    assert found(cache, annotations={"fiprange": "second"}, held=("10.9.0.1",)) == "second"
    assert found(cache, annotations={"fiprange": "third"}) == "RangeNotFound"


def test_without_a_name_it_is_that_of_the_address_that_is_held_then_that_of_the_status() -> None:
    cache = cache_of(ranges=RANGES)
    assert found(cache, held=("10.9.0.1",), status=held_by([], range_name="second")) == "held-from"
    assert found(cache, status=held_by([], range_name="second")) == "second"
    assert found(cache, guest=None, status=held_by([], range_name="second")) == "second"


def test_else_one_is_chosen_as_for_a_new_guest_for_a_static_address_one_that_gives_it_out() -> None:
    cache = cache_of(ranges=RANGES)
    assert found(cache) == "first"
    assert found(cache, static="10.2.0.7") == "second"
    assert found(cache, static="10.3.0.7") == "first", "which then says why it does not"


def test_of_those_that_serve_it_is_the_one_from_which_an_address_comes_back_also_if_that_is_full() -> None:
    quarantined = build_reservation(
        "10.2.0.1", "other", range_name="second", quarantined_until="2026-03-02T00:00:00Z"
    )
    cache = cache_of(
        ranges=[serving("first", "10.1.0.1"), serving("second", "10.2.0.1")], reservations=[quarantined]
    )
    assert found(cache) == "first"
    assert found(cache, had_from=("second",)) == "second"


def test_a_full_range_is_passed_over_and_is_all_there_is_where_no_other_serves() -> None:
    full = [build_reservation("10.1.0.1", "other")]
    both = cache_of(ranges=[serving("first", "10.1.0.1"), serving("second", "10.2.0.1")], reservations=full)
    assert found(both) == "second"
    assert found(cache_of(ranges=[serving("first", "10.1.0.1")], reservations=full)) == "first"


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ([], "NoMatchingRange"),
        ([build_range("unnamed", "10.1.0.0/24")], "NoMatchingRange"),
        ([serving("other", "10.1.0.0/24", "vlan20")], "NetworkMismatch"),
        ([serving("drained", "10.1.0.0/24", draining=True)], "RangeDraining"),
        (
            [serving("other", "10.1.0.0/24", "vlan20"), serving("drained", "10.2.0.0/24", draining=True)],
            "RangeDraining",
        ),
    ],
)
def test_where_no_range_serves_the_reason_is_told(ranges: list[dict[str, Any]], reason: str) -> None:
    assert found(cache_of(ranges=ranges)) == reason


def test_a_guest_that_is_not_known_yet_waits() -> None:
    assert found(cache_of(ranges=RANGES), guest=None) == "GuestNotFound"


def test_ranges_that_are_being_deleted_or_cannot_be_read_serve_no_new_guest() -> None:
    leaving = serving("leaving", "10.1.0.0/24")
    leaving["metadata"]["deletionTimestamp"] = "2026-02-01T00:00:00Z"
    cache = cache_of(ranges=[leaving, serving("broken", "10.1.0.9-10.1.0.1"), serving("good", "10.2.0.0/24")])
    assert [each.name for each, why in choose_for_guest(cache, GUEST) if why is None] == ["good"]
    elsewhere = replace(GUEST, harvester_cluster_name="another")
    assert choose_for_guest(cache, elsewhere) == []
