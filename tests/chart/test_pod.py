"""The operator's pod: restricted, probed, bounded, and started with the arguments that the values ask for."""

from typing import Any

import pytest

from fipop.cli.status import status
from tests.chart.rendering import Chart, Object, Rendered


def test_the_pod_is_restricted(chart: Chart) -> None:
    rendered = chart.render()
    pod = rendered.pod["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert rendered.container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_only_the_temporary_folder_can_be_written_and_is_bounded(chart: Chart) -> None:
    rendered = chart.render()
    volumes = {volume["name"]: volume for volume in rendered.pod["spec"]["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in rendered.container["volumeMounts"]}
    writable = [path for path, mount in mounts.items() if not mount.get("readOnly")]
    assert writable == ["/tmp"]
    place = volumes[mounts["/tmp"]["name"]]["emptyDir"]
    assert place["sizeLimit"]
    assert place["medium"] == "Memory", "what helm is lent does not reach a disk"


def test_the_pod_is_probed_on_the_health_port_and_has_limits(chart: Chart) -> None:
    container = chart.render().container
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": 8080, "health": 8081}
    probes = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert probes == {
        "startup": {"path": "/livez", "port": "health"},
        "liveness": {"path": "/livez", "port": "health"},
        "readiness": {"path": "/readyz", "port": "health"},
    }


@pytest.mark.parametrize("deployment", ["fipop", "fipop-web"])
def test_each_container_asks_for_all_resources_and_is_bounded_in_all(chart: Chart, deployment: str) -> None:
    found = chart.render({"web": {"enabled": True}}).only("Deployment", deployment)
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert set(container["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
    assert set(container["resources"]["requests"]) == {"cpu", "memory", "ephemeral-storage"}


def test_two_operators_run_and_a_lease_decides_which_of_them_works(chart: Chart) -> None:
    spec = chart.render().only("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    alone = {"leaderElection": False, "replicas": 1, "strategy": "Recreate"}
    assert chart.render(alone).only("Deployment")["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("values", "present", "absent"),
    [
        ({}, set(), {"--no-leader-election", "--no-crd-update"}),
        (
            {"leaderElection": False, "replicas": 1, "strategy": "Recreate"},
            {"--no-leader-election"},
            set(),
        ),
        ({"crds": {"update": False}}, {"--no-crd-update"}, set()),
        ({"extraArgs": ["--resync-seconds=60"]}, {"--resync-seconds=60"}, set()),
    ],
)
def test_values_become_arguments(
    chart: Chart, values: dict[str, Any], present: set[str], absent: set[str]
) -> None:
    arguments = chart.render(values, namespace="elsewhere").container["args"]
    assert arguments[0] == "operator"
    assert "--namespace=elsewhere" in arguments
    assert present <= set(arguments)
    assert not absent & set(arguments)


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
