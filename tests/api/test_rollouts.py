"""A rollout in real guests, by real helm: what it upgrades, what it takes back, and what stands in them at the end."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.installation import NAMESPACE
from localfleet.observation import observe_guest
from localfleet.stack import RANGES, SETTINGS, Stack, build_range, open_stack
from localfleet.waiting import eventually
from tests.api.served_guest import ServedGuest, bring_up
from tests.api.sweeping import sweep

pytestmark = pytest.mark.slow
"""tests/scenarios/test_rollouts.py has the rules, tests/api/guest the roll back by a real helm."""

KUBE_VIP, CLOUD_PROVIDER = "kube-vip", "kube-vip-cloud-provider"
ROLLOUT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
SECONDS = 90.0
GOOD = "env: {{vip_interface: {}}}\n"
BAD = "env: {vip_interface: eth9}\nnodeSelector: {no-such-node: 'true'}\n"
"""No node fits: the DaemonSet wants no pod, and is never ready."""


@pytest_asyncio.fixture(scope="module")
async def stack(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    folder = tmp_path_factory.mktemp("charts")
    helm = Helm(program=ensure("helm"), home=folder / "home")
    async with ChartRepository() as charts:
        for chart in PUBLISHED:
            charts.publish(await helm.pack(chart, folder))
        settings = {
            "kubevipGuestInstall": "clusterlabel",
            "kubevipUpdate": "true",
            "kubevipChartRepoUrl": charts.url,
            "operateGuestClusterInterval": "2",
            "kubevipRolloutCanaries": "1",
            "kubevipRolloutMaxConcurrency": "1",
            "kubevipRolloutMinSuccessTime": "2",
            "kubevipRolloutProgressDeadline": "20",
            "kubevipChartValues": GOOD.format("eth0"),
        }
        async with open_stack(fleet, "rollouts", settings=settings) as stack:
            await stack.client.create(
                RANGES, build_range("vlan", "10.83.0.0/24", harvester="harvester-cluster1")
            )
            await stack.start_operator()
            yield stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two guests; the canary goes first."""

    stack: Stack
    canary: ServedGuest
    other: ServedGuest

    async def phase(self, wanted: str, *, target_but: str = "") -> dict[str, Any]:
        """Wait until the rollout of another target than that stands so."""

        async def look() -> dict[str, Any] | None:
            head: dict[str, Any] = json.loads((await self.stack.client.get(ROLLOUT))["data"]["rollout"])
            return head if head["phase"] == wanted and head["target"] != target_but else None

        return await eventually(look, seconds=SECONDS, what=f"the rollout to be {wanted}")

    async def values(self, text: str) -> None:
        await self.stack.set_options(kubevipChartValues=text)


@pytest_asyncio.fixture(scope="module")
async def pair(stack: Stack, fleet: LocalFleet, guest: ControlPlane) -> AsyncIterator[Pair]:
    other_guest = await fleet.guest("other", nodes=1)  # pods of both have to be ready
    labels = {"kube-vip": "true", "kubefip.k8s.binbash.org/canary": "true"}
    first = stack.player.plan_guest("canary", labels=labels)
    second = stack.player.plan_guest("other", labels={"kube-vip": "true"})
    async with bring_up(stack, guest, first) as canary, bring_up(stack, other_guest, second) as other:
        await canary.has_condition(seconds=SECONDS)
        yield Pair(stack=stack, canary=canary, other=other)
    await sweep(guest.client)


async def revisions(guest: ServedGuest, release: str) -> list[tuple[int, str, str]]:
    """The records of a release: revision, status, and the revision that fipop says it made."""
    found = await guest.client.items(SECRETS, labelSelector=f"owner=helm,name={release}")
    labels = [each["metadata"]["labels"] for each in found]
    return sorted(
        (int(each["version"]), each["status"], each.get("kubefip.k8s.binbash.org/revision", ""))
        for each in labels
    )


async def interface(guest: ServedGuest) -> str:
    view = await observe_guest(guest.client)
    for each in view.daemon_sets.values():
        if (each["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == KUBE_VIP:
            pod = each["spec"]["template"]["spec"]
            return next(one["value"] for one in pod["containers"][0]["env"] if one["name"] == "vip_interface")
    return ""


async def test_a_bad_change_stops_at_the_canary_which_goes_back_and_a_good_one_reaches_all(
    pair: Pair,
) -> None:
    stable = await pair.phase("Completed")
    before = await revisions(pair.canary, KUBE_VIP), await revisions(pair.other, KUBE_VIP)
    await pair.values(BAD)
    stopped = await pair.phase("Stopped", target_but=stable["target"])

    count = len(before[0])

    async def is_back() -> bool:
        # The bad revision, and the one that took it back, which says that it is ours.
        return (await revisions(pair.canary, KUBE_VIP))[-1] == (count + 2, "deployed", str(count + 2))

    await eventually(is_back, seconds=SECONDS, what="the canary to go back")
    assert await interface(pair.canary) == "eth0"
    assert await interface(pair.other) == "eth0"
    assert await revisions(pair.other, KUBE_VIP) == before[1]
    after = await revisions(pair.canary, KUBE_VIP)
    assert [revision for revision, _, _ in after] == list(range(1, count + 3))
    reasons = {each["reason"] for each in await pair.stack.client.items(EVENTS)}
    assert {"RolloutStarted", "RolloutStopped"} <= reasons

    # A leader that is new to it changes nothing.
    await pair.stack.operators[-1].process.stop(grace_seconds=0)
    await pair.stack.start_operator()
    await pair.canary.passes(2)
    assert await revisions(pair.canary, KUBE_VIP) == after
    assert (await pair.phase("Stopped"))["target"] == stopped["target"]

    await pair.values(GOOD.format("eth1"))

    async def has_it() -> bool:
        return await interface(pair.canary) == "eth1" and await interface(pair.other) == "eth1"

    await eventually(has_it, seconds=SECONDS, what="the good change to reach both")
    done = await pair.phase("Completed", target_but=stable["target"])
    assert done["stable"] == done["target"]


async def test_a_deleted_daemon_set_is_installed_again(pair: Pair) -> None:
    await pair.phase("Completed")
    view = await observe_guest(pair.canary.client)
    ours = next(
        each
        for each in view.daemon_sets.values()
        if (each["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") == KUBE_VIP
    )
    path = f"/apis/apps/v1/namespaces/kube-system/daemonsets/{ours['metadata']['name']}"
    before = await revisions(pair.canary, KUBE_VIP)
    await pair.canary.client.delete(path)

    async def is_there() -> bool:
        return bool(await interface(pair.canary))

    await eventually(is_there, seconds=SECONDS, what="the DaemonSet")
    number = len(before) + 1

    async def is_ours() -> bool:
        return (await revisions(pair.canary, KUBE_VIP))[-1] == (number, "deployed", str(number))

    await eventually(is_ours, seconds=SECONDS, what="the revision to be ours")
    assert (await pair.stack.client.get(SETTINGS))["data"]["kubevipUpdate"] == "true"
