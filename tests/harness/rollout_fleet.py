"""A fleet of real and simulated guests in which an operator keeps releases, by real helm and a stand-in for it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localfleet.assets import ensure
from localfleet.chartrepo import ChartRepository
from localfleet.client import ApiClient
from localfleet.fleet import LocalFleet
from localfleet.helm import PUBLISHED, Helm
from localfleet.installation import NAMESPACE
from localfleet.rancher_plan import Guest
from localfleet.routes import upstream_of
from localfleet.simulated import SimulatedGuest
from localfleet.stack import RANGES, Stack, build_range, open_stack
from localfleet.standin_helm import write_program
from localfleet.waiting import eventually

ROLLOUT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/fipop-rollout"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CANARIES = 2
STOPPED = "Stopped"


class RolloutStoppedError(Exception):
    """The rollout to `target` stopped, so nothing more is to be waited for."""


def must_go_on(head: dict[str, Any], target: str) -> None:
    """Raise RolloutStoppedError if the rollout to `target` has stopped."""
    if head["target"] == target and head["phase"] == STOPPED:
        raise RolloutStoppedError(head["reason"])


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
    seconds: float
    members: dict[str, Member] = field(default_factory=dict)

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

        return await eventually(is_new, seconds=self.seconds, what="another target")

    async def until(self, phase: str, target: str = "") -> dict[str, Any]:
        async def is_so() -> dict[str, Any] | None:
            head = await self.state()
            if phase != STOPPED:
                must_go_on(head, target)
            return head if head["phase"] == phase and target in ("", head["target"]) else None

        return await eventually(is_so, seconds=self.seconds, what=f"the rollout to be {phase}")

    async def failed(self, number: int) -> None:
        """Wait until so many guest clusters have failed: who has not yet does so by the deadline of then."""

        async def have_failed() -> bool:
            return len((await self.state())["failed"]) == number

        await eventually(have_failed, seconds=self.seconds, what=f"{number} guest clusters to fail")

    async def reached(self, number: int, target: str, before: str) -> None:
        """Wait until so many guest clusters have something else than before."""

        async def are_reached() -> bool:
            must_go_on(await self.state(), target)
            found = (await self.digests()).values()
            return sum(each not in ("", before) for each in found) >= number

        await eventually(are_reached, seconds=self.seconds, what=f"{number} guest clusters to be reached")

    async def digests(self) -> dict[str, str]:
        return {name: await each.digest() for name, each in self.members.items()}

    async def revisions(self) -> dict[str, int]:
        return {name: int((await each.records())[-1]["version"]) for name, each in self.members.items()}

    async def agree(self, digest_of: Callable[[], Awaitable[dict[str, str]]], wanted: str) -> None:
        async def are_all() -> bool:
            return set((await digest_of()).values()) == {wanted}

        await eventually(are_all, seconds=self.seconds, what="all guests to agree")

    async def stable(self) -> str:
        """Wait until all have the stable target; its digest."""
        await self.until("Completed")

        async def agreed() -> str | None:
            found = set((await self.digests()).values())
            return found.pop() if len(found) == 1 else None

        return await eventually(agreed, seconds=self.seconds, what="all guests to agree")

    async def bring_up(self, name: str, target: Any, **labels: str) -> Member:
        """Have a guest: a real one, or a simulated one."""
        plane = None if isinstance(target, SimulatedGuest) else target
        plan = self.stack.player.plan_guest(name, labels=labels)
        guest = await self.stack.player.create_guest(plan, target if plane is None else upstream_of(plane))
        api = plane.client if plane is not None else None
        member = self.members[guest.cluster_id] = Member(guest=guest, api=api, target=target)
        return member

    async def come_up(self, targets: list[Any]) -> None:
        """Have guests, a few at once, and wait until both releases are in each."""
        named = [(f"member-{number}", each) for number, each in enumerate(targets)]
        for first in range(0, len(targets), 20):
            await asyncio.gather(*(self.bring_up(*each) for each in named[first : first + 20]))
        await self.until("Completed")

        async def are_installed() -> bool:
            return all([await each.digest() for each in self.members.values()])

        await eventually(are_installed, seconds=3 * self.seconds, what="both releases everywhere")


@asynccontextmanager
async def open_fleet(
    fleet: LocalFleet, name: str, folder: Path, *, seconds: float, deadline_seconds: int = 600
) -> AsyncIterator[Fleet]:
    """Install fipop with updates on, and quick rollouts; no operator runs, and there is no guest."""
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
            "guestRequestsPerSecond": "1000",
            "kubevipRolloutCanaries": str(CANARIES),
            "kubevipRolloutMaxConcurrency": "25%",
            "kubevipRolloutMinSuccessTime": "1",
            "kubevipRolloutProgressDeadline": str(deadline_seconds),
            "kubevipChartValues": "hostAliases: []",
        }
        async with open_stack(fleet, name, settings=settings) as stack:
            vlan = build_range("vlan", "10.90.0.0/16", harvester="harvester-cluster1")
            await stack.client.create(RANGES, vlan)
            program = str(write_program(folder / "bin", real_helm))
            yield Fleet(stack=stack, charts=charts, helm=program, seconds=seconds)
