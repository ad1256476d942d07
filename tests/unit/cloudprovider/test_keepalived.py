"""What becomes of keepalived's ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest

from fipop.api.service import Service, parse_service
from fipop.cloudprovider.keepalived import (
    Held,
    KeepalivedOptions,
    Method,
    Plan,
    make_plan,
    parse_network,
    read_held,
    render,
)
from fipop.ipam.addresses import format_address, parse_address

Json = dict[str, Any]

PLAN = "k8s.co/cloud-provider-config"


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


def test_what_is_held_is_read_as_it_was_written() -> None:
    held = Held(uid="u", address=parse_address("10.0.0.1"), namespace="a", name="b", method=Method.DR)
    body = render({"metadata": {}}, Plan(options=KeepalivedOptions(), by_uid={"u": held}, foreign={}))
    assert read_held(body) == (held,)
