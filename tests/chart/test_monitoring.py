"""How Prometheus finds the metrics."""

from typing import Any

import pytest

from tests.chart.rendering import Chart

KNOWN = ("monitoring.coreos.com/v1/ServiceMonitor",)


@pytest.mark.parametrize(
    ("enabled", "known", "expected"),
    [
        ("auto", (), False),
        ("auto", KNOWN, True),
        (True, (), True),
        (False, KNOWN, False),
    ],
)
def test_the_service_monitor_is_there_when_asked_for_or_when_the_cluster_knows_its_kind(
    chart: Chart, enabled: Any, known: tuple[str, ...], expected: bool
) -> None:
    rendered = chart.render({"serviceMonitor": {"enabled": enabled}}, known=known)
    assert bool(rendered.of_kind("ServiceMonitor")) is expected


def test_monitor_service_and_pod_find_each_other(chart: Chart) -> None:
    values = {"service": {"port": 80, "targetPort": 9090}, "serviceMonitor": {"enabled": True}}
    rendered = chart.render(values)
    service, monitor = rendered.only("Service"), rendered.only("ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"].items() <= rendered.pod["metadata"]["labels"].items()
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 80, "targetPort": 9090}]
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    assert rendered.pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 9090
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"] == "kube-fip"


def test_the_pod_and_its_service_keep_their_port_when_only_the_first_settings_change(chart: Chart) -> None:
    """The operator listens where kube-fip-config says, which an upgrade leaves alone."""
    rendered = chart.render({"settings": {"metricsPort": 9090}})
    (port,) = rendered.only("Service")["spec"]["ports"]
    assert port["targetPort"] == 8080
    assert rendered.pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 8080
