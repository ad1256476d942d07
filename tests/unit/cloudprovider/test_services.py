"""The table of CLOUDPROVIDER.md §2, row by row: what a Service has, and what is written to it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fipop.cloudprovider.bodies import assigned, cleared, released, taken_over
from fipop.cloudprovider.services import State, classify, order_addresses, parse_service
from fipop.ipam.addresses import Family, FamilyPolicy, format_address, parse_address

V4, V6 = Family.IPV4, Family.IPV6
A, LABEL, F = "kube-vip.io/loadbalancerIPs", "implementation", "service.kubernetes.io/load-balancer-cleanup"
INTERFACE = "kube-vip.io/serviceInterface"


def build(
    a: str | None = None,
    l: str | None = None,  # noqa: E741 - as the table calls it
    *,
    marked: bool = False,
    finalized: bool = False,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "namespace": "shop",
        "name": "web",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": {**(annotations or {}), **({A: a} if a is not None else {})},
        "labels": {**(labels or {}), **({LABEL: "kube-vip"} if marked else {})},
        "finalizers": [F] if finalized else [],
    }
    body = {"type": "LoadBalancer", "ports": [{"port": 80}], **({"loadBalancerIP": l} if l else {}), **spec}
    return {"metadata": metadata | (meta or {}), "spec": body, "status": {"loadBalancer": {}}}


def state_of(obj: dict[str, Any], *, was_chosen: bool = False, class_name: str | None = None) -> State:
    return classify(parse_service(obj), class_name=class_name, was_chosen=was_chosen)


BOTH = "10.0.0.1,2001:db8::1"


@pytest.mark.parametrize(
    ("obj", "was_chosen", "state"),
    [
        (build(), False, State.NEW),
        (build(a=" "), False, State.NEW),
        (build(l="10.0.0.1"), False, State.LEGACY),
        (build(a="10.0.0.1"), False, State.ANNOTATED),
        (build(a="10.0.0.1", marked=True, finalized=True), False, State.ANNOTATED),
        (build(a="lb.example.com"), False, State.ANNOTATED),
        (build(a="10.0.0.1", l="10.0.0.1"), False, State.STATIC),
        (build(a="10.0.0.1", l="10.0.0.2", marked=True), False, State.STATIC),
        (build(a=BOTH, l="10.0.0.1", marked=True), False, State.CHOSEN),
        (build(a=BOTH, l="10.0.0.1", marked=True), True, State.CHOSEN),
        (build(a=BOTH, l="10.0.0.9", marked=True), True, State.MOVING),
        (build(l="10.0.0.1", marked=True), True, State.STRIPPED),
        (build(a=BOTH, marked=True), True, State.STRIPPED),
        (build(a=BOTH, l="nonsense", marked=True), True, State.STRIPPED),
        (build(a=BOTH, l="10.0.0.1", marked=True, type="ClusterIP"), True, State.LEFT),
        (build(a=BOTH, l="10.0.0.1", type="ClusterIP"), False, State.FOREIGN),
        (build(a=BOTH, l="10.0.0.1", finalized=True, type="ClusterIP"), False, State.LEFT_STATIC),
        (build(finalized=True, type="ClusterIP"), False, State.FOREIGN),
        (build(a=BOTH, l="10.0.0.1", marked=True, finalized=True, type="ClusterIP"), False, State.LEFT),
        (
            build(a=BOTH, marked=True, finalized=True, type="ClusterIP", meta={"deletionTimestamp": "now"}),
            True,
            State.DELETING,
        ),
        (build(a=BOTH, l="10.0.0.1", meta={"deletionTimestamp": "now"}), True, State.DELETING),
        (build(loadBalancerClass="other/class"), False, State.FOREIGN),
    ],
)
def test_what_a_service_has_tells_what_is_to_be_done(
    obj: dict[str, Any], was_chosen: bool, state: State
) -> None:
    assert state_of(obj, was_chosen=was_chosen) is state


def test_with_a_class_only_services_of_that_class_are_served() -> None:
    assert state_of(build(loadBalancerClass="kube-vip.io/kube-vip-class")) is State.FOREIGN
    ours = build(loadBalancerClass="kube-vip.io/kube-vip-class")
    assert state_of(ours, class_name="kube-vip.io/kube-vip-class") is State.NEW
    assert state_of(build(), class_name="kube-vip.io/kube-vip-class") is State.FOREIGN


def test_a_new_service_gets_all_in_one_write() -> None:
    before = build(labels={"app": "web"})
    kept = copy.deepcopy(before)
    made = assigned(before, [parse_address("10.0.0.1"), parse_address("2001:db8::1")], interface="eth1")
    assert before == kept, "what was read is not changed"
    assert made["metadata"]["annotations"] == {A: BOTH, INTERFACE: "eth1"}
    assert made["metadata"]["labels"] == {"app": "web", LABEL: "kube-vip"}
    assert made["metadata"]["finalizers"] == [F]
    assert made["metadata"]["resourceVersion"] == "7"
    assert made["spec"]["loadBalancerIP"] == "10.0.0.1"
    assert state_of(made) is State.CHOSEN


def test_an_interface_that_the_user_set_stays() -> None:
    made = assigned(build(annotations={INTERFACE: "mine"}), [parse_address("10.0.0.1")], interface="eth1")
    assert made["metadata"]["annotations"][INTERFACE] == "mine"
    bare = assigned(build(), [parse_address("10.0.0.1")], interface=None)
    assert INTERFACE not in bare["metadata"]["annotations"]


def test_a_legacy_service_gets_a_and_f_loses_its_old_label_and_is_not_marked() -> None:
    before = build(l="10.0.0.1", labels={"ipam-address": "10.0.0.1", "app": "web"})
    made = taken_over(before, State.LEGACY)
    assert made["metadata"]["annotations"] == {A: "10.0.0.1"}
    assert made["metadata"]["labels"] == {"app": "web"}
    assert made["metadata"]["finalizers"] == [F]
    assert state_of(made) is State.STATIC


def test_an_annotated_service_gets_f_and_i_and_nothing_else() -> None:
    before = build(a="lb.example.com, 10.0.0.1")
    made = taken_over(before, State.ANNOTATED)
    assert made["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert (made["metadata"]["labels"], made["metadata"]["finalizers"]) == ({LABEL: "kube-vip"}, [F])
    assert "loadBalancerIP" not in made["spec"]
    assert taken_over(made, State.ANNOTATED) == made, "once"


def test_a_static_service_gets_f_only() -> None:
    before = build(a="10.0.0.1", l="10.0.0.1")
    made = taken_over(before, State.STATIC)
    assert made == {**before, "metadata": {**before["metadata"], "finalizers": [F]}}


def test_one_that_is_no_load_balancer_any_more_loses_all_of_ours() -> None:
    before = build(
        a=BOTH,
        l="10.0.0.1",
        marked=True,
        finalized=True,
        annotations={INTERFACE: "eth1", "note": "x"},
        labels={"app": "web"},
        type="ClusterIP",
    )
    made = cleared(before)
    assert (made["metadata"]["annotations"], made["metadata"]["labels"]) == ({"note": "x"}, {"app": "web"})
    assert made["metadata"]["finalizers"] == []
    assert "loadBalancerIP" not in made["spec"]


def test_one_that_is_being_deleted_loses_the_finalizer_and_keeps_others() -> None:
    before = build(a=BOTH, l="10.0.0.1", finalized=True)
    before["metadata"]["finalizers"].append("example.com/mine")
    assert released(before)["metadata"]["finalizers"] == ["example.com/mine"]
    assert released(before)["metadata"]["annotations"] == {A: BOTH}


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ((), BOTH),
        ((V4,), BOTH),
        ((V4, V6), BOTH),
        ((V6,), "2001:db8::1,10.0.0.1"),
        ((V6, V4), "2001:db8::1,10.0.0.1"),
    ],
)
def test_ipv6_comes_first_exactly_when_it_is_the_first_family(
    families: tuple[Family, ...], expected: str
) -> None:
    addresses = [parse_address("2001:db8::1"), parse_address("10.0.0.1")]
    assert ",".join(map(format_address, order_addresses(addresses, families))) == expected


def test_everything_that_it_carries_counts_by_content_and_what_is_no_address_does_not() -> None:
    obj = build(a="10.0.0.1, lb.example.com,0.0.0.0", l="10.0.0.2")
    obj["status"] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.3"}, {"hostname": "x"}, "nonsense"]}}
    carried = parse_service(obj).carried
    assert sorted(map(format_address, carried)) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_what_people_write_is_read_as_far_as_it_can_be() -> None:
    read = parse_service(
        build(
            ports=[{"port": 53, "protocol": "UDP"}, {"port": 53}, {"port": "http"}, None],
            ipFamilies=["IPv6", "IPv5", "IPv6"],
            ipFamilyPolicy="PreferDualStack",
            externalTrafficPolicy="Local",
        )
    )
    assert read.ports == {(53, "UDP"), (53, "TCP")}
    assert (read.families, read.policy, read.is_local) == ((V6,), FamilyPolicy.PREFER_DUAL_STACK, True)
    nothing = parse_service({"metadata": None, "spec": "x", "status": []})
    assert (nothing.is_load_balancer, nothing.policy) == (False, FamilyPolicy.SINGLE_STACK)
