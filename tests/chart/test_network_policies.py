"""Connections that the NetworkPolicies let in and out. They are off by default."""

from typing import Any

import pytest

from tests.chart.rendering import Chart, Object

PEER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "cattle-monitoring-system"}}}
API_SERVER = {"to": [{"ipBlock": {"cidr": "10.0.0.11/32"}}], "ports": [{"port": 6443, "protocol": "TCP"}]}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
BOTH = pytest.mark.parametrize(
    ("name", "port", "source", "target"),
    [("fipop", "metrics", "metricsFrom", "egress"), ("fipop-web", "http", "webFrom", "webEgress")],
)


def policy(chart: Chart, name: str, **values: Any) -> Object:
    """The policy's rules, for the pods of the Deployment of that name."""
    rendered = chart.render({"web": {"enabled": True}, "networkPolicy": {"enabled": True, **values}})
    pod = rendered.only("Deployment", name)["spec"]["template"]
    spec: Object = rendered.only("NetworkPolicy", name)["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert {each["port"] for rule in spec["ingress"] for each in rule["ports"]} <= {
        each["name"] for each in pod["spec"]["containers"][0]["ports"]
    }
    return spec


def test_they_are_off_by_default(chart: Chart) -> None:
    assert chart.render({"web": {"enabled": True}}).of_kind("NetworkPolicy") == []


@BOTH
def test_one_port_is_open_for_the_peers_that_are_named(
    chart: Chart, name: str, port: str, source: str, target: str
) -> None:
    assert policy(chart, name)["ingress"] == [{"ports": [{"port": port}]}], "for all pods"
    assert policy(chart, name, **{source: [PEER]})["ingress"] == [{"ports": [{"port": port}], "from": [PEER]}]


@BOTH
def test_what_goes_out_is_free_until_rules_are_given_and_then_is_those_and_dns(
    chart: Chart, name: str, port: str, source: str, target: str
) -> None:
    assert policy(chart, name)["policyTypes"] == ["Ingress"]
    assert "egress" not in policy(chart, name)
    found = policy(chart, name, **{target: [API_SERVER]})
    assert found["policyTypes"] == ["Ingress", "Egress"]
    assert found["egress"] == [DNS, API_SERVER]
