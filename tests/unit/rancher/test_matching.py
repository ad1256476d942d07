"""Which ranges serve a guest, as scenarios."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api.objects import FloatingIPRange, LabelSelector, Metadata, RangeSpec
from fipop.rancher.matching import (
    Guest,
    NoRange,
    describe_misfit,
    is_meant_for,
    is_on_network,
    match_ranges,
    would_be_chosen,
)
from tests.harness.guests import HARVESTER_POOL, START, build_guest

GUEST = build_guest(
    labels={"environment": "test", "site": "north"},
    pools=(HARVESTER_POOL,),
    harvester_cluster_name="harv1",
    networks=("default/vlan10",),
)
ELSEWHERE = build_guest(labels=GUEST.cluster.labels)


def pool(
    name: str,
    *,
    age: int = 0,
    full: bool = False,
    harvester_cluster: str = "",
    harvester_network: str = "",
    match_labels: dict[str, str] | None = None,
    **spec_fields: Any,
) -> FloatingIPRange:
    """Return a range; the older, the greater its age in days. A full one has no pool."""
    meta = Metadata(
        name=name,
        uid=name,
        creation_timestamp=START - timedelta(days=age),
        annotations={"harvesterClusterName": harvester_cluster, "harvesterNetworkName": harvester_network},
    )
    selector = LabelSelector(match_labels=match_labels)
    spec = RangeSpec(iprange="" if full else "10.0.0.0/24", cluster_selector=selector, **spec_fields)
    return FloatingIPRange(metadata=meta, spec=spec)


class Choice(NamedTuple):
    """The names of the ranges that serve a guest, best first, and of those that match and cannot serve."""

    candidates: tuple[str, ...]
    passed_over: list[tuple[str, NoRange]]


def match(guest: Guest, ranges: Sequence[FloatingIPRange]) -> list[tuple[FloatingIPRange, NoRange | None]]:
    full = {each.name for each in ranges if not each.spec.iprange}
    return match_ranges(guest, ranges, is_full=lambda name: name in full)


def choose(guest: Guest, ranges: Sequence[FloatingIPRange]) -> Choice:
    found = match(guest, ranges)
    return Choice(
        candidates=tuple(each.name for each, why in found if why is None),
        passed_over=[(each.name, why) for each, why in found if why is not None],
    )


def test_the_range_of_the_guests_harvester_and_network_serves_it() -> None:
    choice = choose(
        GUEST,
        [
            pool("other-harvester", harvester_cluster="harv2", harvester_network="vlan10"),
            pool("guest-vlan", harvester_cluster="harv1", harvester_network="vlan10"),
        ],
    )

    assert choice.candidates == ("guest-vlan",)
    assert choice.passed_over == []


def test_a_range_that_names_another_network_never_serves_but_the_floating_ip_waits_for_it() -> None:
    choice = choose(GUEST, [pool("vlan20", harvester_cluster="harv1", harvester_network="vlan20")])

    assert choice.candidates == ()
    assert choice.passed_over == [("vlan20", NoRange.OTHER_NETWORK)]


def test_where_no_range_matches_none_is_named() -> None:
    assert match(GUEST, [pool("other", harvester_cluster="harv2")]) == []
    assert match(GUEST, []) == []


def test_a_range_with_neither_harvester_nor_selector_serves_only_those_that_name_it() -> None:
    assert match(GUEST, [pool("free"), pool("only-network", harvester_network="vlan10")]) == []


def test_a_matching_network_wins_then_a_selector_then_age_then_the_name() -> None:
    ranges = [
        pool("d", age=5, harvester_cluster="harv1"),
        pool("c", age=9, harvester_cluster="harv1"),
        pool("b", age=1, harvester_cluster="harv1", match_labels={"site": "north"}),
        pool("a2", age=0, harvester_cluster="harv1", harvester_network="vlan10"),
        pool("a1", age=0, harvester_cluster="harv1", harvester_network="default/vlan10"),
        pool("a0", age=0, harvester_network="vlan10", match_labels={"site": "north"}),
    ]

    assert choose(GUEST, ranges).candidates == ("a0", "a1", "a2", "b", "c", "d")


def test_full_and_draining_ranges_are_passed_over_for_the_next_match() -> None:
    choice = choose(
        GUEST,
        [
            pool("first", age=3, harvester_cluster="harv1", full=True),
            pool("second", age=2, harvester_cluster="harv1", draining=True),
            pool("third", age=1, harvester_cluster="harv1"),
        ],
    )

    assert choice.candidates == ("third",)
    assert choice.passed_over == [("first", NoRange.FULL), ("second", NoRange.DRAINING)]


def test_a_selector_must_match_whole_and_beside_the_harvester() -> None:
    assert is_meant_for(pool("r", match_labels={"site": "north"}), GUEST)
    assert is_meant_for(pool("r", match_labels={}), GUEST)
    assert not is_meant_for(pool("r", match_labels={"site": "north", "environment": "live"}), GUEST)
    assert not is_meant_for(pool("r", match_labels={"missing": ""}), GUEST)
    assert not is_meant_for(pool("r", harvester_cluster="harv2", match_labels={"site": "north"}), GUEST)
    assert not is_meant_for(pool("r", harvester_cluster="harv1", match_labels={"site": "south"}), GUEST)


def test_a_guest_that_is_not_on_harvester_is_served_by_selector_alone() -> None:
    choice = choose(
        ELSEWHERE,
        [
            pool("harvester", harvester_cluster="harv1"),
            pool("nameless", harvester_cluster=""),
            pool("network", harvester_network="vlan10", match_labels={"site": "north"}),
            pool("selector", match_labels={"site": "north"}),
        ],
    )

    assert choice.candidates == ("selector",)
    assert [name for name, _ in choice.passed_over] == ["network"]


def test_blank_names_count_as_absent() -> None:
    choice = choose(GUEST, [pool("r", harvester_cluster="harv1", harvester_network="")])

    assert choice.candidates == ("r",)


@pytest.mark.parametrize(
    ("named", "networks", "same"),
    [
        ("vlan10", ("default/vlan10",), True),
        ("vlan10", ("vlan10",), True),
        ("vlan10", ("other/vlan10",), True),
        ("default/vlan10", ("default/vlan10",), True),
        ("default/vlan10", ("other/vlan10",), False),
        ("default/vlan10", ("vlan10",), False),
        ("vlan1", ("default/vlan10",), False),
        ("vlan10", ("default/vlan20", "default/vlan10"), True),
        ("vlan10", (), False),
    ],
)
def test_networks_are_compared_after_the_slash_or_as_a_whole(
    named: str, networks: tuple[str, ...], same: bool
) -> None:
    assert is_on_network(replace(GUEST, networks=networks), named) is same


RANGES = st.lists(
    st.builds(
        pool,
        name=st.text("ab", min_size=1, max_size=3),
        age=st.integers(0, 1),
        harvester_cluster=st.sampled_from([None, "", "harv1", "harv2"]),
        harvester_network=st.sampled_from([None, "", "vlan10", "default/vlan10", "vlan20"]),
        match_labels=st.sampled_from([None, {}, {"site": "north"}, {"site": "south"}]),
        draining=st.booleans(),
        full=st.booleans(),
    ),
    unique_by=lambda each: each.name,
    max_size=8,
)


@given(RANGES, st.randoms(use_true_random=False), st.sampled_from([GUEST, ELSEWHERE]))
def test_the_same_ranges_give_the_same_choice_in_whatever_order_they_come(ranges, random, guest) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)

    choice = choose(guest, ranges)

    assert match(guest, shuffled) == match(guest, ranges)
    by_name = {each.name: each for each in ranges}
    for name in choice.candidates:
        assert is_meant_for(by_name[name], guest)
        assert by_name[name].spec.iprange
        assert not by_name[name].spec.draining
    served = {*choice.candidates, *(name for name, _ in choice.passed_over)}
    assert served == {each.name for each in ranges if is_meant_for(each, guest)}


@pytest.mark.parametrize(
    ("fields", "guest", "texts"),
    [
        ({}, GUEST, ["harvesterClusterName", "clusterSelector"]),
        ({"harvester_cluster": "harv2"}, GUEST, ["Harvester cluster harv2", "harv1"]),
        ({"harvester_cluster": "harv2"}, ELSEWHERE, ["Harvester cluster harv2", "none that Rancher knows"]),
        ({"match_labels": {"site": "south", "environment": "test"}}, GUEST, ["selects site=south"]),
        ({"harvester_cluster": "harv1", "allowed_workspaces": ("other",)}, GUEST, ["allowedWorkspaces"]),
        ({"match_labels": {}, "allowed_clusters": ("other",)}, GUEST, ["allowedClusters"]),
        ({"match_labels": {}, "harvester_network": "vlan20"}, GUEST, ["network vlan20", "default/vlan10"]),
        (
            {"match_labels": {}, "harvester_network": "vlan20"},
            ELSEWHERE,
            ["network vlan20", "none that is known"],
        ),
    ],
)
def test_what_keeps_a_range_from_serving_a_guest_is_named(
    fields: dict[str, Any], guest: Guest, texts: list[str]
) -> None:
    assert not would_be_chosen(pool("one", **fields), guest)
    found = describe_misfit(pool("one", **fields), guest)
    assert [each for each in texts if each not in found] == []
