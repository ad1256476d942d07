"""Releases that are not fipop's, in a real guest with real helm: whatever their labels say, they are left alone."""

import base64
import gzip
import json
from pathlib import Path

import pytest
import yaml

from fipop.guest.errors import ForeignReleaseError, ReleaseTakenError
from fipop.guest.helm.charts import Role
from fipop.jsons import Json
from localfleet.chartrepo import ChartRepository
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GOOD_VALUES, GuestBench, release_of, settings_with

pytestmark = pytest.mark.xdist_group("guest")

TENANT = "a-tenant"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
OTHER_VALUES = GOOD_VALUES + "podAnnotations: {changed: 'yes'}\n"
SECRETS = f"/api/v1/namespaces/{TENANT}/secrets"


def binding(name: str) -> Json:
    """A ClusterRoleBinding of the release, as helm would have made it."""
    owner = {"meta.helm.sh/release-name": "kube-vip", "meta.helm.sh/release-namespace": TENANT}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels, "annotations": owner},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": TENANT}],
    }


def forged_release() -> Json:
    """Return what a user with a right to create Secrets makes: a manifest with "named", a hook with "planted"."""
    events = ["pre-install", "pre-upgrade", "pre-delete", "post-delete", "pre-rollback"]
    hook = {
        "name": "planted",
        "kind": "ClusterRoleBinding",
        "path": "kube-vip/templates/hook.yaml",
        "manifest": yaml.safe_dump(binding("planted")),
        "events": events,
        "last_run": {"started_at": "", "completed_at": "", "phase": ""},
    }
    body = {
        "name": "kube-vip",
        "namespace": TENANT,
        "version": 1,
        "info": {
            "status": "deployed",
            "first_deployed": "2026-01-01T00:00:00Z",
            "description": "Install complete",
        },
        "chart": {
            "metadata": {"name": "kube-vip", "version": "0.9.9", "apiVersion": "v2"},
            "templates": [],
            "values": {},
        },
        "config": {"nameOverride": "kube-vip"},
        "manifest": "---\n" + yaml.safe_dump(binding("named")),
        "hooks": [hook],
    }
    ours = {
        "kubefip.k8s.binbash.org/role": "kube-vip",
        "kubefip.k8s.binbash.org/digest": "d" * 32,
        "kubefip.k8s.binbash.org/revision": "1",
    }
    packed = base64.b64encode(gzip.compress(json.dumps(body).encode()))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": "sh.helm.release.v1.kube-vip.v1",
            "labels": {"owner": "helm", "name": "kube-vip", "version": "1", "status": "deployed", **ours},
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


async def make_namespace(bench: GuestBench) -> None:
    if await bench.client.find(f"/api/v1/namespaces/{TENANT}") is None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}}
        await bench.client.create("/api/v1/namespaces", namespace)


async def forge(bench: GuestBench) -> Json:
    """Forge a release; the ClusterRoleBinding of its manifest is there and is somebody's."""
    await make_namespace(bench)
    await bench.client.create(BINDINGS, binding("named"))
    return await bench.client.create(SECRETS, forged_release())


async def require_untouched(bench: GuestBench, forged: Json) -> None:
    """Nothing of the forged release was executed, upgraded or uninstalled."""
    assert await bench.client.find(f"{BINDINGS}/named")
    assert await bench.client.find(f"{BINDINGS}/planted") is None
    (found,) = await bench.secrets("kube-vip", TENANT)
    assert found["metadata"]["resourceVersion"] == forged["metadata"]["resourceVersion"]


async def leave(bench: GuestBench) -> None:
    """Make passes until nothing is left that fipop would remove."""
    bench.opted_in, bench.leaving, bench.may_remove = False, True, True

    async def has_left() -> bool:
        report = await bench.run()
        assert report.error is None, report.error
        return report.has_ours is False

    await eventually(has_left, seconds=40, what="the guest to be left")


async def test_a_forged_release_in_a_namespace_of_the_guests_users_is_not_touched_and_blocks_the_install(
    bench: GuestBench, repository: ChartRepository
) -> None:
    forged = await forge(bench)
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipUpdate="true")
    runs = bench.helm_runs
    for deep in (False, True):
        report = await bench.run(deep=deep)
        for role in Role:
            error = release_of(report, role).error
            assert isinstance(error, ForeignReleaseError)
            assert f"{TENANT}/kube-vip" in str(error)
    assert bench.helm_runs == runs
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}, (
        "its address is written, and where it belongs"
    )
    await leave(bench)
    assert bench.helm_runs == runs
    await require_untouched(bench, forged)


async def test_beside_a_forged_release_fipops_own_is_upgraded_and_removed_as_ever(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    forged = await forge(bench)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url, kubevipUpdate="true", kubevipChartValues=OTHER_VALUES
    )
    report = await bench.settle()
    assert [(each.release.namespace, each.release.revision) for each in report.releases] == [
        ("kube-system", 2),
        ("kube-system", 1),
    ]
    await leave(bench)
    assert await bench.secrets("kube-vip") == []
    await require_untouched(bench, forged)


@pytest.mark.slow
async def test_a_release_of_fipops_in_a_namespace_that_the_admin_names_counts(
    bench: GuestBench, repository: ChartRepository
) -> None:
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipNamespace="former")
    await bench.settle()
    bench.reported = frozenset()
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url)
    report = await bench.run()
    assert all(isinstance(each.error, ForeignReleaseError) for each in report.releases)
    bench.reported = frozenset()
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipReleaseNamespaces="former")
    report = await bench.settle()
    assert [(each.release.namespace, each.renamed, each.release.revision) for each in report.releases] == [
        ("former", True, 1)
    ] * 2


@pytest.mark.parametrize("namespace", ["kube-system", TENANT])
async def test_a_kube_vip_of_the_guests_own_is_neither_adopted_nor_upgraded_nor_removed(
    bench: GuestBench, repository: ChartRepository, archives: dict[str, Path], namespace: str
) -> None:
    """It may carry the address of the guest's control plane."""
    await make_namespace(bench)
    own = ("kube-vip", archives["kube-vip-0.9.9"], "--namespace", namespace)
    tolerations = '[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]'
    await bench.helm("install", *own, values=f'env={{"cp_enable":"true"}},tolerations={tolerations}')
    (before,) = await bench.secrets("kube-vip", namespace)
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, kubevipUpdate="true")
    report = await bench.run()
    if namespace == TENANT:
        report = await bench.settle()
        found = release_of(report, Role.KUBE_VIP)
        assert (found.release.namespace, found.release.revision, found.beside) == (
            "kube-system",
            1,
            (f"{TENANT}/kube-vip",),
        )
    else:
        assert isinstance(release_of(report, Role.KUBE_VIP).error, ReleaseTakenError)
    daemon_set = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/kube-vip"
    for _ in range(2):
        await bench.run(deep=True)
    await leave(bench)
    (after,) = await bench.secrets("kube-vip", namespace)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    container = (await bench.client.get(daemon_set))["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "cp_enable", "value": "true"} in container["env"]


async def forge_large(bench: GuestBench) -> None:
    """Forge more releases than fipop reads of a guest."""
    await make_namespace(bench)
    for number in range(24):
        forged = forged_release()
        forged["metadata"] |= {"name": f"large-{number}", "annotations": {"large": "x" * 250_000}}
        await bench.client.create(SECRETS, forged)


@pytest.mark.slow
async def test_large_forged_releases_in_one_namespace_stop_no_upgrade_elsewhere(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    await forge_large(bench)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url, kubevipUpdate="true", kubevipChartValues=OTHER_VALUES
    )
    await bench.run()
    report = await bench.settle()
    assert [each.release.revision for each in report.releases] == [2, 1]


@pytest.mark.slow
async def test_beside_releases_that_cannot_all_be_read_nothing_is_installed_for_the_first_time(
    bench: GuestBench,
) -> None:
    await forge_large(bench)
    runs = bench.helm_runs
    report = await bench.run()
    assert all(isinstance(each.error, ForeignReleaseError) for each in report.releases)
    assert len(report.releases) == len(Role)
    assert bench.helm_runs == runs
