"""The table of CLOUDPROVIDER.md §2, row by row: what is written into a Service."""

from __future__ import annotations

import copy

import pytest

from fipop.cloudprovider.bodies import assigned, cleared, released, taken_over
from fipop.cloudprovider.services import State, order_addresses
from fipop.ipam.addresses import Family, format_address, parse_address
from tests.unit.cloudprovider.services import BOTH, LABEL, V4, V6, A, F, build, state_of

INTERFACE = "kube-vip.io/serviceInterface"


def test_a_new_service_gets_all_in_one_write() -> None:
    before = build(labels={"app": "web"}, ipFamilyPolicy="PreferDualStack")
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
