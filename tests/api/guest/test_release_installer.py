"""Releases in a real guest by real helm: installed, kept, upgraded, adopted, repaired."""

import asyncio
import base64
import gzip
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fipop.guest.errors import ChartError, HelmError, HelmFailure, ReleaseTakenError
from fipop.guest.helm.charts import Role
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.reports import EventResult, PassReport
from fipop.jsons import Json
from fipop.metrics.samples import GuestEvent
from localfleet.chartrepo import ChartRepository
from localfleet.proxy import Fault, SeenRequest
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GOOD_VALUES, GuestBench, helm_processes, release_of, settings_with

pytestmark = pytest.mark.xdist_group("guest")

CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kube-vip"
DAEMON_SET = "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip"
OTHER_VALUES = GOOD_VALUES + "podAnnotations: {changed: 'yes'}\n"


def change(bench: GuestBench, repository: ChartRepository, **options: str) -> None:
    bench.settings = settings_with(kubevipChartRepoUrl=repository.url, **options)


def revisions(report: PassReport) -> list[int]:
    return [release.release.revision for release in report.releases]


async def test_both_releases_are_installed_and_become_ready(bench: GuestBench) -> None:
    report = await bench.run()
    assert report.error is None
    assert [
        (one.role, one.release.status, one.release.revision, one.release.version) for one in report.releases
    ] == [
        (Role.KUBE_VIP, "deployed", 1, "0.11.0"),
        (Role.CLOUD_PROVIDER, "deployed", 1, "0.2.10"),
    ]
    installs = (GuestEvent.KUBE_VIP_INSTALL, GuestEvent.CLOUD_PROVIDER_INSTALL)
    assert report.events[-2:] == tuple(EventResult(event=event, success=True) for event in installs)
    report = await bench.settle()
    assert all(release.readiness.ready for release in report.releases)
    assert report.retry_after_seconds is None
    assert await bench.selector() == {}, "ours is not taken for Harvester's"


async def test_a_quiet_visit_is_five_requests_without_a_write_and_without_helm(bench: GuestBench) -> None:
    await bench.settle()
    runs = bench.helm_runs
    for _ in range(3):
        seen = await bench.requests_of_a_pass()
        assert len(seen) <= 5
        assert not [request for request in seen if request.is_write]
    assert bench.helm_runs == runs


async def test_the_values_reach_the_workloads(bench: GuestBench, repository: ChartRepository) -> None:
    change(bench, repository, kubevipChartValues="config: {vip_interface: enp7s0}\nenv: {vip_arp: true}\n")
    await bench.run()
    container = (await bench.client.get(DAEMON_SET))["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one["value"] for one in container["env"]}
    assert (env["vip_interface"], env["vip_arp"]) == ("enp7s0", "true")
    deployment = "/apis/apps/v1/namespaces/kube-system/deployments/kube-vip-cloud-provider"
    container = (await bench.client.get(deployment))["spec"]["template"]["spec"]["containers"][0]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (env["KUBEVIP_CONFIG_MAP"], env["KUBEVIP_NAMESPACE"]) == ("kubevip", "kube-system")


async def test_changed_values_upgrade_once_where_updates_are_on(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    change(bench, repository, kubevipUpdate="true", kubevipChartValues=OTHER_VALUES)
    assert revisions(await bench.run()) == [2, 1]
    for _ in range(3):
        assert revisions(await bench.run()) == [2, 1]
    template = (await bench.client.get(DAEMON_SET))["spec"]["template"]
    assert template["metadata"]["annotations"] == {"changed": "yes"}


async def test_changed_values_are_reported_and_never_upgraded_where_updates_are_off(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    change(bench, repository, kubevipChartValues=OTHER_VALUES, kubevipChartVersion="0.9.9")
    runs = bench.helm_runs
    for _ in range(3):
        report = await bench.run()
        assert revisions(report) == [1, 1]
        assert "0.9.9" in release_of(report, Role.KUBE_VIP).drift
        assert release_of(report, Role.CLOUD_PROVIDER).drift == ""
    assert bench.helm_runs <= runs + 2, "helm ran but for the other chart's fetch"


async def test_another_chart_version_upgrades_once(bench: GuestBench, repository: ChartRepository) -> None:
    change(bench, repository, kubevipChartVersion="0.9.9", kubevipUpdate="true")
    assert release_of(await bench.run(), Role.KUBE_VIP).release.version == "0.9.9"
    change(bench, repository, kubevipUpdate="true")
    for _ in range(3):
        report = await bench.run()
        assert (release_of(report, Role.KUBE_VIP).release.version, revisions(report)) == ("0.11.0", [2, 1])


async def test_a_revision_made_by_hand_is_drift(
    bench: GuestBench, repository: ChartRepository, archives: dict[str, Path]
) -> None:
    await bench.settle()
    await bench.helm(
        "upgrade",
        "kube-vip",
        archives["kube-vip-0.11.0"],
        "-n",
        "kube-system",
        values='env={"vip_interface":"x"}',
    )
    report = await bench.run()
    assert revisions(report) == [2, 1]
    assert release_of(report, Role.KUBE_VIP).drift
    change(bench, repository, kubevipUpdate="true")
    assert revisions(await bench.run()) == [3, 1]
    assert revisions(await bench.run()) == [3, 1]


async def test_a_changed_release_name_or_namespace_holds_for_guests_without_a_release_only(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    change(bench, repository, kubevipReleaseName="other", kubevipNamespace="elsewhere", kubevipUpdate="true")
    for _ in range(2):
        report = await bench.run()
        found = release_of(report, Role.KUBE_VIP)
        assert (found.release.name, found.release.namespace, found.renamed, found.release.revision) == (
            "kube-vip",
            "kube-system",
            True,
            1,
        )
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}, "the provider there reads its own namespace"
    assert await bench.config_map("elsewhere") is None
    assert await bench.client.find("/api/v1/namespaces/elsewhere") is None


async def test_a_guest_without_a_release_gets_the_wanted_name_in_a_namespace_made_for_it(
    bench: GuestBench, repository: ChartRepository
) -> None:
    change(bench, repository, kubevipReleaseName="vip", kubevipNamespace="networking")
    report = await bench.run()
    assert (report.error, revisions(report)) == (None, [1, 1])
    assert release_of(report, Role.KUBE_VIP).release.namespace == "networking"
    assert await bench.data("networking") == {"cidr-global": "10.0.0.1/32"}
    assert await bench.client.find("/apis/apps/v1/namespaces/networking/daemonsets/vip")


async def install_as_predecessor(bench: GuestBench, archives: dict[str, Path]) -> None:
    """As kube-fip-operator did: the admin's values and `nameOverride`, no labels."""
    tolerations = '[{"key":"node-role.kubernetes.io/control-plane","operator":"Exists"}]'
    for name, version, values in (
        ("kube-vip", "0.11.0", f'env={{"vip_interface":"eth0"}},tolerations={tolerations}'),
        ("kube-vip-cloud-provider", "0.2.10", "replicasCount=1"),
    ):
        given = f'{values},nameOverride="{name}"'
        await bench.helm("install", name, archives[f"{name}-{version}"], "-n", "kube-system", values=given)


async def test_a_predecessors_releases_are_adopted_without_an_upgrade(
    bench: GuestBench, repository: ChartRepository, archives: dict[str, Path]
) -> None:
    await install_as_predecessor(bench, archives)
    change(bench, repository, kubevipUpdate="true")
    report = await bench.settle()
    assert revisions(report) == [1, 1]
    assert [release.drift for release in report.releases] == ["", ""]
    seen = await bench.requests_of_a_pass()
    assert len(seen) <= 5, "what was decoded is remembered"
    change(bench, repository, kubevipUpdate="true", kubevipChartValues=OTHER_VALUES)
    assert revisions(await bench.run()) == [2, 1]
    assert revisions(await bench.run()) == [2, 1]


async def test_a_predecessors_release_is_found_under_a_name_that_the_settings_no_longer_have(
    bench: GuestBench, repository: ChartRepository, archives: dict[str, Path]
) -> None:
    await install_as_predecessor(bench, archives)
    change(bench, repository, kubevipReleaseName="vip", kubevipCloudProviderReleaseName="provider")
    report = await bench.settle()
    assert [(one.release.name, one.renamed, one.release.revision) for one in report.releases] == [
        ("kube-vip", True, 1),
        ("kube-vip-cloud-provider", True, 1),
    ]


async def test_somebodys_own_kube_vip_under_another_name_is_no_heir(
    bench: GuestBench, archives: dict[str, Path]
) -> None:
    values = 'env={"cp_enable":"true"},nameOverride="control-plane"'
    await bench.helm(
        "install", "kube-vip-cp", archives["kube-vip-0.11.0"], "-n", "kube-system", values=values
    )
    report = await bench.run()
    assert [(one.release.name, one.release.revision, one.error) for one in report.releases] == [
        ("kube-vip", 1, None),
        ("kube-vip-cloud-provider", 1, None),
    ]
    assert len(await bench.secrets("kube-vip-cp")) == 1


async def test_somebody_elses_release_of_the_wanted_name_is_left_alone(
    bench: GuestBench, archives: dict[str, Path]
) -> None:
    await bench.helm("install", "kube-vip", archives["kube-vip-cloud-provider-0.2.9"], "-n", "kube-system")
    report = await bench.run()
    assert isinstance(release_of(report, Role.KUBE_VIP).error, ReleaseTakenError)
    assert len(await bench.secrets("kube-vip")) == 1
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}, "its address is written all the same"


async def test_withdrawing_the_opt_in_removes_nothing(bench: GuestBench) -> None:
    await bench.settle()
    bench.opted_in = False
    seen = await bench.requests_of_a_pass()
    assert len(seen) == 2
    assert len(await bench.secrets("kube-vip")) == 1
    assert await bench.client.find(DAEMON_SET)


async def test_a_failed_release_is_tried_again_at_once_with_other_values_and_later_with_the_same(
    bench: GuestBench, repository: ChartRepository
) -> None:
    change(bench, repository, kubevipChartValues="image: {pullPolicy: Sometimes}\n")
    report = await bench.run()
    failed = release_of(report, Role.KUBE_VIP)
    assert isinstance(failed.error, HelmError)
    assert failed.error.failure is HelmFailure.INVALID
    assert (failed.release.status, failed.readiness.ready) == ("failed", False)
    assert EventResult(event=GuestEvent.KUBE_VIP_INSTALL, success=False) in report.events
    assert release_of(report, Role.CLOUD_PROVIDER).release.status == "deployed", (
        "one release does not hold up the other"
    )
    runs = bench.helm_runs
    report = await bench.run()
    assert bench.helm_runs == runs, "it rests before the next attempt"
    assert report.retry_after_seconds is not None
    change(bench, repository)
    assert release_of(await bench.run(), Role.KUBE_VIP).release.status == "deployed"


def is_helms_daemon_set(seen: SeenRequest) -> bool:
    return seen.is_write and seen.user_agent.lower().startswith("helm") and seen.path.endswith("/daemonsets")


@asynccontextmanager
async def helm_stuck_in_a_pass(bench: GuestBench) -> AsyncIterator["asyncio.Task[PassReport]"]:
    """A pass whose helm has written its record and then gets no answer."""
    bench.route.fault = Fault(hang=True, only=is_helms_daemon_set)
    task = asyncio.create_task(bench.run())

    async def is_pending() -> list[Json]:
        assert not task.done(), task.result().error
        secrets = await bench.secrets("kube-vip")
        return [one for one in secrets if one["metadata"]["labels"]["status"] == "pending-install"]

    try:
        await eventually(is_pending, seconds=30, what="helm to be under way")
        yield task
    finally:
        bench.route.fault = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_helm_that_is_killed_leaves_no_process_and_its_release_is_repaired_after_the_grace(
    bench: GuestBench,
) -> None:
    async with helm_stuck_in_a_pass(bench) as task:
        (pid,) = helm_processes()
        os.kill(pid, signal.SIGKILL)
        bench.route.fault = None
        report = await asyncio.wait_for(task, 20)
    error = release_of(report, Role.KUBE_VIP).error
    assert isinstance(error, HelmError)
    assert error.failure is HelmFailure.KILLED
    assert helm_processes() == []
    runs = bench.helm_runs
    report = await bench.run()
    assert release_of(report, Role.KUBE_VIP).release.status == "pending-install", (
        "somebody's helm may be alive"
    )
    assert bench.helm_runs == runs
    account = "/api/v1/namespaces/kube-system/serviceaccounts/kube-vip"
    before = await bench.client.get(account)
    bench.tools.lease_seconds = -bench.tools.helm.deadline_seconds  # the grace is over
    bench.memory = ReleaseMemory()
    report = await bench.settle()
    assert revisions(report) == [1, 1]
    assert (await bench.client.get(account))["metadata"]["uid"] == before["metadata"]["uid"], (
        "nothing was uninstalled"
    )


@pytest.mark.slow  # it waits for helm to end by itself
async def test_a_pass_that_is_cancelled_ends_its_helm_first(bench: GuestBench) -> None:
    async with helm_stuck_in_a_pass(bench) as task:
        assert len(helm_processes()) == 1
        task.cancel()
        await asyncio.wait({task}, timeout=20)
        assert task.cancelled()
        assert helm_processes() == []
    bench.tools.lease_seconds = -bench.tools.helm.deadline_seconds
    assert revisions(await bench.settle(seconds=60)) in ([1, 1], [2, 1])


async def test_a_helm_without_an_answer_ends_at_its_deadline(bench: GuestBench) -> None:
    bench.tools.helm.deadline_seconds = 3
    bench.route.fault = Fault(hang=True, only=is_helms_daemon_set)
    report = await asyncio.wait_for(bench.run(), 30)
    error = release_of(report, Role.KUBE_VIP).error
    assert isinstance(error, HelmError)
    assert error.failure is HelmFailure.TIMED_OUT
    assert helm_processes() == []


async def test_a_deleted_cluster_role_is_found_by_the_deep_check_and_made_again_where_updates_are_on(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    await bench.client.delete(CLUSTER_ROLE)
    assert release_of(await bench.run(), Role.KUBE_VIP).drift == "", "a quiet pass does not see it"
    assert "ClusterRole kube-vip" in release_of(await bench.run(deep=True), Role.KUBE_VIP).drift
    assert release_of(await bench.run(), Role.KUBE_VIP).drift, "once seen, every pass looks for it"
    assert await bench.client.find(CLUSTER_ROLE) is None
    change(bench, repository, kubevipUpdate="true")
    assert (await bench.run(deep=True)).error is None
    assert await bench.client.find(CLUSTER_ROLE)
    assert revisions(await bench.run()) == [2, 1]
    assert len(await bench.requests_of_a_pass()) <= 5


async def test_a_deleted_daemon_set_is_seen_by_an_ordinary_pass(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await bench.settle()
    await bench.client.delete(DAEMON_SET)
    assert "DaemonSet kube-vip" in release_of(await bench.run(), Role.KUBE_VIP).drift
    change(bench, repository, kubevipUpdate="true")
    assert revisions(await bench.settle()) == [2, 1]


async def test_a_chart_source_that_is_away_is_told_and_hurts_no_installed_guest(
    bench: GuestBench, repository: ChartRepository
) -> None:
    repository.unavailable = True
    report = await bench.run()
    assert isinstance(report.error, ChartError)
    assert report.reachable
    assert await bench.data() == {"cidr-global": "10.0.0.1/32"}
    repository.unavailable = False
    await bench.settle()
    repository.unavailable = True
    change(bench, repository, kubevipChartVersion="0.9.9")
    report = await bench.run()
    assert report.error is None
    assert release_of(report, Role.KUBE_VIP).readiness.ready
    assert release_of(report, Role.KUBE_VIP).doubt


async def test_a_release_that_unpacks_to_much_costs_its_guest_an_upgrade_and_us_no_memory(
    bench: GuestBench, repository: ChartRepository
) -> None:
    """helm reads every release Secret of that name: one of 1 MiB had it take all memory of our container."""
    await bench.settle()
    manifest = "a" * (100 << 20)
    release = {"name": "kube-vip", "version": 1, "info": {"status": "superseded"}, "manifest": manifest}
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode(), 1))
    name = "sh.helm.release.v1.kube-vip.v900"
    labels = {"owner": "helm", "name": "kube-vip", "status": "superseded", "version": "1"}
    await bench.client.create(
        "/api/v1/namespaces/kube-system/secrets",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": labels},
            "type": "helm.sh/release.v1",
            "data": {"release": base64.b64encode(packed).decode()},
        },
    )
    change(bench, repository, kubevipChartValues=OTHER_VALUES, kubevipUpdate="true")
    report = await bench.run()
    error = release_of(report, Role.KUBE_VIP).error
    assert isinstance(error, HelmError)
    assert error.failure is HelmFailure.KILLED
    await bench.client.delete(f"/api/v1/namespaces/kube-system/secrets/{name}")
    await bench.run()
    assert (await bench.settle()).error is None
