from fipop.api.conditions import Verdict
from fipop.api.rendering import INT64_MAX
from fipop.kube.resources import MANAGEMENT_CLUSTERS
from fipop.operator.addresses.ranges import build_conditions, describe, describe_unknown_harvester
from fipop.state.cache import ClusterCache
from tests.harness.objects import build_range, build_reservation, cache_of


def conditions(
    cache: ClusterCache, name: str = "pool"
) -> tuple[tuple[Verdict, str, str], tuple[Verdict, str, str]]:
    """Ready and Conflict of a range: verdict, reason and message."""
    found = cache.ranges.get("", name)
    assert found is not None
    ready, conflict = build_conditions(found, cache.allocations)
    return (ready.verdict, ready.reason, ready.message), (conflict.verdict, conflict.reason, conflict.message)


def test_a_good_range_says_how_many_addresses_it_has() -> None:
    ready, conflict = conditions(cache_of(ranges=[build_range("pool", "10.0.0.192/26")]))
    assert ready[:2] == (Verdict.TRUE, "Ready")
    assert "62" in ready[2]
    assert conflict == (Verdict.FALSE, "NoOverlap", "")


def test_what_was_understood_otherwise_than_it_was_written_is_said() -> None:
    cache = cache_of(ranges=[build_range("pool", "10.0.0.200/24, fd00::7/64")])
    (_, _, message), _ = conditions(cache)
    for written, meant in (("10.0.0.200/24", "10.0.0.0/24"), ("fd00::7/64", "fd00::/64")):
        assert written in message
        assert meant in message
    assert str(INT64_MAX) in message


def test_of_many_masked_parts_a_few_are_named() -> None:
    cache = cache_of(ranges=[build_range("pool", ",".join(f"10.{part}.0.1/24" for part in range(50)))])
    found, capacity = cache.ranges.get("", "pool"), cache.allocations.ranges.usage("pool")
    assert found is not None
    assert capacity is not None
    message = describe(found, cache.allocations, capacity)
    assert sum(f"10.{part}.0.1/24" in message for part in range(50)) == 5


def test_a_range_that_cannot_be_read_quotes_what_is_wrong() -> None:
    ready, _ = conditions(cache_of(ranges=[build_range("pool", "10.0.0.0/24, 10.0.0.9-10.0.0.1")]))
    assert ready[:2] == (Verdict.FALSE, "Invalid")
    assert '"10.0.0.9-10.0.0.1"' in ready[2]


def test_a_range_that_is_shut_by_its_former_space_says_so() -> None:
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.0/24", addressSpace="lab")],
        reservations=[build_reservation("10.0.0.1")],
    )
    ready, _ = conditions(cache)
    assert ready[:2] == (Verdict.FALSE, "AddressSpaceChanged")
    assert "with another name" in ready[2]


def test_a_draining_range_is_not_ready() -> None:
    ready, _ = conditions(cache_of(ranges=[build_range("pool", "10.0.0.0/24", draining=True)]))
    assert ready[:2] == (Verdict.FALSE, "Draining")


def test_the_younger_names_all_older_ones_that_take_addresses_from_it() -> None:
    cache = cache_of(
        ranges=[
            build_range("old", "10.0.0.0/28"),
            build_range("older", "10.0.0.16/28", created="2025-01-01T00:00:00Z"),
            build_range("pool", "10.0.0.0/24", created="2026-02-01T00:00:00Z"),
            build_range("away", "10.0.0.0/24", created="2024-01-01T00:00:00Z", addressSpace="away"),
        ]
    )
    _, conflict = conditions(cache)
    assert conflict[:2] == (Verdict.TRUE, "Overlap")
    assert "older, old" in conflict[2]
    assert conditions(cache, "older")[1][0] is Verdict.FALSE


def test_a_range_whose_harvester_cluster_is_not_in_rancher_says_so_and_names_those_that_are() -> None:
    """Whose name is misspelt serves no new guest, and looked as if all were well."""
    cache = cache_of(
        ranges=[build_range("pool", "10.0.0.0/24", annotations={"harvesterClusterName": "harvster-1"})]
    )
    assert describe_unknown_harvester(cache, cache.ranges.all()[0]).endswith("with that name.")
    for number in (2, 1):
        add_harvester(cache, f"harvester-{number}")
    unknown = describe_unknown_harvester(cache, cache.ranges.all()[0])
    assert '"harvster-1"' in unknown
    assert '"harvester-1", "harvester-2"' in unknown
    ready, _ = build_conditions(cache.ranges.all()[0], cache.allocations, unknown)
    assert (ready.verdict, ready.reason) == (Verdict.TRUE, "HarvesterNotFound")
    assert "254 addresses" in ready.message
    assert ready.message.endswith(unknown)
    add_harvester(cache, "harvster-1")
    assert describe_unknown_harvester(cache, cache.ranges.all()[0]) == ""


def add_harvester(cache: ClusterCache, name: str) -> None:
    metadata = {"name": f"c-{name}", "uid": name, "resourceVersion": "1"}
    cache.observe(
        MANAGEMENT_CLUSTERS,
        {"metadata": metadata, "spec": {"displayName": name}, "status": {"provider": "harvester"}},
    )
