"""Rollouts over a fleet by a running operator: real guests with real helm, and simulated ones with a stand-in for it.

A few guests and the two main stories here; `make rollouts` runs all of them with 200 guests, of which 5 are real.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.client import ApiClient
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.installation import NAMESPACE
from localfleet.rancher_plan import Guest
from localfleet.routes import Fault, upstream_of
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_range, open_stack
from localfleet.standin_helm import write_program
from localfleet.waiting import eventually

IS_WHOLE = "FIPOP_ROLLOUT_SIMULATED" in os.environ
SIMULATED = int(os.environ.get("FIPOP_ROLLOUT_SIMULATED", "7"))
REAL = int(os.environ.get("FIPOP_ROLLOUT_REAL", "1"))
SECONDS = 60.0 + 2.0 * (SIMULATED + REAL)
ROLLOUT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CANARIES = 2

pytestmark = pytest.mark.timeout(int(30 * SECONDS))


@dataclass(slots=True, kw_only=True)
class Member:
    """One guest; `api` is a real one's."""

    guest: Guest
    api: ApiClient | None = None

    async def records(self, release: str = "kube-vip") -> list[dict[str, str]]:
        """The labels of the release's records, the oldest first."""
        if self.api is not None:
            items = await self.api.items(SECRETS, labelSelector=f"owner=helm,name={release}")
        else:
            items = [
                each
                for (plural, _, _), each in self.simulated.objects.items()
                if plural == "secrets" and each["metadata"]["labels"].get("name") == release
            ]
        return sorted((each["metadata"]["labels"] for each in items), key=lambda each: int(each["version"]))

    async def digest(self) -> str:
        """That of the deployed revision of kube-vip."""
        deployed = [each for each in await self.records() if each["status"] == "deployed"]
        return deployed[-1]["kubefip.k8s.binbash.org/digest"] if len(deployed) == 1 else ""

    @property
    def simulated(self) -> SimulatedGuest:
        assert isinstance(self.target, SimulatedGuest)
        return self.target

    target: Any = field(default=None)


@dataclass(slots=True, kw_only=True)
class Fleet:
    """All of them, and what changes are asked for."""

    stack: Stack
    charts: ChartRepository
    helm: str
    members: dict[str, Member] = field(default_factory=dict)

    async def start(self) -> None:
        await self.stack.start_operator(f"--helm={self.helm}")

    def kill(self) -> None:
        os.kill(self.stack.operators[-1].process.pid, signal.SIGKILL)

    async def state(self) -> dict[str, Any]:
        head: dict[str, Any] = json.loads((await self.stack.client.get(ROLLOUT))["data"]["rollout"])
        return head

    async def change(self, tag: str, **stand_in: bool) -> str:
        """Ask for other values; the name of their target."""
        before = (await self.state())["target"]
        values: dict[str, Any] = {
            "image": {"tag": tag},
            "env": {"vip_interface": "eth0"},
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        }
        if stand_in:
            values["standIn"] = stand_in
        if stand_in.get("refuse"):
            values["image"] = "real helm refuses that, too"
        if stand_in.get("unready"):
            values["nodeSelector"] = {"no-such-node": "true"}
        await self.stack.set_options(kubevipChartValues=json.dumps(values))

        async def is_new() -> str | None:
            target: str = (await self.state())["target"]
            return target if target != before else None

        return await eventually(is_new, seconds=SECONDS, what="another target")

    async def until(self, phase: str, target: str = "") -> dict[str, Any]:
        async def is_so() -> dict[str, Any] | None:
            head = await self.state()
            return head if head["phase"] == phase and target in ("", head["target"]) else None

        return await eventually(is_so, seconds=SECONDS, what=f"the rollout to be {phase}")

    async def wave(self, number: int) -> None:
        async def has_begun() -> bool:
            return bool((await self.state())["wave"] >= number)

        await eventually(has_begun, seconds=SECONDS, what=f"wave {number}")

    async def digests(self) -> dict[str, str]:
        return {name: await each.digest() for name, each in self.members.items()}

    async def revisions(self) -> dict[str, int]:
        return {name: int((await each.records())[-1]["version"]) for name, each in self.members.items()}

    async def agree(self, digest_of: Callable[[], Awaitable[dict[str, str]]], wanted: str) -> None:
        async def are_all() -> bool:
            return set((await digest_of()).values()) == {wanted}

        await eventually(are_all, seconds=SECONDS, what="all guests to agree")


@pytest_asyncio.fixture(scope="module")
async def fleet_of(fleet: LocalFleet, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    folder = tmp_path_factory.mktemp("rollout-fleet")
    real_helm = ensure("helm")
    helm = Helm(program=real_helm, home=folder / "home")
    async with ChartRepository() as charts:
        for chart in PUBLISHED:
            charts.publish(await helm.pack(chart, folder))
        settings = {
            "kubevipGuestInstall": "enabled",
            "kubevipUpdate": "true",
            "kubevipChartRepoUrl": charts.url,
            "operateGuestClusterInterval": "10",
            "helmConcurrency": "8",
            "kubevipRolloutCanaries": str(CANARIES),
            "kubevipRolloutMaxConcurrency": "25%",
            "kubevipRolloutMinSuccessTime": "1",
            "kubevipRolloutProgressDeadline": "12",
            "kubevipChartValues": "hostAliases: []",
        }
        async with open_stack(fleet, "rollout-fleet", settings=settings) as stack:
            everybody = Fleet(stack=stack, charts=charts, helm=str(write_program(folder / "bin", real_helm)))
            vlan = build_range("vlan", "10.90.0.0/16", harvester="harvester-cluster1")
            await stack.client.create(RANGES, vlan)
            await everybody.start()
            planes = [await fleet.guest(f"rollout-{number}", nodes=1) for number in range(REAL)]

            async def bring_up(number: int) -> None:
                plane = planes[number] if number < REAL else None
                target = upstream_of(plane) if plane is not None else SimulatedGuest(latency_seconds=0.01)
                plan = stack.player.plan_guest(f"member-{number}")
                guest = await stack.player.create_guest(plan, target)
                everybody.members[guest.cluster_id] = Member(
                    guest=guest, api=plane.client if plane is not None else None, target=target
                )

            for first in range(0, SIMULATED + REAL, 20):
                numbers = range(first, min(first + 20, SIMULATED + REAL))
                await asyncio.gather(*map(bring_up, numbers))
            await everybody.until("Completed")

            async def are_installed() -> bool:
                return all([await each.digest() for each in everybody.members.values()])

            await eventually(are_installed, seconds=3 * SECONDS, what="both releases everywhere")
            yield everybody
            for plane in planes:
                await fleet.remove(plane)


async def stable(fleet: Fleet) -> str:
    """Wait until all have the stable target; its digest."""
    await fleet.until("Completed")

    async def agreed() -> str | None:
        found = set((await fleet.digests()).values())
        return found.pop() if len(found) == 1 else None

    return await eventually(agreed, seconds=SECONDS, what="all guests to agree")


async def test_a_change_reaches_all_in_waves_also_past_killed_leaders(fleet_of: Fleet) -> None:
    before, revisions = await stable(fleet_of), await fleet_of.revisions()
    target = await fleet_of.change("v1.0.0")
    for wave in (1, 2, 3):
        await fleet_of.wave(wave)
        fleet_of.kill()
        await fleet_of.start()
    await fleet_of.until("Completed", target)
    after = await stable(fleet_of)
    assert after != before
    # One revision for each guest, whoever led: nothing was done twice.
    assert await fleet_of.revisions() == {name: number + 1 for name, number in revisions.items()}


whole = pytest.mark.skipif(not IS_WHOLE, reason="of make rollouts")


@pytest.mark.parametrize("harm", ["unready", pytest.param("refuse", marks=whole)])
async def test_a_bad_change_never_reaches_more_than_the_canaries(fleet_of: Fleet, harm: str) -> None:
    before, revisions = await stable(fleet_of), await fleet_of.revisions()
    target = await fleet_of.change(f"v6.6.6-{harm}", **{harm: True})
    await fleet_of.until("Stopped", target)
    fleet_of.kill()
    await fleet_of.start()
    await fleet_of.agree(fleet_of.digests, before)
    changed = {name for name, number in (await fleet_of.revisions()).items() if number != revisions[name]}
    assert len(changed) <= CANARIES
    # Another target supersedes, and begins with canaries.
    target = await fleet_of.change(f"v1.0.1-{harm}")
    await fleet_of.until("Completed", target)
    assert await stable(fleet_of) != before


@whole
async def test_guests_out_of_reach_follow_when_they_are_back(fleet_of: Fleet) -> None:
    before = await stable(fleet_of)
    lost = [each for each in fleet_of.members.values() if each.api is None][:: max(SIMULATED // 20, 5)]
    routes = [fleet_of.stack.proxy.guests[each.guest.cluster_id] for each in lost]
    for route in routes:
        route.fault = Fault(refuse=True)
    await asyncio.sleep(12)  # the interval: they are known to be out of reach
    target = await fleet_of.change("v1.1.0")
    await fleet_of.until("Completed", target)
    found = await fleet_of.digests()
    assert {found[each.guest.cluster_id] for each in lost} == {before}
    for route in routes:
        route.fault = None
    assert await stable(fleet_of) != before


@whole
async def test_a_source_of_charts_that_goes_away_in_the_middle_and_a_pause(fleet_of: Fleet) -> None:
    before = await stable(fleet_of)
    target = await fleet_of.change("v1.2.0")
    await fleet_of.wave(1)
    await fleet_of.stack.set_options(kubevipRolloutPaused="true")
    await asyncio.sleep(5)
    head = await fleet_of.state()
    await asyncio.sleep(5)
    assert (await fleet_of.state())["wave"] == head["wave"]
    await fleet_of.stack.set_options(kubevipRolloutPaused="false")
    for chart in PUBLISHED:
        fleet_of.charts.retract(chart.name, chart.version)
    await fleet_of.until("Completed", target)
    assert await stable(fleet_of) != before
