"""The table of CLOUDPROVIDER.md §2, row by row: what a Service has, and what is to be done about it."""

from __future__ import annotations

from typing import Any

import pytest

from fipop.cloudprovider.services import State, parse_service
from fipop.ipam.addresses import FamilyPolicy, format_address
from tests.unit.cloudprovider.services import BOTH, V6, build, state_of

X = "10.0.0.1"
DELETED = {"deletionTimestamp": "now"}


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
        (build(a=BOTH, l="10.0.0.1", marked=True, ipFamilyPolicy="PreferDualStack"), False, State.CHOSEN),
        (build(a=BOTH, l="10.0.0.1", marked=True), False, State.STATIC),
        (build(a=BOTH, l="10.0.0.1", marked=True), True, State.CHOSEN),
        (build(a=BOTH, l="10.0.0.9", marked=True), True, State.MOVING),
        (build(l="10.0.0.1", marked=True), True, State.STRIPPED),
        (build(a=BOTH, marked=True), True, State.STRIPPED),
        (build(a=BOTH, l="nonsense", marked=True), True, State.STRIPPED),
        (build(a=BOTH, l="10.0.0.1", marked=True, type="ClusterIP"), True, State.LEFT),
        (build(a=BOTH, l="10.0.0.1", type="ClusterIP"), False, State.FOREIGN),
        (build(a=BOTH, l="10.0.0.1", finalized=True, type="ClusterIP"), False, State.LEFT_STATIC),
        (build(finalized=True, type="ClusterIP"), False, State.FOREIGN),
        (build(a=X, l=X, marked=True, finalized=True, type="ClusterIP"), False, State.LEFT),
        (build(a=BOTH, l=X, marked=True, finalized=True, type="ClusterIP"), False, State.LEFT_STATIC),
        (
            build(a=BOTH, marked=True, finalized=True, type="ClusterIP", meta={"deletionTimestamp": "now"}),
            True,
            State.DELETING,
        ),
        (build(a=BOTH, l="10.0.0.1", meta={"deletionTimestamp": "now"}), True, State.DELETING),
        (build(loadBalancerClass="other/class"), False, State.FOREIGN),
        (build(loadBalancerClass="other/class", meta=DELETED), True, State.FOREIGN),
        (build(loadBalancerClass="other/class", finalized=True, meta=DELETED), False, State.DELETING),
        (build(a=X, l=X, marked=True, finalized=True, loadBalancerClass="x/y"), True, State.FOREIGN),
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


@pytest.mark.parametrize(
    ("obj", "was_chosen", "state"),
    [
        (build(finalized=True, meta=DELETED), False, State.FOREIGN),
        (build(a=X, finalized=True, meta=DELETED), False, State.FOREIGN),
        (build(a=X, l=X, marked=True, finalized=True, meta=DELETED), False, State.DELETING),
        (build(a=X, l=X, finalized=True, meta=DELETED), True, State.DELETING),
    ],
)
def test_where_a_class_is_served_the_finalizer_of_a_service_without_one_is_left_unless_the_service_was_ours(
    obj: dict[str, Any], was_chosen: bool, state: State
) -> None:
    """Another cloud provider has the same finalizer, and takes its own load balancer down before it goes."""
    assert state_of(obj, was_chosen=was_chosen, class_name="kube-vip.io/kube-vip-class") is state


def test_everything_that_it_carries_counts_by_content_and_what_is_no_address_does_not() -> None:
    obj = build(a="10.0.0.1, lb.example.com,0.0.0.0", l="10.0.0.2")
    obj["status"] = {"loadBalancer": {"ingress": [{"ip": "10.0.0.3"}, {"hostname": "x"}, "nonsense"]}}
    carried = parse_service(obj).carried
    assert sorted(map(format_address, carried)) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_at_most_sixteen_addresses_of_an_annotation_and_of_a_status_count() -> None:
    many = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(5000)]
    obj = build(a=",".join(many), l="10.7.0.1")
    obj["status"] = {"loadBalancer": {"ingress": [{"ip": each} for each in reversed(many)]}}
    read = parse_service(obj)
    counted = {*many[:16], *many[-16:], "10.7.0.1"}
    assert set(map(format_address, read.carried)) == counted
    assert read.carried is read.carried, "it is asked for each entry of the ledger"


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


@pytest.mark.parametrize(("count", "kept"), [(256, 256), (257, 0), (20_000, 0)])
def test_of_more_ports_than_256_none_counts_so_that_nobody_shares(count: int, kept: int) -> None:
    ports = [{"port": 1 + number, "protocol": "UDP"} for number in range(count)]
    assert len(parse_service(build(ports=ports)).ports) == kept
