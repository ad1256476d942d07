"""Services of a guest, in short words."""

from __future__ import annotations

from typing import Any

from fipop.cloudprovider.services import State, classify, parse_service
from fipop.ipam.addresses import Family

V4, V6 = Family.IPV4, Family.IPV6


A, LABEL, F = "kube-vip.io/loadbalancerIPs", "implementation", "service.kubernetes.io/load-balancer-cleanup"


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
