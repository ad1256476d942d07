"""Harvester's own kube-vip in a guest: parked once ours takes over, and in the way of its names."""

import pytest

from fipop.guest.errors import HelmError, HelmFailure
from fipop.guest.harvester import PARKED_LABEL
from fipop.guest.helm.charts import Role
from localfleet.chartrepo import ChartRepository
from localfleet.harvester_guest import DAEMON_SET, install_harvester_kube_vip
from localfleet.waiting import eventually
from tests.api.guest.guest_bench import GOOD_VALUES, GuestBench, release_of, settings_with

pytestmark = pytest.mark.xdist_group("guest")


async def test_it_is_parked_once_ours_is_deployed_and_ours_has_names_of_its_own(bench: GuestBench) -> None:
    await install_harvester_kube_vip(bench.client)
    await bench.settle()
    assert await bench.selector() == {PARKED_LABEL: "true"}
    assert await bench.client.find("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip-fipop")

    async def is_without_pods() -> bool:
        return (await bench.client.get(DAEMON_SET))["status"]["desiredNumberScheduled"] == 0

    await eventually(is_without_pods, what="Harvester's DaemonSet to lose its pods")
    seen = await bench.requests_of_a_pass()
    assert len(seen) <= 5
    assert not [request for request in seen if request.is_write]


async def test_objects_of_other_kinds_that_were_left_behind_are_in_the_way_too(bench: GuestBench) -> None:
    await install_harvester_kube_vip(bench.client)
    await bench.client.delete(DAEMON_SET)
    await bench.settle()
    assert await bench.client.find("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip-fipop")
    account = await bench.client.get("/api/v1/namespaces/kube-system/serviceaccounts/kube-vip")
    assert account["metadata"]["annotations"]["meta.helm.sh/release-name"] == "harvester-cloud-provider"


async def test_the_name_that_was_chosen_at_the_first_install_is_kept(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await install_harvester_kube_vip(bench.client)
    await bench.settle()
    for item in ("/api/v1/namespaces/kube-system/serviceaccounts/kube-vip", DAEMON_SET):
        await bench.client.delete(item)
    for role in ("clusterroles", "clusterrolebindings"):
        await bench.client.delete(f"/apis/rbac.authorization.k8s.io/v1/{role}/kube-vip")
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url,
        kubevipUpdate="true",
        kubevipChartValues=GOOD_VALUES + "podAnnotations: {changed: 'yes'}\n",
    )
    report = await bench.settle()
    assert release_of(report, Role.KUBE_VIP).release.revision == 2
    assert await bench.client.find("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip-fipop")
    assert await bench.client.find(DAEMON_SET) is None


async def test_a_name_that_the_admin_gave_and_somebody_else_has_is_an_error(
    bench: GuestBench, repository: ChartRepository
) -> None:
    await install_harvester_kube_vip(bench.client)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url, kubevipChartValues=GOOD_VALUES + "nameOverride: kube-vip\n"
    )
    report = await bench.run()
    error = release_of(report, Role.KUBE_VIP).error
    assert isinstance(error, HelmError)
    assert error.failure is HelmFailure.NAME_TAKEN
    assert await bench.selector() == {}
    assert await bench.secrets("kube-vip") == []


async def test_it_is_untouched_in_a_guest_that_did_not_opt_in(bench: GuestBench) -> None:
    await install_harvester_kube_vip(bench.client)
    before = await bench.client.get(DAEMON_SET)
    bench.opted_in = False
    for _ in range(2):
        await bench.run()
    assert (await bench.client.get(DAEMON_SET))["metadata"]["generation"] == before["metadata"]["generation"]
    assert await bench.selector() == {}


async def test_it_runs_on_while_ours_finds_no_node(bench: GuestBench, repository: ChartRepository) -> None:
    await install_harvester_kube_vip(bench.client)
    bench.settings = settings_with(
        kubevipChartRepoUrl=repository.url,
        kubevipChartValues=GOOD_VALUES + "nodeSelector: {example.org/no-node: 'true'}\n",
    )
    await bench.run()

    async def is_seen() -> bool:
        ours = await bench.client.get("/apis/apps/v1/namespaces/kube-system/daemonsets/kube-vip-fipop")
        return ours["status"].get("observedGeneration") == ours["metadata"]["generation"]

    await eventually(is_seen, what="the DaemonSet to be seen by its controller")
    report = await bench.run()
    assert not release_of(report, Role.KUBE_VIP).readiness.ready
    assert await bench.selector() == {}
