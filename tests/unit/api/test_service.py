"""What is read of a Service, whoever wrote it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.api.conditions import ConditionContent, Verdict
from fipop.api.service import MOST_ADDRESSES, MOST_PORTS, Service, parse_service
from fipop.ipam.addresses import Family, FamilyPolicy, format_address

GROUP = "kubefip.k8s.binbash.org"


def service(annotations: Any = None, status: Any = None, *, finalizers: Any = None, **spec: Any) -> Service:
    metadata = {"namespace": "shop", "name": "web", "resourceVersion": "7", "annotations": annotations}
    body = {"metadata": metadata | {"finalizers": finalizers}, "spec": {"type": "LoadBalancer", **spec}}
    return parse_service({**body, "status": status})


def in_use(found: Service) -> set[str]:
    return set(map(format_address, found.used))


STATUS = {"loadBalancer": {"ingress": [{"hostname": "x"}, {"ip": "10.0.0.3"}]}}
NAMED = {"kube-vip.io/loadbalancerIPs": " 10.0.0.1, fd00::1,junk "}


def test_a_load_balancer_uses_all_that_it_names() -> None:
    found = service(NAMED, STATUS, loadBalancerIP="10.0.0.2", externalIPs=["10.0.0.4"])
    assert in_use(found) == {"10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
    assert set(found.texts) >= {"10.0.0.2", "10.0.0.3", "10.0.0.4"}


def test_another_type_uses_its_external_addresses_and_until_it_is_released_the_rest() -> None:
    fields = {"loadBalancerIP": "10.0.0.2", "externalIPs": ["10.0.0.4"], "type": "ClusterIP"}
    assert in_use(service(NAMED, **fields)) == {"10.0.0.4"}
    assert service(NAMED, **fields).texts == ("10.0.0.4",)
    held = service(NAMED, finalizers=["service.kubernetes.io/load-balancer-cleanup"], **fields)
    assert in_use(held) == {"10.0.0.1", "fd00::1", "10.0.0.2", "10.0.0.4"}


def test_addresses_that_ask_dhcp_are_not_in_use() -> None:
    assert in_use(service({"kube-vip.io/loadbalancerIPs": "0.0.0.0,::"})) == set()


@pytest.mark.parametrize(
    ("fields", "families", "policy"),
    [
        ({}, (4,), FamilyPolicy.SINGLE_STACK),
        ({"ipFamilies": ["IPv6", 7], "ipFamilyPolicy": "Odd"}, (6,), FamilyPolicy.SINGLE_STACK),
        (
            {"ipFamilies": ["IPv6", "IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"},
            (6, 4),
            FamilyPolicy.PREFER_DUAL_STACK,
        ),
    ],
)
def test_families_are_those_that_the_api_server_granted(
    fields: dict[str, Any], families: tuple[int, ...], policy: FamilyPolicy
) -> None:
    found = service(**fields)
    assert (found.families, found.policy) == (tuple(map(Family, families)), policy)


def test_texts_and_lists_are_bounded() -> None:
    many = [f"10.0.1.{number}" for number in range(MOST_ADDRESSES + 9)]
    status = {"loadBalancer": {"ingress": [{"ip": each} for each in many]}}
    found = service({"kube-vip.io/loadbalancerIPs": ",".join(many) * 99}, status, externalIPs=many)
    assert len(found.annotated) == len(found.announced) == len(found.external_ips) == MOST_ADDRESSES
    assert len(found.annotation) <= 64 * MOST_ADDRESSES


def test_a_service_with_too_many_ports_has_none_to_share_by() -> None:
    ports = [{"port": number, "protocol": "UDP"} for number in range(1, MOST_PORTS + 2)]
    assert service(ports=ports).ports == frozenset()
    assert service(ports=[{"port": 80}, {"port": "x"}, ports[0]]).ports == {(80, "TCP"), (1, "UDP")}


def test_the_condition_of_the_cloud_provider_is_read_among_others() -> None:
    ours = {
        "type": f"{GROUP}/AddressAssigned",
        "status": "False",
        "reason": "PoolFull",
        "message": "\x1b[31mFull",
    }
    found = service(status={"conditions": [{"type": "Other"}, {**ours, "lastTransitionTime": "T"}]})
    assert found.finding == ConditionContent(verdict=Verdict.FALSE, reason="PoolFull", message="Full")
    assert found.finding_since == "T"
    assert service().finding is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PARTS = {
    "metadata": ("namespace", "name", "annotations", "labels", "creationTimestamp", "finalizers"),
    "spec": (
        "type",
        "ipFamilies",
        "ipFamilyPolicy",
        "loadBalancerClass",
        "loadBalancerIP",
        "externalIPs",
        "ports",
    ),
    "status": ("conditions", "loadBalancer"),
}


@given(
    st.fixed_dictionaries(
        {
            part: JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON))
            for part, keys in PARTS.items()
        }
    )
)
def test_anything_can_be_a_service(item: dict[str, Any]) -> None:
    assert isinstance(parse_service(item).used, frozenset)
