"""The chart and the manifest in a real cluster."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from localfleet.assets import ensure
from localfleet.chart import copy_chart
from localfleet.controlplane import ControlPlane
from localfleet.crds import OUR_CRDS, load_crds
from localfleet.errors import ApiError, ToolFailedError
from localfleet.helm import Helm
from localfleet.processes import run_to_end
from localfleet.waiting import eventually
from tests.api.emptying import wipe
from tests.api.test_crd_existing_objects import old_crd, replace_crd
from tests.chart.legal_values import turns
from tests.chart.rendering import ROOT, Chart, parse
from tests.chart.test_access import EVERYTHING_ON
from tests.chart.test_catalog import all_questions, answers, nested
from tests.chart.test_legal_values import with_everything_on
from tests.harness.documentation import DOCS, read_commands

pytestmark = pytest.mark.xdist_group("management")

NAMESPACE = "kube-fip"
BUDGET = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/fipop"
CONFIG_MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    return Helm(program=ensure("helm"), home=tmp_path / "helm")


@pytest.fixture
def chart(tmp_path: Path) -> Chart:
    return Chart(helm=ensure("helm"), folder=copy_chart(tmp_path / "chart"), home=tmp_path / "helm")


async def helm_on(helm: Helm, chart: Chart, plane: ControlPlane, *arguments: str) -> str:
    kubeconfig = ("--kubeconfig", plane.admin_kubeconfig)
    return await helm.run(*arguments, chart.folder, "--namespace", NAMESPACE, *kubeconfig, *_NO_REPLICA)


# There is no kubelet here.
_NO_REPLICA = ("--set", "replicas=0")


async def test_helm_installs_and_upgrades_and_never_touches_the_admins_settings(
    management: ControlPlane, helm: Helm, chart: Chart
) -> None:
    await management.create_namespace(NAMESPACE)
    admins = {"metadata": {"name": "kube-fip-config"}, "data": {"logLevel": "Debug"}}
    before = await management.client.create(CONFIG_MAP, admins)
    notes = await helm_on(helm, chart, management, "install", "fipop")
    assert "kubectl -n kube-fip rollout status deployment/fipop" in notes
    assert "Note:" not in notes
    await helm_on(helm, chart, management, "upgrade", "fipop")
    assert await management.client.get(f"{CONFIG_MAP}/kube-fip-config") == before
    await helm.run(
        "uninstall", "fipop", "--namespace", NAMESPACE, "--kubeconfig", management.admin_kubeconfig
    )


async def test_helm_installs_beside_the_crds_of_kube_fip_operator_as_its_page_says(
    management: ControlPlane, helm: Helm, chart: Chart
) -> None:
    await create_namespaces(management, {NAMESPACE})
    for kind in ("FloatingIPRange", "FloatingIP"):
        crd = old_crd(kind)
        del crd["metadata"]["annotations"]
        await replace_crd(management, crd)
    page = DOCS / "how-to" / "migrate-from-kube-fip-operator.md"
    (command,) = (each for each in read_commands(page) if each.startswith("helm install"))
    flag = "--force-conflicts"
    assert command.split()[-1] == flag
    if (await helm.run("version", "--short")).startswith("v3"):
        await helm_on(helm, chart, management, "install", "fipop")
    else:
        with pytest.raises(ToolFailedError, match=r"failed to install CRD .* conflict occurred"):
            await helm_on(helm, chart, management, "install", "fipop")
        await helm_on(helm, chart, management, "install", "fipop", flag)
    await helm.run(
        "uninstall", "fipop", "--namespace", NAMESPACE, "--kubeconfig", management.admin_kubeconfig
    )
    await load_crds(management.client, OUR_CRDS)


_STRANGERS = (
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules", "Namespaced"),
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors", "Namespaced"),
    ("ui.cattle.io", "NavLink", "navlinks", "Cluster"),
)
"""Kinds of others that the chart makes objects of, here without a schema: group, kind, plural, scope."""


def _stranger(group: str, kind: str, plural: str, scope: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


async def test_every_answer_to_a_question_gives_what_a_real_api_server_takes(
    management: ControlPlane, chart: Chart, tmp_path: Path
) -> None:
    """Each rendering answers all questions, until every answer was given once."""
    await serve_strangers(management)
    await create_namespaces(management, {NAMESPACE, "cattle-dashboards"})
    questions = list(all_questions())
    for turn in range(max(len(answers(each)) for each in questions)):
        values: dict[str, Any] = {}
        for question in questions:
            given = answers(question)
            merge(values, nested(question["variable"], given[turn % len(given)]))
        path = tmp_path / f"rendered-{turn}.yaml"
        rendered = await asyncio.to_thread(chart.render, values)
        await asyncio.to_thread(path.write_text, yaml.safe_dump_all(rendered))
        await management.kubectl("apply", "--dry-run=server", "-f", str(path))


async def serve_strangers(management: ControlPlane) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for kind in (_stranger(*each) for each in _STRANGERS):
        if await management.client.find(f"{crds}/{kind['metadata']['name']}") is None:
            await management.client.create(crds, kind)

    async def are_known() -> bool:
        return all(
            [await management.client.find(f"/apis/{group}/v1/{plural}") for group, _, plural, _ in _STRANGERS]
        )

    await eventually(are_known, what="the kinds of others are served")


async def create_namespaces(management: ControlPlane, names: set[str]) -> None:
    for name in names:
        if await management.client.find(f"/api/v1/namespaces/{name}") is None:
            await management.create_namespace(name)


async def test_what_the_schema_takes_a_real_api_server_takes(
    management: ControlPlane, chart: Chart, tmp_path: Path
) -> None:
    """Texts that look like numbers, booleans or null, the longest names, and release names that no Service may have."""
    await serve_strangers(management)
    text = ""
    for turn in turns():
        where = {"release": turn.release, "namespace": turn.namespace}
        values = with_everything_on(turn.values)
        documents = await asyncio.to_thread(chart.template, values, with_tests=True, **where)
        # A pod is refused without its ServiceAccount, which a dry run does not create: see the test of all pods below.
        text += "\n---\n".join(each for each in documents.split("\n---\n") if "\nkind: Pod\n" not in each)
    await create_namespaces(
        management, {each["metadata"].get("namespace", NAMESPACE) for each in parse(text)}
    )
    path = tmp_path / "rendered.yaml"
    await asyncio.to_thread(path.write_text, text)
    await management.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))


def merge(target: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


async def test_the_notes_warn_where_the_namespace_is_not_the_one_of_the_runbooks(
    management: ControlPlane, helm: Helm, chart: Chart
) -> None:
    kubeconfig = ("--kubeconfig", management.admin_kubeconfig)
    where = ("--namespace", "elsewhere", "--dry-run=server")
    notes = await helm.run("install", "other", chart.folder, *where, *kubeconfig, *_NO_REPLICA)
    assert "kube-fip-operator has its options in namespace kube-fip" in notes


async def test_the_manifest_applies_to_a_cluster_that_knows_nothing_of_fipop(
    management: ControlPlane, helm: Helm, chart: Chart, tmp_path: Path
) -> None:
    plane = management
    await wipe(plane)
    await plane.kubectl("delete", "-f", str(OUR_CRDS))
    try:
        await apply_manifest(plane, helm, chart, tmp_path)
    finally:
        await load_crds(plane.client, OUR_CRDS)
        await wipe(plane)
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            await plane.kubectl("delete", kind, "--all")


async def apply_manifest(plane: ControlPlane, helm: Helm, chart: Chart, tmp_path: Path) -> None:
    file = tmp_path / "fipop.yaml"
    script = ROOT / "scripts" / "manifest.sh"
    await run_to_end([script, helm.program, chart.folder, file], timeout_seconds=60)
    await plane.kubectl("apply", "-f", str(file))
    budget = await plane.client.get(BUDGET)
    again = await plane.kubectl("apply", "-f", str(file))
    # kubectl replaces the selector of a budget at each apply, be it the same; the API server finds no change.
    changed = [line for line in again.splitlines() if not line.endswith(" unchanged")]
    assert changed == ["poddisruptionbudget.policy/fipop configured"]
    assert await plane.client.get(BUDGET) == budget
    # The CRDs of the manifest are at work, not just stored.
    await plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    await plane.kubectl("create", "-f", str(ROOT / "examples" / "range.yaml"))


async def test_every_pod_is_admitted_where_only_restricted_pods_are(
    management: ControlPlane, chart: Chart
) -> None:
    """By the API server's own judgement, and with a container that is not: the namespace does refuse."""
    await management.create_namespace("strict", {"pod-security.kubernetes.io/enforce": "restricted"})
    rendered = chart.render(EVERYTHING_ON, namespace="strict", with_tests=True)
    for account in rendered.of_kind("ServiceAccount"):
        await management.client.create("/api/v1/namespaces/strict/serviceaccounts", account)
    pods = "/api/v1/namespaces/strict/pods?dryRun=All"
    templates = [each["spec"]["template"] for each in rendered.of_kind("Deployment")]
    templates += rendered.of_kind("Pod")
    assert len(templates) == 3
    for template in templates:
        assert template["spec"]["hostUsers"] is False
        made = await management.client.create(pods, pod_of(template))
        # API servers drop the field if the feature gate UserNamespacesSupport is off: the default before 1.33.
        assert made["spec"].get("hostUsers", False) is False
        del template["spec"]["containers"][0]["securityContext"]["capabilities"]
        with pytest.raises(ApiError) as refused:
            await management.client.create(pods, pod_of(template))
        assert 'violates PodSecurity "restricted' in refused.value.message


def pod_of(template: Any) -> Any:
    return {"metadata": {"name": "probe", "labels": template["metadata"]["labels"]}, "spec": template["spec"]}
