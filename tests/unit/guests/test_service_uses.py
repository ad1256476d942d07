"""What Services use and wait for, as a list of an untrusted guest cluster shows it."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fipop.guests.in_use import parse_relevant
from fipop.guests.services import ServiceUse, read_classes, read_use
from fipop.ipam.addresses import Family, parse_address

CREATED, TOLD = "2026-05-04T09:00:00Z", "2026-05-04T09:10:00Z"
V4, V6 = Family.IPV4, Family.IPV6
NO_CLASS = frozenset({""})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def service(status: Any = None, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web", "creationTimestamp": CREATED, "annotations": annotations}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", **spec}, "status": status or {}}


def told(reason: str) -> dict[str, Any]:
    condition = {
        "type": "kubefip.k8s.binbash.org/AddressAssigned",
        "reason": reason,
        "lastTransitionTime": TOLD,
    }
    return {"conditions": [{"type": "Other"}, condition]}


def _read(item: dict[str, Any], classes: frozenset[str]) -> ServiceUse | None:
    found = parse_relevant(item)
    return read_use(found, classes=classes) if found is not None else None


def use(item: dict[str, Any]) -> ServiceUse | None:
    return _read(item, NO_CLASS)


@pytest.mark.parametrize(
    ("item", "since", "lacking"),
    [
        (service(), CREATED, (V4,)),
        (service(told("PoolFull")), TOLD, (V4,)),
        (service(told("NoPool")), TOLD, (V4,)),
        (service(ipFamilies=["IPv6", "IPv4"]), CREATED, (V6,)),
        (service(ipFamilies=["IPv6", "IPv4"], ipFamilyPolicy="RequireDualStack"), CREATED, (V6, V4)),
        (
            service(
                told("PoolFull"),
                {"kube-vip.io/loadbalancerIPs": "10.0.0.1"},
                ipFamilies=["IPv4", "IPv6"],
                ipFamilyPolicy="RequireDualStack",
            ),
            TOLD,
            (V6,),
        ),
    ],
    ids=[
        "no provider said anything",
        "a full pool",
        "no pool",
        "one of two families",
        "both",
        "the second family",
    ],
)
def test_a_service_waits(item: dict[str, Any], since: str, lacking: tuple[Family, ...]) -> None:
    found = use(item)
    assert found is not None
    assert (str(found), found.since, found.lacking) == ("shop/web", at(since), lacking)


@pytest.mark.parametrize(
    "item",
    [
        service(told("AddressInUse")),
        service(told("PoolNotAllowed"), {"kubefip.k8s.binbash.org/pool": "dmz"}),
        service(told("Assigned")),
        service(loadBalancerClass="example.com/edge"),
        service(annotations={"kube-vip.io/ignore": "true"}),
        service(type="NodePort"),
        {**service(), "metadata": {**service()["metadata"], "deletionTimestamp": TOLD}},
        {**service(), "metadata": {**service()["metadata"], "creationTimestamp": "today"}},
    ],
)
def test_a_service_that_no_floating_ip_would_help_does_not_wait(item: dict[str, Any]) -> None:
    found = use(item)
    assert found is None or not found.lacking


def test_a_service_uses_what_it_names_of_single_addresses() -> None:
    found = use(
        service(
            {"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}]}},
            {"kube-vip.io/loadbalancerIPs": "10.0.0.1,fd00::1"},
            externalIPs=["10.0.0.3"],
        )
    )
    assert found is not None
    texts = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1")
    assert found.addresses == frozenset(map(parse_address, texts))
    assert not found.lacking


def test_names_that_are_none_reach_no_condition() -> None:
    found = use({**service(), "metadata": {"namespace": "\x1b[31m", "name": 7, "creationTimestamp": CREATED}})
    assert str(found) == "?/?"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PARTS = {
    "metadata": ("namespace", "name", "annotations", "creationTimestamp", "deletionTimestamp", "finalizers"),
    "spec": ("ipFamilies", "ipFamilyPolicy", "loadBalancerClass", "loadBalancerIP", "externalIPs"),
    "status": ("conditions", "loadBalancer"),
}


@given(
    st.fixed_dictionaries(
        {part: st.fixed_dictionaries({}, optional=dict.fromkeys(keys, JSON)) for part, keys in PARTS.items()}
    )
)
def test_anything_can_be_a_service(item: dict[str, Any]) -> None:
    item["spec"]["type"] = "LoadBalancer"
    use(item)


@pytest.mark.parametrize(
    ("extra", "classes"),
    [
        ([], {""}),
        ("text", {""}),
        ([{"name": "KUBEVIP_ENABLE_LOADBALANCERCLASS", "value": "false"}], {""}),
        ([{"name": "KUBEVIP_ENABLE_LOADBALANCERCLASS", "value": "true"}], {"kube-vip.io/kube-vip-class"}),
        (
            {"KUBEVIP_ENABLE_LOADBALANCERCLASS": True, "KUBEVIP_CUSTOM_LOADBALANCERCLASS_NAME": "a/b,"},
            {"a/b", ""},
        ),
    ],
)
def test_the_classes_are_those_of_the_chart_values(extra: Any, classes: set[str]) -> None:
    assert read_classes({"extraEnv": extra}) == classes
