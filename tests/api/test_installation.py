"""kube-vip and its cloud provider in a guest, installed by real helm through the running operator."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from localfleet.client import ApiClient
from localfleet.controlplane import ControlPlane
from localfleet.harvester_guest import DAEMON_SET, install_harvester_kube_vip
from localfleet.observation import GuestView, observe_guest
from localfleet.registry import OciRegistry
from localfleet.routes import SeenRequest
from localfleet.stack import Stack, build_range
from localfleet.waiting import eventually
from tests.api.borrowing import Installs, borrow
from tests.api.live_options import with_options
from tests.api.served_guest import ServedGuest, bring_up
from tests.api.sweeping import sweep

pytestmark = pytest.mark.xdist_group("installs")

INSTALLED_SECONDS = 120.0
PARKED = {"node-role.kubernetes.io/harvester-kube-vip-disabled": "true"}
DIGEST_LENGTH = 32


@pytest_asyncio.fixture(scope="module")
async def registry(
    installs: Installs, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[OciRegistry]:
    async with installs.open_registry(tmp_path_factory.mktemp("registry")) as registry:
        for archive in installs.archives:
            await registry.push(archive)
        yield registry


@pytest_asyncio.fixture(scope="module")
async def stack(installs: Installs) -> AsyncIterator[Stack]:
    """The chart's own values for both releases: what it deploys is to run on nodes as RKE2 makes them."""
    vlan = build_range("vlan", "10.78.0.0/16", harvester="harvester-cluster1", network="vlan10")
    async with borrow(installs.stack, vlan) as stack:
        yield stack


@asynccontextmanager
async def bring_up_labelled(
    stack: Stack, plane: ControlPlane, number: int, *, harvester: bool = False, opted_in: bool = True
) -> AsyncIterator[ServedGuest]:
    await sweep(plane.client)
    if harvester:
        await install_harvester_kube_vip(plane.client)
    labels = {"kube-vip": "true"} if opted_in else {}
    async with bring_up(stack, plane, stack.player.plan_guest(f"vip-{number}", labels=labels)) as guest:
        yield guest


def is_by_helm(request: SeenRequest) -> bool:
    return request.user_agent.startswith("Helm")


def charts(view: GuestView) -> Mapping[str, str]:
    return {name: release.chart for name, release in view.releases.items()}


async def test_an_opted_in_guest_gets_both_releases_and_harvesters_kube_vip_makes_room_for_ours(
    stack: Stack, guest: ControlPlane, numbers: Iterator[int]
) -> None:
    async with bring_up_labelled(stack, guest, next(numbers), harvester=True) as served:
        found = await served.has_condition(seconds=INSTALLED_SECONDS)
        for kind in ("Allocated", "GuestConfigured", "KubeVipReady", "CloudProviderReady"):
            await served.has_condition(kind)
        view = await observe_guest(served.client)
        assert view.pools == {"cidr-global": f"{found['spec']['ipaddress']}/32"}
        assert charts(view) == {
            "kube-vip": "kube-vip-0.11.0",
            "kube-vip-cloud-provider": "kube-vip-cloud-provider-0.2.10",
        }
        releases = {one["role"]: one for one in found["status"]["guest"]["releases"]}
        for role, version in (("kube-vip", "0.11.0"), ("kube-vip-cloud-provider", "0.2.10")):
            told = dict(releases[role])
            assert len(told.pop("digest")) == DIGEST_LENGTH
            assert told == {
                "role": role,
                "name": role,
                "namespace": "kube-system",
                "revision": 1,
                "version": version,
                "status": "deployed",
            }
        ours = view.daemon_sets["kube-vip-fipop"]
        assert ours["status"]["numberReady"] == ours["status"]["desiredNumberScheduled"] == 1
        assert view.deployments["kube-vip-cloud-provider"]["status"]["readyReplicas"] == 1
        harvesters = await served.client.get(DAEMON_SET)
        assert harvesters["spec"]["template"]["spec"]["nodeSelector"] == PARKED
        requests = served.stack.proxy.requests_of(served.id)
        parked = [
            index for index, one in enumerate(requests) if one.method == "PATCH" and one.path == DAEMON_SET
        ]
        made = [
            index
            for index, one in enumerate(requests)
            if is_by_helm(one) and one.is_write and one.path.endswith("/daemonsets")
        ]
        assert len(parked) == 1
        assert made
        assert made[-1] < parked[0], "Harvester's was parked before ours was there"


async def test_a_restart_of_the_operator_touches_no_release(
    stack: Stack, guest: ControlPlane, numbers: Iterator[int]
) -> None:
    """What it remembered of the releases is gone with the process, and read again from what stands there."""
    async with bring_up_labelled(stack, guest, next(numbers)) as served:
        await served.has_condition(seconds=INSTALLED_SECONDS)
        await served.passes(1)
        before = await versions(served.client), await served.floating_ip()
        (operator,) = stack.operators
        await operator.stop()
        stack.proxy.forget_requests()
        await operator.start()
        for requests in await served.passes(3):
            assert not any(one.is_write or is_by_helm(one) for one in requests), requests
        assert (await versions(served.client), await served.floating_ip()) == before


async def versions(client: ApiClient) -> Mapping[str, str]:
    """The version of every Secret, workload and ConfigMap of a guest, by its name."""
    paths = ("/api/v1/secrets", "/api/v1/configmaps", "/apis/apps/v1/daemonsets", "/apis/apps/v1/deployments")
    return {
        f"{path} {each['metadata']['namespace']}/{each['metadata']['name']}": each["metadata"][
            "resourceVersion"
        ]
        for path in paths
        for each in await client.items(path)
    }


async def test_charts_come_from_a_registry_in_the_version_asked_for(
    stack: Stack, registry: OciRegistry, guest: ControlPlane, numbers: Iterator[int]
) -> None:
    """They come from the repository, and are the newest, in the first test of this file."""
    options = {
        "kubevipGuestInstall": "enabled",
        # A new guest cluster gets what the others have while the charts that are asked for are being fetched.
        "kubevipUpdate": "true",
        "kubevipRolloutType": "All",
        # A registry wins over the repository: there is none at this address.
        "kubevipChartRepoUrl": "http://127.0.0.1:1/charts",
        "kubevipChartRef": registry.reference("kube-vip"),
        "kubevipChartVersion": "0.9.9",
        "kubevipCloudProviderChartRef": registry.reference("kube-vip-cloud-provider"),
        "kubevipCloudProviderChartVersion": "0.2.9",
    }
    async with (
        with_options(stack, **options),
        bring_up_labelled(stack, guest, next(numbers), opted_in=False) as served,
    ):
        wanted = {
            "kube-vip": "kube-vip-0.9.9",
            "kube-vip-cloud-provider": "kube-vip-cloud-provider-0.2.9",
        }

        async def are_installed() -> bool:
            found = charts(await observe_guest(served.client))
            assert found == wanted, found
            return True

        await eventually(are_installed, seconds=INSTALLED_SECONDS, what="the charts that are asked for")
