"""The stage of the demo: all that runs before its story begins, and ends with it.

Guest clusters start one after the other: on two cores, the first address is there before the last of them.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from localfleet.certificates import build_authority
from localfleet.chartrepo import ChartRepository
from localfleet.controlplane import ControlPlane
from localfleet.fleet import LocalFleet
from localfleet.harvester_guest import install_harvester_kube_vip
from localfleet.helm import PUBLISHED, Helm
from localfleet.installation import Installation, OperatorProcess
from localfleet.narrator import Narrator
from localfleet.provider import ProviderProcess
from localfleet.proxy import RancherProxy
from localfleet.rancher import RancherPlayer
from localfleet.rancher_plan import Guest
from localfleet.report import Report
from localfleet.routes import upstream_of

T = TypeVar("T")

CLUSTER_IDS = {"demo": "c-m-ngd5hs2r", "shop": "c-m-yt15ew7h"}
"""Those of the documentation, whose commands then work as they are shown."""
INTERVAL_SECONDS = 3
SUCCESS_SECONDS = 2
"""Instead of 120: the two guest clusters are installed in turn."""
PROVIDER_VALUES = "image:\n  repository: registry.example/fipop\n  tag: dev\n"
"""fipop in the place of kube-vip-cloud-provider: nothing but its image is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Everything that runs; `exits` has what is stopped at the end."""

    exits: AsyncExitStack
    fleet: LocalFleet
    report: Report
    helm: Helm
    narrator: Narrator
    management: ControlPlane
    proxy: RancherProxy
    player: RancherPlayer
    operator: OperatorProcess
    planes: dict[str, asyncio.Task[ControlPlane]]
    """The control planes of guest clusters, as soon as they start."""
    guests: dict[str, Guest] = field(default_factory=dict)
    """The guest clusters as Rancher has them."""
    providers: dict[str, ProviderProcess] = field(default_factory=dict)
    """By guest cluster, the last one that was started there."""

    def start_planes(self, *names: str) -> None:
        """Start control planes of guest clusters, while the story goes on."""
        for name in names:
            work = _start_plane(self.report, self.fleet, name)
            self.planes[name] = run_beside(self.exits, work)

    async def create_guest(
        self, name: str, *, labels: Mapping[str, str] | None = None, network: str = "vlan10"
    ) -> None:
        """Have Rancher create a guest cluster. Its control plane is started if it was not."""
        if name not in self.planes:
            self.start_planes(name)
        async with self.report.wait(f"the control plane of {name} is ready"):
            plane = await self.planes[name]
        self.narrator.watch_guest(name, plane.client)
        plan = self.player.plan_guest(
            name, labels=labels, network=f"default/{network}", cluster_id=CLUSTER_IDS.get(name)
        )
        self.report.step(f"Rancher creates {name} ({plan.cluster_id})")
        async with self.report.wait(f"Rancher has provisioned {name}"):
            self.guests[name] = await self.player.create_guest(plan, upstream_of(plane))

    def running(self) -> dict[str, ControlPlane]:
        """Return the control planes of guest clusters that are ready."""
        return {name: task.result() for name, task in self.planes.items() if task.done()}

    async def start_provider(self, guest: str) -> None:
        """Run in a guest what the chart of kube-vip-cloud-provider deployed there, as long as the stage is open."""
        folder = self.fleet.folder / f"provider-{guest}"
        plane = await self.planes[guest]
        provider = ProviderProcess(plane=plane, folder=folder, ports=self.fleet.ports)
        async with self.report.wait(f"the cloud provider of {guest} is ready"):
            await provider.start()
        self.providers[guest] = provider
        self.exits.push_async_callback(provider.process.stop)
        self.report.step(f"fipop runs as the cloud provider of {guest}, in place of kube-vip-cloud-provider")


@asynccontextmanager
async def open_stage(report: Report, programs: Mapping[str, Path]) -> AsyncIterator[Stage]:
    """Start the fleet, Rancher, the chart repository and the operator; stop them at the end."""
    async with AsyncExitStack() as exits:
        report.chapter("A fleet on this machine: real etcd and Kubernetes API servers")
        fleet = await exits.enter_async_context(LocalFleet(programs))
        helm = Helm(program=programs["helm"], home=fleet.folder / "helm")
        narrator = await exits.enter_async_context(Narrator(report))
        charts = await exits.enter_async_context(ChartRepository())
        proxy = await exits.enter_async_context(RancherProxy(build_authority("rancher", datetime.now(UTC))))
        first = run_beside(exits, _start_plane(report, fleet, "demo"))
        async with report.wait("the management cluster is ready"):
            management = await fleet.management()
        report.step(f"{management.name} is ready at {management.url}")
        player = await _set_up_rancher(report, management, proxy, exits)
        async with report.wait("helm has packed the charts of kube-vip and its cloud provider"):
            for chart in PUBLISHED:
                charts.publish(await helm.pack(chart, fleet.folder / "charts"))
        names = ", ".join(f"{one.name} {one.version}" for one in PUBLISHED)
        report.step(f"a chart repository at {charts.url} has {names}")
        operator = await _deploy(report, fleet, management, helm, charts)
        exits.push_async_callback(operator.process.stop)
        narrator.watch_management(management.client)
        yield Stage(
            exits=exits,
            fleet=fleet,
            report=report,
            helm=helm,
            narrator=narrator,
            management=management,
            proxy=proxy,
            player=player,
            operator=operator,
            planes={"demo": first},
        )


def run_beside(exits: AsyncExitStack, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run something beside the story, and end it with the stage."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    exits.push_async_callback(end)
    return task


async def _start_plane(report: Report, fleet: LocalFleet, name: str) -> ControlPlane:
    plane = await fleet.guest(name, nodes=1)
    await install_harvester_kube_vip(plane.client)
    report.step(f"{name} is ready at {plane.url}, with Harvester's own kube-vip")
    return plane


async def _set_up_rancher(
    report: Report, management: ControlPlane, proxy: RancherProxy, exits: AsyncExitStack
) -> RancherPlayer:
    report.chapter("A simulated Rancher in the management cluster")
    # Without the pauses of a real Rancher, after which fipop repeats its first visit some seconds later.
    player = RancherPlayer(management.client, proxy, kubeconfig_delay_seconds=0, token_delay_seconds=0)
    async with report.wait("Rancher has its CRDs and the Harvester cluster"):
        await player.set_up()
        harvester = await player.create_harvester("harvester-cluster1")
    report.step(f"Rancher has the clusters local and {harvester.display_name} ({harvester.cluster_id})")
    report.step(f"its proxy to guest clusters is at {proxy.url}/k8s/clusters/<id>")
    run_beside(exits, player.keep_connected())
    return player


async def _deploy(
    report: Report, fleet: LocalFleet, management: ControlPlane, helm: Helm, charts: ChartRepository
) -> OperatorProcess:
    report.chapter("fipop")
    settings = {
        "operateGuestClusterInterval": str(INTERVAL_SECONDS),
        "serviceVisitSeconds": "2",
        "metricsPort": str(fleet.ports.reserve()),
        "kubevipChartRepoUrl": charts.url,
        "kubevipCloudProviderChartValues": PROVIDER_VALUES,
        "kubevipRolloutMinSuccessTime": str(SUCCESS_SECONDS),
    }
    installation = Installation(plane=management, helm=helm, folder=fleet.folder, settings=settings)
    async with report.wait("helm has installed the chart of fipop"):
        await installation.install()
    report.step(
        "helm has installed the chart of fipop: CRDs, ServiceAccount, roles, admission policy, options"
    )
    report.step(
        f"kubevipRolloutMinSuccessTime is {SUCCESS_SECONDS}, so that shop does not wait 120 s for the success of demo"
    )
    operator = await installation.operator(fleet.ports)
    report.step("the operator starts as a process, with the rights of the ServiceAccount kube-fip/fipop")
    async with report.wait("the operator is ready"):
        await operator.start()
    report.step("the operator is ready")
    return operator
