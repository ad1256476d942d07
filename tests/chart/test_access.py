"""What the operator may do: nothing by wildcard, and nothing that is not listed here."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.rendering import Chart, Object, Rendered

EVERYTHING_ON: dict[str, Any] = {"serviceMonitor": {"enabled": True}}
ALONE: dict[str, Any] = {"leaderElection": False, "replicas": 1, "strategy": "Recreate"}

Grant = tuple[str, str, str, str]
"""Namespace ("" for the whole cluster), API group, resource or resource/name, verb."""


def grants_of(rendered: Rendered) -> Iterator[Grant]:
    for role in [*rendered.of_kind("ClusterRole"), *rendered.of_kind("Role")]:
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        what = f"{resource}/{name}" if name else resource
                        for verb in rule["verbs"]:
                            yield role["metadata"].get("namespace", ""), group, what, verb


def table(text: str) -> set[Grant]:
    """Read lines of `namespace|- group|- resource verb,verb…`."""
    found = set()
    for line in text.strip().splitlines():
        namespace, group, resource, verbs = line.split()
        for verb in verbs.split(","):
            found.add((namespace.strip("-"), "" if group == "-" else group, resource, verb))
    return found


BASE = table("""
    -                  kubefip.k8s.binbash.org      floatingipranges         get,list,watch
    -                  kubefip.k8s.binbash.org      floatingipranges/status  patch
    -                  kubefip.k8s.binbash.org      floatingips              get,list,watch,create,patch
    -                  kubefip.k8s.binbash.org      floatingips/status       patch
    -                  kubefip.k8s.binbash.org      floatingipreservations   get,list,watch,create,update,delete
    -                  provisioning.cattle.io       clusters                 list,watch
    -                  management.cattle.io         clusters                 list,watch
    -                  -                            namespaces               list,watch
    -                  rke-machine-config.cattle.io harvesterconfigs         get
    -                  -                            events                   get,create,patch
    -                  apps                         deployments/kube-fip-operator get
    -       apiextensions.k8s.io customresourcedefinitions/floatingipranges.kubefip.k8s.binbash.org       get
    -       apiextensions.k8s.io customresourcedefinitions/floatingips.kubefip.k8s.binbash.org            get
    -       apiextensions.k8s.io customresourcedefinitions/floatingipreservations.kubefip.k8s.binbash.org get
    kube-fip           -                            configmaps/kube-fip-config get,list,watch
    kube-fip           -                            configmaps               create
    fleet-default      -                            secrets                  get
    cattle-global-data -                            secrets                  get
""")
CRD_UPDATE = table("""
    -       apiextensions.k8s.io customresourcedefinitions/floatingipranges.kubefip.k8s.binbash.org       patch
    -       apiextensions.k8s.io customresourcedefinitions/floatingips.kubefip.k8s.binbash.org            patch
    -       apiextensions.k8s.io customresourcedefinitions/floatingipreservations.kubefip.k8s.binbash.org patch
""")
LEASE = table("""
    kube-fip           coordination.k8s.io          leases/fipop-operator    get,update
    kube-fip           coordination.k8s.io          leases                   create
""")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, BASE | CRD_UPDATE | LEASE),
        ({"crds": {"update": False}}, BASE | LEASE),
        (ALONE, BASE | CRD_UPDATE),
    ],
    ids=["by default", "without CRD updates", "without leader election"],
)
def test_the_operator_may_do_exactly_this(chart: Chart, values: dict[str, Any], expected: set[Grant]) -> None:
    assert set(grants_of(chart.render(values))) == expected


def test_nothing_is_granted_by_wildcard(chart: Chart) -> None:
    for _, group, resource, verb in grants_of(chart.render(EVERYTHING_ON)):
        assert "*" not in group + resource + verb


def test_secrets_are_got_only_in_the_namespaces_of_the_value(chart: Chart) -> None:
    rendered = chart.render({"secretNamespaces": ["team-a", "team-b"]})
    secrets = {grant for grant in grants_of(rendered) if grant[2].startswith("secrets")}
    assert secrets == {("team-a", "", "secrets", "get"), ("team-b", "", "secrets", "get")}


@pytest.mark.parametrize("release", ["fipop", "addresses"])
def test_every_role_is_bound_to_the_operators_account_and_to_no_one_else(chart: Chart, release: str) -> None:
    rendered = chart.render(release=release, namespace="kube-fip")
    account = {"kind": "ServiceAccount", "name": release, "namespace": "kube-fip"}
    assert rendered.only("ServiceAccount")["metadata"]["name"] == release
    assert rendered.pod["spec"]["serviceAccountName"] == release
    for role_kind in ("Role", "ClusterRole"):
        roles = {_place(role) for role in rendered.of_kind(role_kind)}
        bindings = rendered.of_kind(f"{role_kind}Binding")
        bound = {(_place(binding)[0], binding["roleRef"]["name"]) for binding in bindings}
        assert bound == roles
        for binding in bindings:
            assert binding["roleRef"]["kind"] == role_kind
            assert binding["subjects"] == [account]


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
