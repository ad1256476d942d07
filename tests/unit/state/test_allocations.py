"""The allocation index after any history."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fipop.errors import RangeFullError
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IP_RESERVATIONS, FLOATING_IPS
from fipop.state.allocations import Allocations
from fipop.state.cache import ClusterCache
from tests.harness.objects import (
    Json,
    build_floating_ip,
    build_range,
    build_reservation,
    cache_of,
    held_by,
    newer,
)
from tests.unit.state.entries import counts, next_free


def test_choosing_is_not_taking() -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.4")])
    assert [next_free(cache.allocations) for _ in range(3)] == ["10.0.0.1"] * 3
    assert counts(cache.allocations) == (0, 4, 0, 0)


def test_the_addresses_in_the_spec_of_an_object_that_was_never_looked_at_are_spoken_for() -> None:
    inherited = build_floating_ip("old", annotations={"fiprange": "pool"}, ipaddress="10.0.0.1")
    cache = cache_of(ranges=[build_range("pool", "10.0.0.1-10.0.0.2")], floating_ips=[inherited])
    assert next_free(cache.allocations) == "10.0.0.2"
    refused = {"observedGeneration": 1, "conditions": []}
    cache.observe(FLOATING_IPS, newer(inherited, status=refused))
    assert next_free(cache.allocations) == "10.0.0.1", "a wish that was looked at and refused holds nothing"


hosts = st.integers(1, 6)


def _events() -> st.SearchStrategy[tuple[Any, Json]]:
    ranges = st.builds(
        lambda name, first, last, space, draining: (
            FLOATING_IP_RANGES,
            build_range(
                name,
                f"10.0.0.{min(first, last)}-10.0.0.{max(first, last)}",
                addressSpace=space,
                draining=draining,
            ),
        ),
        st.sampled_from(["pool", "other"]),
        hosts,
        hosts,
        st.sampled_from(["default", "away"]),
        st.booleans(),
    )
    reservations = st.builds(
        lambda host, owner, until: (
            FLOATING_IP_RESERVATIONS,
            build_reservation(f"10.0.0.{host}", owner, quarantined_until=until),
        ),
        hosts,
        st.sampled_from(["me", "web"]),
        st.sampled_from([None, "2026-03-01T12:00:00Z"]),
    )
    floating_ips = st.builds(
        lambda name, host, seen: (
            FLOATING_IPS,
            build_floating_ip(
                name, ipaddress=f"10.0.0.{host}", status=held_by([f"10.0.0.{host}"]) if seen else {}
            ),
        ),
        st.sampled_from(["me", "web"]),
        hosts,
        st.booleans(),
    )
    return st.one_of(ranges, reservations, floating_ips)


@settings(max_examples=150)
@given(events=st.lists(_events(), max_size=14), gone=st.sets(st.integers(0, 13)))
def test_the_books_after_any_history_are_those_of_a_fresh_start_with_what_is_left(
    events: list[tuple[Any, Json]], gone: set[int]
) -> None:
    cache = ClusterCache()
    living: dict[tuple[str, str], tuple[Any, Json]] = {}
    for index, (resource, template) in enumerate(events):
        obj = newer(template)
        cache.observe(resource, obj)
        key = (resource.kind, obj["metadata"]["name"])
        living[key] = (resource, obj)
        if index in gone:
            found = cache.store_of(resource).get(
                obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
            )
            cache.forget(resource, found)
            del living[key]
    fresh = ClusterCache()
    for resource, obj in reversed(list(living.values())):
        fresh.observe(resource, obj)
    for name in ("pool", "other"):
        assert cache.allocations.ranges.usage(name) == fresh.allocations.ranges.usage(name)
        assert cache.allocations.ranges.families(name) == fresh.allocations.ranges.families(name)
        if cache.allocations.ranges.usage(name) is None:
            continue
        assert counts(cache.allocations, name) == counts(fresh.allocations, name)
        assert cache.allocations.ranges.conflicts(name) == fresh.allocations.ranges.conflicts(name)
        assert _choice(cache.allocations, name) == _choice(fresh.allocations, name)


def _choice(allocations: Allocations, range_name: str) -> str:
    try:
        return next_free(allocations, range_name)
    except RangeFullError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must say the same
        return repr(error)
