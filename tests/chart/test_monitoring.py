"""How Prometheus finds the metrics."""

import pytest

from tests.chart.rendering import Chart


@pytest.mark.parametrize(
    ("kind", "known", "section", "switch"),
    [
        ("ServiceMonitor", "monitoring.coreos.com/v1/ServiceMonitor", "serviceMonitor", "enabled"),
        ("PrometheusRule", "monitoring.coreos.com/v1/PrometheusRule", "prometheusRule", "enabled"),
        ("NavLink", "ui.cattle.io/v1/NavLink", "web", "navLink"),
    ],
)
def test_an_object_of_another_operator_is_there_when_asked_for_or_when_the_cluster_knows_its_kind(
    chart: Chart, kind: str, known: str, section: str, switch: str
) -> None:
    for wanted, versions, expected in (
        ("auto", (), False),
        ("auto", (known,), True),
        (True, (), True),
        (False, (known,), False),
    ):
        values = {"web": {"enabled": True}, section: {"enabled": True, switch: wanted}}
        assert bool(chart.render(values, known=versions).of_kind(kind)) is expected


def test_the_pod_and_its_service_have_the_ports_of_the_values(chart: Chart) -> None:
    rendered = chart.render({"service": {"port": 80, "targetPort": 9090}})
    assert rendered.only("Service")["spec"]["ports"] == [{"name": "metrics", "port": 80, "targetPort": 9090}]
    assert rendered.container["ports"][0]["containerPort"] == 9090


def test_the_pod_and_its_service_keep_their_port_when_only_the_first_settings_change(chart: Chart) -> None:
    """The operator listens where kube-fip-config says, which an upgrade leaves alone."""
    rendered = chart.render({"settings": {"metricsPort": 9090}})
    (port,) = rendered.only("Service")["spec"]["ports"]
    assert port["targetPort"] == 8080
    assert rendered.pod["spec"]["containers"][0]["ports"][0]["containerPort"] == 8080
