"""What is to be written into a guest's ConfigMap."""

import json
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api import names
from fipop.api.objects import FloatingIP
from fipop.guest.configmap.keys import DesiredKeys, build_keys
from fipop.guest.configmap.plan import Plan, parse_config_map, plan_patch
from fipop.ipam.pool import MAX_GUEST_PARTS
from localfleet.simulated import merge_patch
from tests.harness.tasks import START, addresses_of, asking
from tests.unit.guest.configmap.keys import FIRST

Json: TypeAlias = dict[str, Any]


Object = dict[str, Any]


def config_map(data: Any, applied: Any = None) -> Object:
    annotations = {names.ANNOTATION_APPLIED: applied if isinstance(applied, str) else json.dumps(applied)}
    metadata = {"name": "kubevip", "namespace": "kube-system", "resourceVersion": "7"}
    return {
        "metadata": metadata | ({"annotations": annotations} if applied is not None else {}),
        "data": data,
    }


def plan(current: Object | None, *floating_ips: FloatingIP, granted: tuple[str, ...] = ("10.0.0.1",)) -> Plan:
    keys = build_keys(floating_ips, addresses_of(*floating_ips))
    return plan_patch(current, keys, granted=frozenset(granted), namespace="kube-system")


def apply(current: Object | None, found: Plan) -> Object:
    """What the API server makes of it."""
    if found.patch is None:
        return current or {"data": {}}
    if found.patch.create:
        assert current is None
        return {**found.patch.body, "metadata": found.patch.body["metadata"] | {"resourceVersion": "1"}}
    assert current is not None
    assert found.patch.body["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]
    merged: Object = merge_patch(current, found.patch.body)
    return merged


def test_a_missing_config_map_is_created_with_our_mark() -> None:
    found = plan(None, FIRST)
    assert found.patch is not None
    assert found.patch.create
    body = found.patch.body
    assert body["data"] == {"cidr-global": "10.0.0.1/32"}
    assert json.loads(body["metadata"]["annotations"][names.ANNOTATION_APPLIED]) == body["data"]


def test_nothing_wanted_and_nothing_there_is_nothing_to_do() -> None:
    assert plan(None) == Plan()


def test_a_config_map_as_it_should_be_is_not_written() -> None:
    settled = apply(None, plan(None, FIRST))
    assert plan(settled, FIRST) == Plan()


def test_a_patch_names_only_what_changes() -> None:
    current = config_map({"cidr-global": "10.0.0.1/32", "note": "x"}, {"cidr-global": "10.0.0.1/32"})
    found = plan(current, asking(addresses=("10.0.0.2",)))
    assert found.patch is not None
    assert found.patch.body["data"] == {"cidr-global": "10.0.0.2/32"}


@pytest.mark.parametrize(
    ("value", "is_ours"),
    [
        ("10.0.0.1/32", True),
        ("10.0.0.1", True),
        (" 10.0.0.1/32 , 10.0.0.2/32", True),
        ("::ffff:10.0.0.1", True),
        ("/32", True),
        ("10.0.0.1/32,192.168.0.1/32", False),
        ("10.9.0.0/24", False),
        ("192.168.0.1/32", False),
        ("", False),
        ("junk", False),
    ],
)
def test_a_key_is_ours_if_the_ledger_gave_this_guest_its_value(value: str, is_ours: bool) -> None:
    current = config_map({"cidr-global": value, "cidr-old": value})
    wanted = asking(addresses=("10.0.0.3",), update_config_map=False)
    found = plan(current, wanted, granted=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    data = apply(current, found)["data"]
    assert data == ({"cidr-global": "10.0.0.3/32"} if is_ours else current["data"])
    assert bool(found.blocked) is not is_ours


def test_a_key_is_ours_if_its_value_is_what_we_wrote_last() -> None:
    current = config_map(
        {"interface-global": "eth0", "cidr-global": "10.7.7.7/32"},
        {"interface-global": "eth0", "cidr-global": "10.7.7.7/32"},
    )
    assert apply(current, plan(current, FIRST))["data"] == {"cidr-global": "10.0.0.1/32"}


def test_a_key_that_somebody_changed_after_us_is_not_ours_any_more() -> None:
    current = config_map({"interface-global": "eth9"}, {"interface-global": "eth0"})
    assert apply(current, plan(current, FIRST))["data"]["interface-global"] == "eth9"


def test_a_foreign_value_is_overwritten_where_the_floating_ip_says_so() -> None:
    current = config_map({"cidr-global": "192.168.0.0/24", "interface-global": "eth9"})
    found = plan(current, asking("first", interface="eth0"))
    assert apply(current, found)["data"] == {"cidr-global": "10.0.0.1/32", "interface-global": "eth0"}
    assert found.blocked == ()


def test_a_foreign_pool_that_holds_our_address_serves() -> None:
    current = config_map({"cidr-global": "10.0.0.0/24"})
    assert plan(current, asking("first", update_config_map=False)) == Plan()


def test_one_of_several_floating_ips_is_enough_to_overwrite() -> None:
    quiet = asking("a", update_config_map=False)
    current = config_map({"cidr-global": "192.168.0.0/24"})
    assert plan(current, quiet, FIRST).blocked == ()
    assert [key.floating_ips for key in plan(current, quiet).blocked] == [(("c-m-a", "a"),)]


def test_the_mark_goes_with_our_last_key() -> None:
    current = config_map({"cidr-global": "10.0.0.1/32"}, {"cidr-global": "10.0.0.1/32"})
    after = apply(current, plan(current))
    assert after["data"] == {}
    assert names.ANNOTATION_APPLIED not in after["metadata"]["annotations"]


@pytest.mark.parametrize(
    "mark", ["{", "[]", '"x"', "[" * 10_000, "{}", '{"note": "mine"}', "null", '{"a": 1}']
)
def test_a_mark_of_any_shape_harms_nobody_else(mark: str) -> None:
    current = config_map({"note": "mine", "cidr-prod": "192.168.0.0/24"}, mark)
    after = apply(current, plan(current, FIRST))
    assert after["data"] == {"note": "mine", "cidr-prod": "192.168.0.0/24", "cidr-global": "10.0.0.1/32"}


@pytest.mark.parametrize("data", [None, [], "x", {"cidr-global": 7, "cidr-x": None}])
def test_data_of_any_shape_is_read_without_an_error(data: Any) -> None:
    assert plan(config_map(data), FIRST).patch is not None


_ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"])


_WANTED = st.builds(
    asking,
    st.sampled_from("abc"),
    created=st.sampled_from([START, START + timedelta(days=1)]),
    addresses=st.lists(_ADDRESSES, max_size=2, unique=True).map(tuple),
    service_namespace=st.sampled_from([None, "prod"]),
    allow_share=st.sampled_from([None, True, False]),
    interface=st.sampled_from([None, "eth0", "eth1"]),
    update_config_map=st.booleans(),
)


_DATA = st.dictionaries(
    st.sampled_from(
        ["cidr-global", "cidr-prod", "range-global", "interface-global", "allow-share-prod", "note"]
    ),
    st.sampled_from(
        ["10.0.0.1/32", "10.0.0.2/32", "192.168.0.0/24", "eth7", "true", "/32", "10.0.0.1-10.0.0.9"]
    ),
)


_ALL = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")


@given(data=_DATA, steps=st.lists(st.lists(_WANTED, max_size=3), min_size=1, max_size=4))
def test_a_second_pass_writes_nothing_and_the_end_has_no_trace_of_us(
    data: Object, steps: list[list[Any]]
) -> None:
    """Settled after one write, and once all floating IPs are gone only other people's keys remain."""
    current: Object = config_map(dict(data))
    for wanted in steps:
        current = apply(current, plan(current, *wanted, granted=_ALL))
        assert plan(current, *wanted, granted=_ALL).patch is None
        assert current["data"].get("note") == data.get("note")
        assert current["data"].get("range-global") == data.get("range-global")
    before = current["data"]
    current = apply(current, plan(current, granted=_ALL))
    assert not [
        value
        for key, value in current["data"].items()
        if key.startswith("cidr-")
        and value != "192.168.0.0/24"
        and value in ("10.0.0.1/32", "10.0.0.2/32", "/32")
    ]
    assert current["data"].items() <= before.items()


@given(data=_DATA, wanted=st.lists(_WANTED, max_size=3))
def test_what_is_not_blocked_holds_every_wanted_address(data: Object, wanted: list[Any]) -> None:
    current = config_map(data)
    found = plan(current, *wanted, granted=_ALL)
    after = apply(current, found)["data"]
    blocked = {key.name for key in found.blocked}
    for key in build_keys(wanted, frozenset(_ALL)).keys:
        if key.name not in blocked and key.overwrite:
            assert after[key.name] == key.value


def test_a_pool_too_long_to_be_read_is_somebody_elses_and_hides_no_other() -> None:
    long = ",".join(["10.0.0.1/32"] * (MAX_GUEST_PARTS + 1))
    current = config_map({"cidr-a": long, "cidr-old": "10.0.0.1/32", "cidr-global": long})
    found = plan(current, asking("first", update_config_map=False))
    assert found.patch is not None
    assert found.patch.changed == ("cidr-old",), "ours by its address, wanted no more"
    assert [blocked.name for blocked in found.blocked] == ["cidr-global"]


def test_a_pool_too_long_to_be_read_is_overwritten_where_we_are_told_to() -> None:
    found = plan(config_map({"cidr-global": "1," * 524_288}), FIRST)
    assert found.patch is not None
    assert found.patch.body["data"] == {"cidr-global": "10.0.0.1/32"}


def test_however_many_pools_there_are_only_so_many_are_read() -> None:
    data = {f"cidr-{number}": "10.0.0.1/32" for number in range(10)}
    found = plan_patch(
        config_map(data), DesiredKeys(), granted=frozenset({"10.0.0.1"}), namespace="kube-system", max_parts=4
    )
    assert found.patch is not None
    assert found.patch.changed == ("cidr-0", "cidr-1", "cidr-2", "cidr-3")


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"namespace": "a"},
        {"namespace": 7, "resourceVersion": "1"},
        {"namespace": "../x", "resourceVersion": "1"},
    ]
    + [{"namespace": "a", "resourceVersion": value} for value in (7, "", "x" * 65, "a\nb", None)],
)
def test_a_config_map_without_a_place_or_a_version_is_none(metadata: Json) -> None:
    with pytest.raises(ValueError, match="no ConfigMap"):
        parse_config_map({"metadata": metadata})


@pytest.mark.parametrize("odd", [None, 7, [], "x", {"a": 7}, {"a": None}, {"a": {"b": "c"}}])
def test_annotations_and_data_of_any_shape_are_read_as_texts(odd: object) -> None:
    metadata = {"namespace": "a", "resourceVersion": "1", "annotations": odd}
    found = parse_config_map({"metadata": metadata, "data": odd})
    assert (found["metadata"]["annotations"], found["data"]) == ({}, {})
    plan_patch(found, DesiredKeys(), granted=frozenset(), namespace="a")
