"""Which addresses a guest cluster uses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.addresses.in_use import InUseAddresses
from fipop.api.names import ANNOTATION_APPLIED
from fipop.guests.in_use import MAX_PARTS, TooManyAddressesError, find_in_use, find_machines, parse_relevant
from fipop.ipam.addresses import parse_address


def config_map(**data: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "kube-system", "name": "kubevip"}, "data": data}


def service(spec: Any = None, **rest: Any) -> dict[str, Any]:
    base = {"metadata": {"namespace": "prod", "name": "web"}, "spec": {"type": "LoadBalancer"} | (spec or {})}
    return base | rest


def annotated(text: str) -> dict[str, Any]:
    return {"namespace": "prod", "name": "web", "annotations": {"kube-vip.io/loadbalancerIPs": text}}


def read(*services: dict[str, Any]) -> InUseAddresses:
    return find_in_use([], filter(None, map(parse_relevant, services)))


def user_of(found: InUseAddresses, address: str) -> str:
    return str(found.user_of(parse_address(address)) or "")


def test_any_value_of_a_config_map_uses_addresses_also_as_members_of_a_pool() -> None:
    found = find_in_use(
        [config_map(cidr="10.0.0.0/30,fd00::1/128", other="10.1.0.1-10.1.0.2", note="eth0")], []
    )
    for address in ("10.0.0.3", "10.1.0.2", "fd00::1"):
        assert user_of(found, address) == "ConfigMap kube-system/kubevip"
    assert user_of(found, "10.0.0.4") == ""
    assert [each.is_pool for each in found.parts] == [True, False, True]


def test_a_key_is_ours_as_long_as_it_has_the_value_that_fipop_wrote_last() -> None:
    applied = json.dumps({"cidr-global": "10.0.0.1/32", "cidr-shop": "10.0.0.2/32"})
    metadata = {"namespace": "kube-system", "name": "kubevip", "annotations": {ANNOTATION_APPLIED: applied}}
    data = {"cidr-global": "10.0.0.1/32", "cidr-shop": "10.0.0.3/32", "cidr-prod": "10.0.0.4/32"}
    found = find_in_use([{"metadata": metadata, "data": data}], [])
    assert [each.is_ours for each in found.parts] == [True, False, False]


@pytest.mark.parametrize(
    "item",
    [
        service(metadata=annotated("10.0.0.9, fd00::9")),
        service({"loadBalancerIP": "10.0.0.9"}),
        service({"externalIPs": ["10.0.0.9"]}),
        service({"externalIPs": ["10.0.0.9"], "type": "ClusterIP"}),
        service(status={"loadBalancer": {"ingress": [{"hostname": "x"}, {"ip": "10.0.0.9"}]}}),
    ],
    ids=["annotation", "loadBalancerIP", "externalIPs", "externalIPs of another type", "status"],
)
def test_a_service_uses_an_address_of_its(item: dict[str, Any]) -> None:
    assert user_of(read(item), "10.0.0.9") == "Service prod/web"


def test_a_service_of_another_type_or_with_dhcp_uses_nothing() -> None:
    other = service({"type": "ClusterIP", "loadBalancerIP": "10.0.0.9"}, metadata=annotated("10.0.0.9"))
    assert read(other, service(metadata=annotated("0.0.0.0"))).parts == ()


def test_names_that_no_api_server_would_allow_do_not_travel() -> None:
    evil = {"metadata": {"namespace": "<script>", "name": "a\nb"}, "data": {"x": "10.0.0.1"}}
    assert user_of(find_in_use([evil], []), "10.0.0.1") == "ConfigMap ?/?"


def test_a_text_that_many_objects_share_is_read_once_and_the_first_is_named() -> None:
    found = read(*(service({"loadBalancerIP": "10.0.0.9"}) for _ in range(2 * MAX_PARTS)))
    assert len(found.parts) == 1
    assert user_of(found, "10.0.0.9") == "Service prod/web"


@pytest.mark.parametrize(
    ("config_maps", "services"),
    [
        ([config_map(x="1," * 524_288)], []),
        ([config_map(x="10.0.0.1," * (MAX_PARTS - 1), y="a,b")], []),
        ([config_map(**{f"key-{number}": f"10.0.0.{number}" for number in range(MAX_PARTS + 1)})], []),
        ([], [service({"loadBalancerIP": f"junk-{number}"}) for number in range(MAX_PARTS + 1)]),
    ],
)
def test_a_guest_cluster_that_names_more_than_is_read_does_not_count_as_read(
    config_maps: list[Any], services: list[Any]
) -> None:
    with pytest.raises(TooManyAddressesError):
        find_in_use(config_maps, filter(None, map(parse_relevant, services)))


def test_a_guest_cluster_that_names_as_much_as_is_read_is_read() -> None:
    text = ",".join(f"10.0.{number // 256}.{number % 256}" for number in range(4096))
    assert len(find_in_use([config_map(x=text)], []).parts) == 4096


def test_nodes_and_the_api_server_use_their_addresses() -> None:
    addresses = {name: frozenset({parse_address(name)}) for name in ("10.0.0.1", "10.0.0.2", "10.0.0.3")}
    nodes = [("node-a", addresses["10.0.0.1"]), ("node-b", addresses["10.0.0.2"])]
    found = find_machines(nodes, addresses["10.0.0.2"] | addresses["10.0.0.3"])
    assert user_of(found, "10.0.0.1") == "Node node-a"
    assert user_of(found, "10.0.0.2") == "Node node-b"
    assert user_of(found, "10.0.0.3") == "Endpoints default/kubernetes"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "status", "data", "loadBalancer", "ingress", "annotations", "type"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "data"]), _JSON), max_size=3))
def test_objects_of_any_shape_are_read_without_an_error(items: list[dict[str, Any]]) -> None:
    find_in_use(items, [])
    read(*items)
