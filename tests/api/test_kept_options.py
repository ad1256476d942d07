"""A bad option in kube-fip-config while the operator is restarted: what it goes on with, and what it leaves alone."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from localfleet.client import Json
from localfleet.fleet import LocalFleet
from localfleet.installation import NAMESPACE, OperatorProcess
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_range, condition, open_stack
from localfleet.waiting import eventually

pytestmark = pytest.mark.xdist_group("kept-options")

KEPT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-last-settings"


@pytest_asyncio.fixture(scope="module")
async def stack(fleet: LocalFleet) -> AsyncIterator[Stack]:
    async with open_stack(fleet, "kept") as stack:
        vlan = build_range("vlan", "10.0.1.0/28", harvester="harvester-cluster1", network="vlan10")
        await stack.client.create(RANGES, vlan)
        yield stack


async def stop(stack: Stack) -> None:
    for operator in stack.operators:
        await operator.stop()


async def restarted(stack: Stack) -> OperatorProcess:
    await stop(stack)
    return await stack.start_operator()


async def test_a_bad_option_keeps_its_last_good_value_through_a_restart_or_holds_up_releases(
    stack: Stack,
) -> None:
    await stack.start_operator()
    port = str(stack.fleet.ports.reserve())
    await stack.set_options(metricsPort=port)

    async def is_kept() -> bool:
        kept = await stack.client.find(KEPT)
        return kept is not None and kept["data"]["metricsPort"] == port

    await eventually(is_kept, seconds=30, what="the options to be kept")
    await stack.set_options(metricsPort="8081")
    operator = await restarted(stack)
    operator.metrics_url = f"http://127.0.0.1:{port}/metrics"
    await eventually(operator.metrics, seconds=30, what="the metrics at the last good port")
    before = await stack.client.get(KEPT)

    await stop(stack)  # one that runs would keep what it knows again
    await stack.client.delete(KEPT)
    await stack.set_options(metricsPort=port, kubevipGuestInstall="enabled", kubevipReleaseName="No Name")
    plan = stack.player.plan_guest("opted-in")
    guest = SimulatedGuest()
    await stack.start_operator()
    made = await stack.player.create_guest(plan, guest)

    async def told() -> Json:
        found = await stack.client.items(
            f"/apis/kubefip.k8s.binbash.org/v1/namespaces/{made.cluster_id}/floatingips"
        )
        return condition(found[0], "KubeVipReady") if found else {}

    async def is_told() -> bool:
        return (await told()).get("reason") == "OptionUnknown"

    await eventually(is_told, seconds=60, what="the condition to name the option")
    assert "kubevipReleaseName" in (await told())["message"]
    assert not [key for key in guest.objects if key[0] == "secrets" and "helm" in key[2]]
    assert await stack.client.find(KEPT) is None, "a default is no good value"

    await stack.set_options(metricsPort=port, kubevipReleaseName=before["data"]["kubevipReleaseName"])

    async def is_over() -> bool:
        return not await is_told() and await is_kept()

    await eventually(is_over, seconds=60, what="the option to be known")
