"""One guest behind Rancher's door, and the room that makes passes over it."""

import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fipop.api.objects import FloatingIP
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.harvester import PARKED_LABEL
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.charts import HARVESTER_RELEASE, Role
from fipop.guest.limits import GuestLimits
from fipop.guest.release_gate import ReleaseGate, gate_of_settings
from fipop.guest.release_memory import ReleaseMemory
from fipop.guest.reports import GuestTask, PassReport, ReleaseReport
from fipop.kube.guests import GuestServers
from fipop.settings.options import DEFAULTS, Settings, parse_settings
from localfleet.client import ApiClient, Json
from localfleet.controlplane import ControlPlane
from localfleet.harvester_guest import DAEMON_SET
from localfleet.helm import Helm
from localfleet.proxy import GuestRoute, RancherProxy, SeenRequest, upstream_of
from localfleet.waiting import eventually
from tests.harness.reaching import build_runner
from tests.harness.tasks import asking, build_task, permit

TOKEN = "kubeconfig-u-guest:secret"
CONFIG_MAP = "/api/v1/namespaces/{}/configmaps/kubevip"

GOOD_VALUES = """\
env:
  vip_interface: eth0
tolerations:
  - {key: node-role.kubernetes.io/control-plane, operator: Exists}
"""


def settings_with(**options: str) -> Settings:
    """Settings as an admin's ConfigMap would give them; charts that run on the fleet's nodes unless told else."""
    data = {
        "kubevipChartValues": GOOD_VALUES,
        "kubevipCloudProviderChartValues": "replicasCount: 1\n",
        **options,
    }
    settings, bad = parse_settings(data, DEFAULTS)
    assert not bad
    return settings


@dataclass(slots=True, kw_only=True)
class GuestBench:
    """A guest, its door, and the room under test; `settings`, `addresses` and the rest shape the next pass."""

    plane: ControlPlane
    proxy: RancherProxy
    route: GuestRoute
    tools: GuestLimits
    room: GuestSessions
    settings: Settings
    guest_id: str
    opted_in: bool = True
    addresses: tuple[str, ...] = ("10.0.0.1",)
    retired: frozenset[str] = frozenset()
    update_config_map: bool = True
    before_write: Callable[[], Awaitable[bool]] = permit
    more_floating_ips: tuple[FloatingIP, ...] = ()
    gate: ReleaseGate | None = None
    leaving: bool = False
    may_remove: bool = False
    memory: ReleaseMemory = field(default_factory=ReleaseMemory)
    reported: frozenset[tuple[str, str]] = frozenset()
    """The releases that the status of the guest's floating IPs names, by the last pass that told of any."""

    @property
    def client(self) -> ApiClient:
        return self.plane.client

    @property
    def helm_runs(self) -> int:
        return self.tools.helm.runs

    def task(self) -> GuestTask:
        first = asking(
            "demo-kubevip",
            namespace=self.guest_id,
            addresses=self.addresses,
            update_config_map=self.update_config_map,
        )
        return build_task(
            first,
            *self.more_floating_ips,
            guest_id=self.guest_id,
            kubeconfig=self.kubeconfig(),
            opted_in=self.opted_in,
            retired=self.retired,
            settings=self.settings,
            before_write=self.before_write,
            gate=self.gate or gate_of_settings(self.settings),
            leaving=self.leaving,
            may_remove=self.may_remove,
            reported=self.reported,
            memory=self.memory,
        )

    def kubeconfig(self) -> bytes:
        ca = base64.b64encode(self.proxy.ca_pem.encode()).decode()
        cluster = {"server": self.proxy.url_of(self.guest_id), "certificate-authority-data": ca}
        return json.dumps(
            {
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": "user", "user": {"token": TOKEN}}],
                "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
                "current-context": "default",
            }
        ).encode()

    async def run(self, *, deep: bool = False) -> PassReport:
        report = await self.room.run_pass(self.task(), deep=deep)
        if report.releases:
            self.reported = frozenset((each.release.namespace, each.release.name) for each in report.releases)
        return report

    async def settle(self, *, seconds: float = 60.0) -> PassReport:
        """Make passes until both releases are ready and nothing is left to do."""

        async def is_settled() -> PassReport | None:
            report = await self.run()
            assert report.error is None, report.error
            ready = all(release.readiness.ready for release in report.releases) and report.releases
            return report if ready and not await self.runs_harvester() else None

        return await eventually(is_settled, seconds=seconds, what="the guest to settle")

    async def runs_harvester(self) -> bool:
        """Whether Harvester's own kube-vip is there and is not parked."""
        found = await self.client.find(DAEMON_SET)
        annotations = (found or {}).get("metadata", {}).get("annotations") or {}
        is_harvester = annotations.get("meta.helm.sh/release-name") == HARVESTER_RELEASE
        return is_harvester and PARKED_LABEL not in await self.selector()

    async def selector(self) -> dict[str, str]:
        """The node selector of the DaemonSet `kube-system/kube-vip`."""
        found = await self.client.get(DAEMON_SET)
        return dict(found["spec"]["template"]["spec"].get("nodeSelector") or {})

    async def requests_of_a_pass(self) -> list[SeenRequest]:
        self.proxy.forget_requests()
        await self.run()
        return self.proxy.requests_of(self.guest_id)

    async def config_map(self, namespace: str = "kube-system") -> Json | None:
        return await self.client.find(CONFIG_MAP.format(namespace))

    async def data(self, namespace: str = "kube-system") -> dict[str, str]:
        found = await self.config_map(namespace)
        return (found or {}).get("data") or {}

    async def put_config_map(self, namespace: str = "kube-system", **data: str) -> None:
        """As the predecessor, or anybody, would have left it."""
        named = {key.replace("_", "-"): value for key, value in data.items()}
        await self.client.create(
            f"/api/v1/namespaces/{namespace}/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevip"}, "data": named},
        )

    async def secrets(self, release: str, namespace: str = "kube-system") -> list[Json]:
        return await self.client.items(
            f"/api/v1/namespaces/{namespace}/secrets", labelSelector=f"owner=helm,name={release}"
        )

    async def helm(self, *arguments: str | Path, values: str = "") -> None:
        """Run helm by hand, as an administrator of the guest; `values` is YAML, in one line."""
        with tempfile.TemporaryDirectory() as folder:
            helm = Helm(program=Path(self.tools.helm.executable), home=Path(folder))
            given = ("--set-json", values) if values else ()
            await helm.run(*arguments, "--kubeconfig", self.plane.admin_kubeconfig, *given)


def release_of(report: PassReport, role: Role) -> ReleaseReport:
    return next(release for release in report.releases if release.role is role)


def helm_processes() -> list[int]:
    """The processes that run helm below this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = folder.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            program = folder.joinpath("cmdline").read_bytes().split(b"\0")[0]
        except OSError:
            continue  # it ended while we looked
        if int(parent) == os.getpid() and program.endswith(b"/helm"):
            found.append(int(folder.name))
    return found


@asynccontextmanager
async def open_bench(
    plane: ControlPlane, proxy: RancherProxy, settings: Settings, helm: str, guest_id: str, **runner: Any
) -> AsyncIterator[GuestBench]:
    """Put a guest behind the door and make a room for it."""
    proxy.issue_token(TOKEN)
    proxy.bind_token(TOKEN, guest_id)
    route = proxy.add_guest(guest_id, upstream_of(plane))
    guests = GuestServers()
    helm_runner = build_runner(helm, guests=guests, **runner)
    tools = GuestLimits(helm=helm_runner, charts=ChartCache(helm_runner, failure_seconds=0.5), guests=guests)
    room = GuestSessions(tools)
    bench = GuestBench(
        plane=plane, proxy=proxy, route=route, tools=tools, room=room, settings=settings, guest_id=guest_id
    )
    try:
        yield bench
    finally:
        await room.close()
        await guests.close()
        proxy.remove_guest(guest_id)
