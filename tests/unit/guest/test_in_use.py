"""Which addresses a guest still carries."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guest.in_use import TooManyAddressesError, addresses_in
from fipop.ipam.addresses import parse_address
from fipop.ipam.pool import MAX_GUEST_PARTS


def config_map(**data: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "kube-system", "name": "kubevip"}, "data": data}


def service(spec: Any = None, **rest: Any) -> dict[str, Any]:
    base = {"metadata": {"namespace": "prod", "name": "web"}, "spec": {"type": "LoadBalancer"} | (spec or {})}
    return base | rest


def annotated(text: str) -> dict[str, Any]:
    return {"namespace": "prod", "name": "web", "annotations": {"kube-vip.io/loadbalancerIPs": text}}


def test_any_value_of_a_config_map_carries_also_as_a_member_of_a_pool() -> None:
    carried = addresses_in(
        [config_map(cidr="10.0.0.0/30,fd00::1/128", other="10.1.0.1-10.1.0.2", note="eth0")], []
    )
    named = ["10.0.0.3", "10.1.0.2", "fd00::1"]
    assert [str(carried.carrier_of(parse_address(address))) for address in named] == [
        "ConfigMap kube-system/kubevip"
    ] * 3
    assert carried.carrier_of(parse_address("10.0.0.4")) is None
    assert carried.single == (parse_address("fd00::1"),)


@pytest.mark.parametrize(
    "item",
    [
        service(metadata=annotated("10.0.0.9, fd00::9")),
        service({"loadBalancerIP": "10.0.0.9"}),
        service(status={"loadBalancer": {"ingress": [{"hostname": "x"}, {"ip": "10.0.0.9"}]}}),
    ],
)
def test_a_service_of_type_load_balancer_carries(item: dict[str, Any]) -> None:
    assert str(addresses_in([], [item]).carrier_of(parse_address("10.0.0.9"))) == "Service prod/web"


def test_a_service_of_another_type_or_with_dhcp_carries_nothing() -> None:
    other = service({"type": "ClusterIP", "loadBalancerIP": "10.0.0.9"}, metadata=annotated("10.0.0.9"))
    assert addresses_in([], [other, service(metadata=annotated("0.0.0.0"))]).parts == ()


def test_names_that_no_api_server_would_allow_do_not_travel() -> None:
    evil = {"metadata": {"namespace": "<script>", "name": "a\nb"}, "data": {"x": "10.0.0.1"}}
    assert str(addresses_in([evil], []).carrier_of(parse_address("10.0.0.1"))) == "ConfigMap ?/?"


def test_a_text_that_many_objects_share_is_read_once_and_the_first_carries_it() -> None:
    services = [service({"loadBalancerIP": "10.0.0.9"}) for _ in range(2 * MAX_GUEST_PARTS)]
    carried = addresses_in([], services)
    assert len(carried.parts) == 1
    assert str(carried.carrier_of(parse_address("10.0.0.9"))) == "Service prod/web"


@pytest.mark.parametrize(
    "objects",
    [
        ([config_map(x="1," * 524_288)], []),
        ([config_map(x="10.0.0.1," * (MAX_GUEST_PARTS - 1), y="a,b")], []),
        ([config_map(**{f"key-{number}": f"10.0.0.{number}" for number in range(MAX_GUEST_PARTS + 1)})], []),
        ([], [service({"loadBalancerIP": f"junk-{number}"}) for number in range(MAX_GUEST_PARTS + 1)]),
    ],
)
def test_a_guest_that_names_more_than_is_read_is_not_said_to_carry_nothing(objects: Any) -> None:
    with pytest.raises(TooManyAddressesError):
        addresses_in(*objects)


def test_a_guest_that_names_as_much_as_is_read_is_read() -> None:
    text = ",".join(f"10.0.{number // 256}.{number % 256}" for number in range(MAX_GUEST_PARTS))
    assert len(addresses_in([config_map(x=text)], []).parts) >= MAX_GUEST_PARTS - 1


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
    addresses_in(items, items)
