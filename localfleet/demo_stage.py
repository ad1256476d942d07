"""The stage of the demo: all that runs before its story begins, and ends with it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

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
from localfleet.report import Report

GUESTS = ("demo", "shop", "plain")
OPTED_IN = ("demo", "shop")
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
    management: ControlPlane
    guests: Mapping[str, ControlPlane]
    proxy: RancherProxy
    player: RancherPlayer
    operator: OperatorProcess


@asynccontextmanager
async def open_stage(report: Report, programs: Mapping[str, Path]) -> AsyncIterator[Stage]:
    """Start the fleet, Rancher, the chart repository and the operator; stop them at the end."""
    async with AsyncExitStack() as exits:
        report.chapter("A fleet on this machine: real etcd and Kubernetes API servers")
        fleet = await exits.enter_async_context(LocalFleet(programs))
        management, *planes = await asyncio.gather(
            fleet.management(), *(fleet.guest(name, nodes=1) for name in GUESTS)
        )
        guests = dict(zip(GUESTS, planes, strict=True))
        for plane in (management, *planes):
            report.step(f"{plane.name} is ready at {plane.url}")
        helm = Helm(program=programs["helm"], home=fleet.folder / "helm")
        narrator = await exits.enter_async_context(Narrator(report))
        charts = await exits.enter_async_context(ChartRepository())
        proxy = await exits.enter_async_context(RancherProxy(build_authority("rancher", datetime.now(UTC))))
        player = await _set_up_rancher(report, management, proxy, exits)
        for name, plane in guests.items():
            narrator.watch_guest(name, plane.client)
        await _prepare_guests(report, guests, helm, charts, fleet)
        operator = await _deploy(report, fleet, management, helm, charts)
        exits.push_async_callback(operator.process.stop)
        narrator.watch_management(management.client)
        yield Stage(
            exits=exits,
            fleet=fleet,
            report=report,
            helm=helm,
            management=management,
            guests=guests,
            proxy=proxy,
            player=player,
            operator=operator,
        )


async def _set_up_rancher(
    report: Report, management: ControlPlane, proxy: RancherProxy, exits: AsyncExitStack
) -> RancherPlayer:
    report.chapter("A simulated Rancher in the management cluster")
    player = RancherPlayer(management.client, proxy)
    await player.set_up()
    harvester = await player.create_harvester("harvester-cluster1")
    report.step(f"Rancher has the clusters local and {harvester.display_name} ({harvester.cluster_id})")
    report.step(f"its proxy to guest clusters is at {proxy.url}/k8s/clusters/<id>")
    pinging = asyncio.create_task(player.keep_connected())

    async def end_pinging() -> None:
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)

    exits.push_async_callback(end_pinging)
    return player


async def _prepare_guests(
    report: Report, guests: Mapping[str, ControlPlane], helm: Helm, charts: ChartRepository, fleet: LocalFleet
) -> None:
    for chart in PUBLISHED:
        charts.publish(await helm.pack(chart, fleet.folder / "charts"))
    report.step(
        f"a chart repository at {charts.url} has "
        + ", ".join(f"{one.name} {one.version}" for one in PUBLISHED)
    )
    report.step("demo and plain come with Harvester's own kube-vip")
    for name in ("demo", "plain"):
        await install_harvester_kube_vip(guests[name].client)


async def _deploy(
    report: Report, fleet: LocalFleet, management: ControlPlane, helm: Helm, charts: ChartRepository
) -> OperatorProcess:
    report.chapter("fipop")
    settings = {
        "operateGuestClusterInterval": str(INTERVAL_SECONDS),
        "metricsPort": str(fleet.ports.reserve()),
        "kubevipChartRepoUrl": charts.url,
        "kubevipCloudProviderChartValues": PROVIDER_VALUES,
        "kubevipRolloutMinSuccessTime": str(SUCCESS_SECONDS),
    }
    installation = Installation(plane=management, helm=helm, folder=fleet.folder, settings=settings)
    await installation.install()
    report.step(
        "helm has installed the chart of fipop: CRDs, ServiceAccount, roles, admission policy, options"
    )
    report.step(
        f"kubevipRolloutMinSuccessTime is {SUCCESS_SECONDS}, so that shop does not wait 120 s for the success of demo"
    )
    operator = await installation.operator(fleet.ports)
    report.step("the operator starts as a process, with the rights of the ServiceAccount kube-fip/fipop")
    await operator.start()
    report.step("the operator is ready")
    return operator


async def start_provider(stage: Stage, guest: str) -> None:
    """Run in a guest what the chart of kube-vip-cloud-provider deployed there, as long as the stage is open."""
    provider = ProviderProcess(
        plane=stage.guests[guest], folder=stage.fleet.folder / f"provider-{guest}", ports=stage.fleet.ports
    )
    await provider.start()
    stage.exits.push_async_callback(provider.process.stop)
    stage.report.step(f"fipop runs as the cloud provider of {guest}, in place of kube-vip-cloud-provider")


def kubeconfig_lines(stage: Stage) -> list[str]:
    """What to type to look around with kubectl."""
    kubectl = stage.fleet.programs["kubectl"]
    planes = [stage.management, *stage.guests.values()]
    return [
        f"alias kubectl={kubectl} fipop={Path(sys.executable).parent / 'fipop'}",
        *(f"export KUBECONFIG={plane.admin_kubeconfig}   # {plane.name}" for plane in planes),
        f"fipop status --kubeconfig {stage.management.admin_kubeconfig}",
        f"fipop check --kubeconfig {stage.management.admin_kubeconfig}",
        f"fipop web --kubeconfig {stage.management.admin_kubeconfig}   # the page, at http://127.0.0.1:8090/",
        f"curl -s {stage.operator.metrics_url}",
        f"tail -f {stage.operator.process.log}",
    ]
