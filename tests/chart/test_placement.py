"""Replicas stand on different nodes and in different zones, and a drain takes one of them at a time."""

from typing import Any

import pytest

from tests.chart.rendering import Chart, Object

TWO: dict[str, Any] = {"replicas": 2, "web": {"enabled": True, "replicas": 2}}
BOTH = pytest.mark.parametrize("name", ["fipop", "fipop-web"])


def deployment(chart: Chart, values: dict[str, Any], name: str) -> tuple[Object, Object]:
    """A Deployment's pod, and the labels by which the Deployment knows it."""
    found = chart.render(values).only("Deployment", name)["spec"]
    return found["template"]["spec"], found["selector"]["matchLabels"]


@BOTH
def test_the_affinity_of_the_values_replaces_the_one_of_the_chart(chart: Chart, name: str) -> None:
    own = {"nodeAffinity": {}}
    assert deployment(chart, {**TWO, "affinity": own}, name)[0]["affinity"] == own


@BOTH
def test_spreads_of_the_values_replace_the_charts_and_count_the_replicas_alone(
    chart: Chart, name: str
) -> None:
    own = {"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    other = {**own, "labelSelector": {"matchLabels": {"team": "net"}}}
    pod, labels = deployment(chart, {**TWO, "topologySpreadConstraints": [own, other]}, name)
    assert pod["topologySpreadConstraints"] == [{**own, "labelSelector": {"matchLabels": labels}}, other]


@BOTH
def test_a_drain_takes_one_replica_at_a_time_and_never_waits_for_one_that_is_not_ready(
    chart: Chart, name: str
) -> None:
    _, labels = deployment(chart, TWO, name)
    assert chart.render(TWO).only("PodDisruptionBudget", name)["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": labels},
    }


def test_a_single_replica_needs_no_budget(chart: Chart) -> None:
    one = {"replicas": 1, "web": {"enabled": True, "replicas": 1}}
    assert chart.render(one).of_kind("PodDisruptionBudget") == []
    assert len(chart.render().of_kind("PodDisruptionBudget")) == 1, "the page is off by default"
