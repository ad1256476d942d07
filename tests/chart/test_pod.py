"""The operator's pod: restricted, probed, bounded, and started with the arguments that the values ask for."""

from typing import Any

import pytest

from fipop.cli.status import status
from tests.chart.rendering import Chart, Object, Rendered


def test_the_operator_has_the_namespace_of_the_release(chart: Chart) -> None:
    assert "--namespace=elsewhere" in chart.render(namespace="elsewhere").container["args"]


def test_commands_that_are_run_in_the_pod_read_its_own_namespace(chart: Chart) -> None:
    environment = {
        each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in chart.render().container["env"]
    }
    assert environment["FIPOP_NAMESPACE"] == "metadata.namespace"
    assert "FIPOP_NAMESPACE" in {each.envvar for each in status.params}


def test_more_variables_reach_the_operator_and_no_other_program(chart: Chart) -> None:
    more = [
        {"name": "HTTPS_PROXY", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}},
        {"name": "NO_PROXY", "value": ".example"},
    ]
    rendered = chart.render({"extraEnv": more, "web": {"enabled": True}}, with_tests=True)
    operator = rendered.only("Deployment", "fipop")["spec"]["template"]["spec"]
    assert operator["containers"][0]["env"][-2:] == more
    others = [
        rendered.only("Deployment", "fipop-web")["spec"]["template"]["spec"],
        rendered.only("Pod")["spec"],
    ]
    assert "PROXY" not in str(others)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({"repository": "mirror/fipop"}, "mirror/fipop:0.1.0"),
        ({"repository": "fipop", "tag": "v9"}, "fipop:v9"),
        ({"repository": "fipop", "tag": "v9", "digest": "sha256:" + "0" * 64}, "fipop@sha256:" + "0" * 64),
    ],
    ids=["the chart's version", "a tag", "a digest wins over the tag"],
)
def test_the_image_is_what_the_values_name(chart: Chart, image: dict[str, str], expected: str) -> None:
    assert chart.render({"image": image}).container["image"] == expected


def test_labels_and_annotations_reach_the_pod(chart: Chart) -> None:
    pod = chart.render({"podLabels": {"team": "net"}, "podAnnotations": {"note": "x"}}).pod
    assert pod["metadata"]["labels"]["team"] == "net"
    assert pod["metadata"]["annotations"] == {"note": "x"}


def pods_of(rendered: Rendered) -> list[Object]:
    """The pods of the operator, of the web UI and of `helm test`."""
    deployed = [each["spec"]["template"]["spec"] for each in rendered.of_kind("Deployment")]
    tests: list[Object] = [each["spec"] for each in rendered.of_kind("Pod")]
    assert (len(deployed), len(tests)) == (2, 1)
    return deployed + tests


def test_every_pod_goes_where_the_values_say(chart: Chart) -> None:
    values: dict[str, Any] = {
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "imagePullSecrets": [{"name": "pull"}],
    }
    for pod in pods_of(chart.render({**values, "web": {"enabled": True}}, with_tests=True)):
        assert {key: pod[key] for key in values} == values


def test_every_pod_has_users_of_its_own_where_the_values_say(chart: Chart) -> None:
    on, web = {"hostUsers": False}, {"web": {"enabled": True}}
    assert [pod["hostUsers"] for pod in pods_of(chart.render({**on, **web}, with_tests=True))] == [False] * 3
    # A cluster that knows nothing of them is not told of them.
    assert not any("hostUsers" in pod for pod in pods_of(chart.render(web, with_tests=True)))
