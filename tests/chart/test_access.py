"""What the operator, viewers and the page may do; tests/golden/recorded/chart has all rights of the operator."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.rendering import ROOT, Chart, Object, Rendered, parse

EVERYTHING_ON: dict[str, Any] = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "web": {"enabled": True, "replicas": 2, "navLink": True},
    "networkPolicy": {
        "enabled": True,
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "ports": [{"port": 6443}]}],
        "webEgress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "ports": [{"port": 6443}]}],
    },
    "hostUsers": False,
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ],
}
VIEWER = "-viewer"
"""How the roles end that are for people and the page, not for the operator."""
Grant = tuple[str, str, str, str]
"""Namespace ("" for the whole cluster), API group, resource or resource/name, verb."""


def roles_of(rendered: Rendered) -> list[Object]:
    return [*rendered.of_kind("ClusterRole"), *rendered.of_kind("Role")]


def grants_of(roles: list[Object]) -> Iterator[Grant]:
    for role in roles:
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        what = f"{resource}/{name}" if name else resource
                        for verb in rule["verbs"]:
                            yield role["metadata"].get("namespace", ""), group, what, verb


def read_recorded_grants() -> set[Grant]:
    """Return what the operator may do by default, as it is recorded."""
    recorded = parse((ROOT / "tests" / "golden" / "recorded" / "chart" / "defaults.yaml").read_text())
    roles = [each for each in roles_of(recorded) if not each["metadata"]["name"].endswith(VIEWER)]
    return set(grants_of(roles))


def test_in_another_namespace_the_operator_finds_kube_fip_operator_by_its_name(chart: Chart) -> None:
    grants = set(grants_of(roles_of(chart.render(namespace="fip-system"))))
    assert ("", "apps", "deployments/kube-fip-operator", "get") in grants
    assert ("fip-system", "apps", "deployments", "list") in grants


def test_a_viewer_and_the_page_read_no_secret_and_write_nothing(chart: Chart) -> None:
    rendered = chart.render(EVERYTHING_ON)
    page = {"kind": "ServiceAccount", "name": "fipop-web", "namespace": "kube-fip"}
    bound = [
        each["roleRef"]["name"]
        for each in [*rendered.of_kind("ClusterRoleBinding"), *rendered.of_kind("RoleBinding")]
        if page in each["subjects"]
    ]
    assert bound == ["fipop-viewer", "fipop-viewer"]
    viewer = [each for each in roles_of(rendered) if each["metadata"]["name"] == "fipop-viewer"]
    for _, _, resource, verb in grants_of(viewer):
        assert resource != "secrets"
        assert verb in {"get", "list"}


def test_the_page_is_seen_by_those_who_may_use_its_service_in_its_namespace_alone(chart: Chart) -> None:
    """Elsewhere a Service of its name is another's, whose scripts would run on Rancher's origin."""
    rendered = chart.render({"web": {"enabled": True, "port": 8080, "navLink": True}})
    user = rendered.only("Role", "fipop-web-user")
    assert user["metadata"]["namespace"] == "kube-fip"
    (rule,) = user["rules"]
    assert not [each for each in grants_of(rendered.of_kind("ClusterRole")) if each[2].startswith("services")]
    assert rule == {
        "apiGroups": [""],
        "resources": ["services/proxy"],
        "resourceNames": ["http:fipop-web:8080"],
        "verbs": ["get"],
    }
    target = rendered.only("NavLink")["spec"]["toService"]
    assert target == {
        "namespace": "kube-fip",
        "name": "fipop-web",
        "scheme": "http",
        "port": "8080",
        "path": "/",
    }


def test_nothing_is_granted_by_wildcard(chart: Chart) -> None:
    for _, group, resource, verb in grants_of(roles_of(chart.render(EVERYTHING_ON))):
        assert "*" not in group + resource + verb


@pytest.mark.parametrize("release", ["fipop", "addresses"])
def test_every_role_is_bound_to_the_operators_account_and_to_no_one_else(chart: Chart, release: str) -> None:
    rendered = chart.render(release=release, namespace="kube-fip")
    account = {"kind": "ServiceAccount", "name": release, "namespace": "kube-fip"}
    assert rendered.only("ServiceAccount")["metadata"]["name"] == release
    assert rendered.pod["spec"]["serviceAccountName"] == release
    for role_kind in ("Role", "ClusterRole"):
        found = [_place(role) for role in rendered.of_kind(role_kind)]
        roles = {place for place in found if not place[1].endswith(VIEWER)}
        bindings = rendered.of_kind(f"{role_kind}Binding")
        bound = {(_place(binding)[0], binding["roleRef"]["name"]) for binding in bindings}
        assert bound == roles
        for binding in bindings:
            assert binding["roleRef"]["kind"] == role_kind
            assert binding["subjects"] == [account]


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
