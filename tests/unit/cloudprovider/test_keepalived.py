"""What becomes of keepalived's ConfigMap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fipop.cloudprovider.keepalived import (
    Held,
    KeepalivedOptions,
    Method,
    Plan,
    is_done,
    make_plan,
    parse_network,
    read_held,
    render,
)
from fipop.cloudprovider.service import Service, parse_service
from fipop.ipam.addresses import format_address, parse_address

Json = dict[str, Any]

PLAN = "k8s.co/cloud-provider-config"
TAKEN_OVER: Json = {
    "metadata": {
        "name": "vip-configmap",
        "namespace": "kube-system",
        "resourceVersion": "5",
        "annotations": {
            PLAN: json.dumps(
                {
                    "services": [
                        {"uid": "u-web", "ip": "10.0.0.1", "serviceNamespace": "shop", "serviceName": "web"},
                        {
                            "uid": "u-dns",
                            "ip": "10.0.0.2",
                            "serviceNamespace": "shop",
                            "serviceName": "dns",
                            "forwardMethod": "DR",
                        },
                    ]
                }
            )
        },
    },
    "data": {"10.0.0.1": "shop/web", "10.0.0.2": "shop/dns:DR", "10.0.0.3": "mine/own", "note": "hello"},
}


def service(name: str, *, l: str = "", method: str = "", created: str = "2026-01-01T00:00:00Z") -> Service:  # noqa: E741
    return parse_service(
        {
            "metadata": {
                "namespace": "shop",
                "name": name,
                "uid": f"u-{name}",
                "resourceVersion": "1",
                "creationTimestamp": created,
                "annotations": {"k8s.co/keepalived-forward-method": method} if method else {},
            },
            "spec": {"type": "LoadBalancer", "loadBalancerIP": l},
        }
    )


def planned(
    *services: Service,
    config_map: Json | None = None,
    gone: frozenset[str] = frozenset(),
    cidr: str = "10.0.0.0/29",
    default: Method = Method.NAT,
) -> Plan:
    network = parse_network(cidr) if cidr else None
    options = KeepalivedOptions(network=network, default_method=default)
    return make_plan(config_map or {"metadata": {}}, services, gone=gone, options=options)


def given(made: Plan) -> dict[str, str]:
    return {each.name: format_address(each.address) for each in made.held}


def test_what_keepalived_cloud_provider_left_is_taken_over_as_it_is() -> None:
    made = planned(service("web"), service("dns", method="DR"), config_map=TAKEN_OVER)
    assert is_done(TAKEN_OVER, made)
    assert made.refusals == []


def test_the_lowest_address_that_nobody_uses_not_even_a_foreign_key() -> None:
    made = planned(
        service("web"),
        service("dns"),
        service("b", created="2026-01-02T00:00:00Z"),
        service("a"),
        config_map=TAKEN_OVER,
    )
    assert given(made) == {"web": "10.0.0.1", "dns": "10.0.0.2", "a": "10.0.0.4", "b": "10.0.0.5"}
    assert made.data["10.0.0.3"] == "mine/own"
    assert made.data["note"] == "hello"
    body = render(TAKEN_OVER, made)
    assert read_held(body) == made.held
    assert body["metadata"]["resourceVersion"] == "5"


def test_the_places_of_the_gone_are_free_and_foreign_keys_stay() -> None:
    made = planned(service("new"), config_map=TAKEN_OVER, gone=frozenset({"u-web", "u-dns"}))
    assert given(made) == {"new": "10.0.0.1"}
    assert made.data == {"10.0.0.1": "shop/new", "10.0.0.3": "mine/own", "note": "hello"}


def test_a_wish_is_granted_verbatim_changed_kept_or_refused() -> None:
    first = planned(service("web", l="192.0.2.9"))
    assert given(first) == {"web": "192.0.2.9"}
    config_map = render({"metadata": {}}, first)
    assert given(planned(service("web"), config_map=config_map)) == {"web": "192.0.2.9"}, "removed: it keeps"
    moved = planned(service("web", l="10.0.0.7"), config_map=config_map)
    assert (given(moved), dict(moved.data)) == ({"web": "10.0.0.7"}, {"10.0.0.7": "shop/web"})
    clashing = planned(service("web"), service("dns", l="192.0.2.9"), config_map=config_map)
    assert given(clashing) == {"web": "192.0.2.9"}
    ((_, refusal),) = clashing.refusals
    assert refusal.reason == "AddressInUse"
    assert all(named in refusal.message for named in ("192.0.2.9", "shop/web"))
    foreign = planned(service("new", l="10.0.0.3"), config_map=TAKEN_OVER)
    assert [each.reason for _, each in foreign.refusals] == ["AddressInUse"]
    bad = planned(service("web", l="nonsense"), config_map=config_map)
    assert (given(bad), [each.reason for _, each in bad.refusals]) == (
        {"web": "192.0.2.9"},
        ["InvalidAddress"],
    )


def test_the_method_from_the_first_time_on_and_a_change_keeps_the_address() -> None:
    made = planned(service("web", method="DR"), service("dns"), default=Method.NAT)
    assert dict(made.data) == {"10.0.0.1": "shop/dns", "10.0.0.2": "shop/web:DR"}
    config_map = render({"metadata": {}}, made)
    again = planned(service("web", method="NAT"), service("dns", method="PROXY"), config_map=config_map)
    assert dict(again.data) == {"10.0.0.1": "shop/dns:PROXY", "10.0.0.2": "shop/web"}
    bad = planned(service("web", method="TUNNEL"), config_map=config_map)
    assert dict(bad.data)["10.0.0.2"] == "shop/web:DR"
    assert [each.reason for _, each in bad.refusals] == ["InvalidForwardMethod"]
    assert dict(planned(service("web"), default=Method.DR).data) == {"10.0.0.1": "shop/web:DR"}


@pytest.mark.parametrize(
    ("cidr", "expected"),
    [
        ("10.210.38.100/26", "10.210.38.65"),
        ("10.0.0.9/32", "10.0.0.9"),
        ("10.0.0.0/31", "10.0.0.0"),
        ("10.0.0.0/8", "10.0.0.1"),
        ("2001:db8::/32", "2001:db8::1"),
    ],
)
def test_networks_of_every_size(cidr: str, expected: str) -> None:
    assert given(planned(service("web"), cidr=cidr)) == {"web": expected}


def test_a_full_network_and_none() -> None:
    full = planned(service("a"), service("b"), cidr="10.0.0.9/32")
    assert (given(full), [each.reason for _, each in full.refusals]) == ({"a": "10.0.0.9"}, ["PoolFull"])
    assert [each.reason for _, each in planned(service("a"), cidr="").refusals] == ["NoPool"]


@pytest.mark.parametrize("text", ["no json", "[]", '{"services": 7}', '{"services": [{"ip": "x"}, 8]}'])
def test_an_annotation_that_cannot_be_read_is_not_taken_for_an_empty_one(text: str) -> None:
    assert read_held({"metadata": {"annotations": {PLAN: ""}}}) == ()
    with pytest.raises(ValueError):  # noqa: PT011 - its text is of the JSON reader
        read_held({"metadata": {"annotations": {PLAN: text}}})


def test_what_is_held_is_read_as_it_was_written() -> None:
    held = Held(uid="u", address=parse_address("10.0.0.1"), namespace="a", name="b", method=Method.DR)
    body = render({"metadata": {}}, Plan(options=KeepalivedOptions(), by_uid={"u": held}, foreign={}))
    assert read_held(body) == (held,)
