"""Our objects are read from whatever the API server serves; nothing that stands there makes it fail."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api import names
from fipop.api.models import EPOCH, SearchOrder
from fipop.api.parsing import parse_floating_ip, parse_meta, parse_range, parse_reservation
from fipop.ipam.addresses import FamilyPolicy
from tests.harness.objects import build_floating_ip, build_range, build_reservation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    *("metadata", "spec", "status", "annotations", "owner", "history", "capacity", "conditions", "guest"),
    *("releases", "exclude", "clusterSelector", "matchLabels", "ipFamilies", "addresses", "maxPerGuest"),
)
SHAPES = st.dictionaries(
    st.sampled_from(FIELDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4) | JSON, max_size=4
)


@given(SHAPES)
def test_an_object_of_any_shape_is_read_without_an_error(obj: dict[str, object]) -> None:
    for parse in (parse_meta, parse_range, parse_floating_ip, parse_reservation):
        parse(obj)


def test_a_range_that_says_nothing_has_the_defaults_of_the_schema() -> None:
    found = parse_range(build_range("r", "10.0.0.0/24"))
    assert found.search_order is SearchOrder.ASC
    assert (found.skip_end_ips, found.avoid_buggy_ips, found.draining, found.restrict_to_matching) == (
        *(True, True),
        *(False, False),
    )
    assert found.address_space == names.DEFAULT_ADDRESS_SPACE
    assert found.quarantine_seconds == names.DEFAULT_QUARANTINE_SECONDS
    assert found.match_labels is None, "no selector is not an empty one, which matches every cluster"
    assert found.max_per_guest is None


def test_a_range_is_read_with_all_that_it_says() -> None:
    annotations = {names.ANNOTATION_HARVESTER_CLUSTER: "harv", names.ANNOTATION_HARVESTER_NETWORK: ""}
    spec = {"exclude": ["10.0.0.1"], "searchOrder": "desc", "skipEndIPs": False, "maxPerGuest": 3}
    found = parse_range(
        build_range("r", "10.0.0.0/24", annotations=annotations, clusterSelector={"matchLabels": {}}, **spec)
    )
    assert (found.exclude, found.search_order, found.skip_end_ips) == (
        *(("10.0.0.1",), SearchOrder.DESC),
        False,
    )
    assert (found.harvester_cluster, found.harvester_network) == ("harv", None)
    assert (found.match_labels, found.max_per_guest) == ({}, 3)


def test_a_selector_that_an_older_schema_pruned_does_not_select_every_guest_cluster() -> None:
    assert parse_range(build_range("r", "10.0.0.0/24", clusterSelector={})).match_labels is None


@pytest.mark.parametrize(
    ("text", "is_true"), [("true", True), ("1", True), ("T", True), ("yes", False), ("", False)]
)
def test_switches_in_annotations_are_booleans_as_go_reads_them(text: str, is_true: bool) -> None:
    found = parse_floating_ip(build_floating_ip("web", annotations={names.ANNOTATION_PAUSED: text}))
    assert found.paused is is_true


def test_a_floating_ip_of_the_predecessor_has_no_spec() -> None:
    found = parse_floating_ip({"metadata": {"name": "web", "namespace": "c-m-a"}})
    assert (found.meta.key, found.ipaddress, found.ip_families, found.ip_family_policy) == (
        *(("c-m-a", "web"), "", ()),
        None,
    )


def test_families_that_nobody_knows_are_left_out() -> None:
    found = parse_floating_ip(
        build_floating_ip("web", ipFamilies=["IPv6", "IPv5", "IPv4"], ipFamilyPolicy="PreferDualStack")
    )
    assert found.ip_families == (6, 4)
    assert found.ip_family_policy is FamilyPolicy.PREFER_DUAL_STACK


def test_claims_that_are_to_be_ignored_are_a_list_of_guests() -> None:
    annotations = {names.ANNOTATION_IGNORE_CLAIM: " c-m-x, ,c-m-y"}
    found = parse_floating_ip(build_floating_ip("web", annotations=annotations))
    assert found.ignored_claims == {"c-m-x", "c-m-y"}


def test_a_reservation_is_held_until_it_says_how_long_it_waits() -> None:
    held = parse_reservation(build_reservation("10.0.0.9"))
    assert held.is_held
    waiting = parse_reservation(
        build_reservation(
            "10.0.0.9",
            quarantined_until="2026-03-01T12:00:00Z",
            history=[{"namespace": "c-m-1", "name": "web", "releasedAt": "no time"}, "nonsense"],
        )
    )
    assert waiting.quarantined_until == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert [(each.name, each.released_at) for each in waiting.history] == [("web", EPOCH)]
