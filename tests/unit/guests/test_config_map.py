"""What is written into the ConfigMap of a guest cluster."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api import names
from fipop.api.objects import FloatingIP, FloatingIPSpec, FloatingIPStatus, Metadata
from fipop.guests.config_map import (
    MAX_POOL_NAMESPACES,
    ConfigMapPlan,
    KnownAddresses,
    build_keys,
    find_namespace,
    find_pool_namespaces,
    parse_config_map,
    plan_config_map,
)
from fipop.ipam.addresses import parse_address
from fipop.ipam.pool import MAX_GUEST_PARTS

Object = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def asking(
    name: str = "web",
    *,
    created: datetime = START,
    addresses: tuple[str, ...] = ("10.0.0.1",),
    update_config_map: bool = True,
    **fields: Any,
) -> FloatingIP:
    """A floating IP that holds addresses, and overwrites what other values there are unless it says otherwise."""
    if fields.get("pool"):
        fields["service_namespace"] = ""
    else:
        fields.pop("pool_namespaces", None)
    return FloatingIP(
        metadata=Metadata(
            namespace="c-m-a",
            name=name,
            uid=f"uid-{name}",
            resource_version=1,
            creation_timestamp=created,
            annotations={"updateConfigMap": str(update_config_map)},
        ),
        spec=FloatingIPSpec(**fields),
        status=FloatingIPStatus(addresses=addresses),
    )


FIRST, QUIET = asking(), asking(update_config_map=False)


def config_map(data: Any, applied: Any = None) -> Object:
    annotations = {names.ANNOTATION_APPLIED: applied if isinstance(applied, str) else json.dumps(applied)}
    metadata = {"name": "kubevip", "namespace": "kube-system", "resourceVersion": "7"}
    return {
        "metadata": metadata | ({"annotations": annotations} if applied is not None else {}),
        "data": data,
    }


def known(*own: str, frozen: tuple[str, ...] = ()) -> KnownAddresses:
    return KnownAddresses(
        own=frozenset(map(parse_address, own)), frozen=frozenset(map(parse_address, frozen))
    )


def plan(
    current: Object | None, *floating_ips: FloatingIP, own: tuple[str, ...] = ("10.0.0.1",)
) -> ConfigMapPlan:
    granted = frozenset(address for each in floating_ips for address in each.status.addresses)
    return plan_config_map(current, build_keys(floating_ips, granted), known(*own))


def apply(current: Object | None, found: ConfigMapPlan) -> Object:
    """Return the ConfigMap after a write."""
    data = dict((current or {}).get("data") or {}) | dict(found.changes)
    applied = dict(found.owned) or None
    return config_map({name: value for name, value in data.items() if value is not None}, applied)


def test_a_missing_config_map_gets_the_keys_and_a_note_of_them() -> None:
    found = plan(None, FIRST)
    assert found.changes == found.owned == {"cidr-global": "10.0.0.1/32"}
    settled = plan(apply(None, found), FIRST)
    assert (settled.changes, settled.owned) == ({}, found.owned)
    assert plan(None) == ConfigMapPlan(changes={}, owned={})


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
def test_cidr_global_belongs_to_fipop_if_it_names_only_own_addresses_and_no_other_key_does(
    value: str, is_ours: bool
) -> None:
    current = config_map({"cidr-global": value, "cidr-old": value})
    wanted = replace(QUIET, status=FloatingIPStatus(addresses=("10.0.0.3",)))
    found = plan(current, wanted, own=("10.0.0.1", "10.0.0.2", "10.0.0.3"))
    assert found.changes == ({"cidr-global": "10.0.0.3/32"} if is_ours else {})
    assert found.blocked == (() if is_ours else ("cidr-global",))


def test_a_key_belongs_to_fipop_while_it_has_the_value_that_fipop_wrote_last() -> None:
    keys = {"interface-global": "eth0", "cidr-web": "10.7.7.7/32"}
    assert plan(config_map(keys, keys), FIRST).changes == {
        "cidr-global": "10.0.0.1/32",
        "cidr-web": None,
        "interface-global": None,
    }
    changed = config_map({"interface-global": "eth9"}, {"interface-global": "eth0"})
    assert "interface-global" not in plan(changed, FIRST).changes


def test_a_foreign_value_is_overwritten_if_one_floating_ip_says_so() -> None:
    current = config_map({"cidr-global": "192.168.0.0/24", "interface-global": "eth9"})
    found = plan(current, QUIET, asking("b", interface="eth0"))
    assert found.changes == {"cidr-global": "10.0.0.1/32", "interface-global": "eth0"}
    assert plan(current, QUIET).blocked == ("cidr-global",)


def test_the_keys_of_a_floating_ip_with_a_wrong_clustername_stay_as_they_are() -> None:
    written = {"cidr-web": "10.0.0.9/32", "allow-pool-web": "shop"}
    current = config_map(written | {"interface-web": "eth0"}, written)
    keys = build_keys([asking(pool="web")], frozenset({"10.0.0.1"}))
    found = plan_config_map(current, keys, known("10.0.0.1", frozen=("10.0.0.9",)))
    assert (found.changes, found.owned) == ({}, written)


def test_several_floating_ips_are_merged_and_the_oldest_decides() -> None:
    later = START + timedelta(days=1)
    young = asking("young", created=later, addresses=("fd00::7",), allow_share=True, interface="eth1")
    keys = build_keys([young, asking(interface="eth0")], frozenset({"10.0.0.1", "fd00::7"}))
    assert {name: key.value for name, key in keys.items()} == {
        "cidr-global": "10.0.0.1/32,fd00::7/128",
        "interface-global": "eth0",
        "allow-share-global": "true",
    }


def test_who_may_choose_a_pool_is_joined_and_none_named_leaves_no_key() -> None:
    def written(*named: tuple[str, ...]) -> str | None:
        asked = [asking(str(at), pool="dmz", pool_namespaces=each) for at, each in enumerate(named)]
        found = build_keys(asked, frozenset({"10.0.0.1"})).get("allow-pool-dmz")
        return found.value if found is not None else None

    assert written(("shop", "api"), ("billing", "api"), ()) == "api,billing,shop"
    assert written(("shop",), ("api", "*")) == "*"
    assert written((), ()) is None


def test_the_namespaces_of_a_pool_are_read_where_the_provider_reads_them_and_up_to_a_bound() -> None:
    many = ", ".join(f"a{number}" for number in range(9 * MAX_POOL_NAMESPACES))
    data = {
        "allow-pool-dmz": " shop,\nap*, " + "x" * 64 + ",*",
        "allow-pool-edge": many,
        "allow-pool-other": "shop",
    }
    elsewhere = {**config_map({"allow-pool-dmz": "*"}), "metadata": {"namespace": "a"}}
    found = find_pool_namespaces([elsewhere, config_map(data)], "kube-system", ["dmz", "edge", "none"])
    assert found["dmz"] == {"shop", "*"}
    assert (len(found["edge"]), found.keys()) == (MAX_POOL_NAMESPACES, {"dmz", "edge"})
    assert find_pool_namespaces([elsewhere], "kube-system", ["dmz"]) == {}


@pytest.mark.parametrize(
    ("config_maps", "found"),
    [
        ([], None),
        ([config_map({"note": "x"})], None),
        ([config_map({"cidr-global": "10.0.0.1/32"})], "kube-system"),
        ([config_map({"cidr-global": "10.9.9.9/32"})], None),
        ([config_map({"cidr-web": "10.0.0.1/32"}, {"cidr-web": "10.0.0.1/32"})], "kube-system"),
    ],
)
def test_the_config_map_is_where_fipop_or_its_predecessor_wrote_last(
    config_maps: list[Object], found: str | None
) -> None:
    assert find_namespace(config_maps, known("10.0.0.1")) == found


_ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1"])
_ALL = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")
_WANTED = st.builds(
    asking,
    st.sampled_from("abc"),
    created=st.sampled_from([START, START + timedelta(days=1)]),
    addresses=st.lists(_ADDRESSES, max_size=2, unique=True).map(tuple),
    pool=st.sampled_from(["", "prod", "dmz"]),
    pool_namespaces=st.sampled_from([(), ("shop",), ("api", "*")]),
    service_namespace=st.sampled_from(["", "prod"]),
    allow_share=st.sampled_from([None, True, False]),
    interface=st.sampled_from(["", "eth0", "eth1"]),
    update_config_map=st.booleans(),
)
_DATA = st.dictionaries(
    st.sampled_from(
        [
            *("cidr-global", "cidr-prod", "range-global", "interface-global", "allow-share-prod", "note"),
            *("cidr-dmz", "allow-pool-dmz", "allow-pool-prod"),
        ]
    ),
    st.sampled_from(["10.0.0.1/32", "192.168.0.0/24", "eth7", "true", "/32", "10.0.0.1-10.0.0.9"]),
)


@given(data=_DATA, steps=st.lists(st.lists(_WANTED, max_size=3), min_size=1, max_size=4))
def test_a_second_write_is_never_needed_and_once_all_are_gone_only_other_keys_remain(
    data: Object, steps: list[list[Any]]
) -> None:
    current: Object = config_map(dict(data))
    for wanted in steps:
        current = apply(current, plan(current, *wanted, own=_ALL))
        again = plan(current, *wanted, own=_ALL)
        assert (again.changes, dict(again.owned)) == (
            {},
            json.loads(current["metadata"].get("annotations", {}).get(names.ANNOTATION_APPLIED, "{}")),
        )
        for name in ("note", "range-global"):
            assert current["data"].get(name) == data.get(name)
    before = current["data"]
    current = apply(current, plan(current, own=_ALL))
    assert current["data"].get("cidr-global") not in ("10.0.0.1/32", "/32")
    assert current["data"].items() <= before.items()


@pytest.mark.parametrize("mark", ["{", "[]", '"x"', "[" * 10_000, "{}", '{"note": "mine"}', "null"])
def test_a_note_of_any_shape_harms_no_other_key(mark: str) -> None:
    data = {"note": "mine", "cidr-prod": "192.168.0.0/24"}
    assert apply(config_map(data, mark), plan(config_map(data, mark), FIRST))["data"] == {
        **data,
        "cidr-global": "10.0.0.1/32",
    }


@pytest.mark.parametrize("data", [None, [], "x", {"cidr-global": 7, "cidr-x": None}])
def test_data_of_any_shape_is_read_without_an_error(data: Any) -> None:
    assert plan(config_map(data), FIRST).changes


def test_a_pool_too_long_to_be_read_is_somebody_elses_and_hides_no_other() -> None:
    long = ",".join(["10.0.0.1/32"] * (MAX_GUEST_PARTS + 1))
    found = plan(config_map({"cidr-global": long}), QUIET)
    assert (found.changes, found.blocked) == ({}, ("cidr-global",))
    assert plan(config_map({"cidr-global": "1," * 524_288}), FIRST).changes == {"cidr-global": "10.0.0.1/32"}
    beside = config_map({"cidr-a": long, "cidr-global": "10.0.0.1/32"})
    assert plan(beside).changes == {"cidr-global": None}


@pytest.mark.parametrize(
    "metadata",
    [{}, {"namespace": "a"}, {"namespace": 7, "resourceVersion": "1"}]
    + [{"namespace": "../x", "resourceVersion": "1"}]
    + [{"namespace": "a", "resourceVersion": value} for value in (7, "", "x" * 65, "a\nb", None)],
)
def test_a_config_map_without_a_place_or_a_version_is_none(metadata: Object) -> None:
    with pytest.raises(ValueError, match="no ConfigMap"):
        parse_config_map({"metadata": metadata})
