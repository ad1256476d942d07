"""kube-vip and its cloud provider in a guest, installed by real helm through the running operator."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from localfleet.controlplane import ControlPlane
from localfleet.harvester_guest import DAEMON_SET, install_harvester_kube_vip
from localfleet.observation import observe_guest
from localfleet.routes import SeenRequest
from localfleet.stack import Stack, build_range
from tests.api.borrowing import Installs, borrow
from tests.api.served_guest import bring_up
from tests.api.sweeping import sweep

pytestmark = pytest.mark.xdist_group("installs")

INSTALLED_SECONDS = 120.0
PARKED = {"node-role.kubernetes.io/harvester-kube-vip-disabled": "true"}
DIGEST_LENGTH = 32


@pytest_asyncio.fixture(scope="module")
async def stack(installs: Installs) -> AsyncIterator[Stack]:
    """The chart's own values for both releases: what it deploys is to run on nodes as RKE2 makes them."""
    vlan = build_range("vlan", "10.78.0.0/16", harvester="harvester-cluster1", network="vlan10")
    async with borrow(installs.stack, vlan) as stack:
        yield stack


def is_by_helm(request: SeenRequest) -> bool:
    return request.user_agent.startswith("Helm")


async def test_an_opted_in_guest_gets_both_releases_and_harvesters_kube_vip_makes_room_for_ours(
    stack: Stack, guest: ControlPlane, numbers: Iterator[int]
) -> None:
    await sweep(guest.client)
    await install_harvester_kube_vip(guest.client)
    plan = stack.player.plan_guest(f"vip-{next(numbers)}", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, plan) as served:
        found = await served.has_condition(seconds=INSTALLED_SECONDS)
        for kind in ("Allocated", "GuestConfigured", "KubeVipReady", "CloudProviderReady"):
            await served.has_condition(kind)
        view = await observe_guest(served.client)
        assert view.pools == {"cidr-global": f"{found['spec']['ipaddress']}/32"}
        assert {name: each.chart for name, each in view.releases.items()} == {
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
