"""A real guest cluster behind Rancher's proxy, with real helm, and an operator whose management cluster is in memory.

The operator is the whole program, built by `build_operator`. It visits each second and rolls out at once. The clock by
which it waits runs `SPEED` times as fast as that of the machine, on which the guest cluster and helm run.
"""

import asyncio
import base64
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fipop.api import names
from fipop.helm.process import LocalHelm, find_helm
from fipop.kube.guests import GuestServers
from fipop.operator.app import OperatorOptions, build_operator
from localfleet.client import ApiClient, Json
from localfleet.controlplane import ControlPlane
from localfleet.harvester_guest import DAEMON_SET
from localfleet.helm import Helm
from localfleet.proxy import GuestRoute, RancherProxy, SeenRequest, upstream_of
from localfleet.waiting import eventually
from tests.harness.api_in_memory import Link, Watched
from tests.harness.fast_time import fast_time
from tests.harness.fleet import WORKSPACE, Fleet
from tests.harness.virtual_time import VirtualClock

SPEED = 4
PATIENCE_SECONDS = 60.0 * SPEED
TOKEN = "kubeconfig-u-guest:secret"
ADDRESS = "10.0.0.10"
PARKED_LABEL = "node-role.kubernetes.io/harvester-kube-vip-disabled"
GOOD_VALUES = """\
env:
  vip_interface: eth0
tolerations:
  - {key: node-role.kubernetes.io/control-plane, operator: Exists}
"""
OTHER_VALUES = GOOD_VALUES + "podAnnotations: {changed: 'yes'}\n"
OPTIONS = {
    "operateGuestClusterInterval": "1",
    "kubevipRolloutType": "All",
    "kubevipRolloutMinSuccessTime": "0",
    "kubevipUpdate": "true",
    "kubevipChartValues": GOOD_VALUES,
    "kubevipCloudProviderChartValues": "replicasCount: 1\n",
}
CONDITIONS = {"kube-vip": "KubeVipReady", "kube-vip-cloud-provider": "CloudProviderReady"}


@dataclass(slots=True, kw_only=True)
class GuestBench:
    """A guest cluster with a floating IP, and the operator that serves it."""

    plane: ControlPlane
    proxy: RancherProxy
    route: GuestRoute
    helm_program: str
    guest_id: str
    fleet: Fleet = field(default_factory=Fleet)
    guests: GuestServers = field(default_factory=GuestServers)
    _task: "asyncio.Task[None] | None" = None

    @property
    def client(self) -> ApiClient:
        return self.plane.client

    def set_options(self, **options: str) -> None:
        """Set options, and leave the others as they are."""
        self.fleet.set_options(**options)

    def opt_in(self, **labels: str) -> None:
        self.fleet.label_guest(self.guest_id, **({names.LABEL_OPT_IN: "true"} | labels))

    async def start(self) -> None:
        """Start the operator, or another one in its place."""
        await self.stop()
        link = Link(self.fleet.memory)

        async def watch(callbacks: Mapping[Any, Callable[[str | None, Any], None]]) -> None:
            await Watched(self.fleet.memory, callbacks).run()

        operator = build_operator(
            OperatorOptions(identity="operator", version="0", health_port=None, leader_election=False),
            api=lambda: link,
            guests=self.guests,
            watch=watch,
            helm=LocalHelm(find_helm(self.helm_program), self.guests),
            clock=VirtualClock(),
            random=Random(1),
        )
        self._task = asyncio.create_task(operator.run())

    async def stop(self) -> None:
        """End the operator as SIGTERM does."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def releases(self) -> dict[str, Json]:
        """Return the releases that the status names, by role."""
        guest = self.fleet.status(self.guest_id).get("guest") or {}
        return {each["role"]: each for each in guest.get("releases") or ()}

    def revisions(self) -> list[int]:
        return [each.get("revision", 0) for each in self.releases().values()]

    def reason(self, role: str = "kube-vip") -> str:
        return self.fleet.condition(self.guest_id, CONDITIONS[role])[1]

    def message(self, role: str = "kube-vip") -> str:
        return self.fleet.message(self.guest_id, CONDITIONS[role])

    async def until(self, is_so: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until something is so; what the conditions say then is in the error."""

        async def check() -> bool:
            return is_so()

        try:
            await eventually(check, seconds=seconds, what="the guest cluster to get there")
        except Exception as error:
            raise AssertionError(f"{error}: {self.fleet.status(self.guest_id)}") from error

    async def until_ready(self, *, seconds: float = PATIENCE_SECONDS) -> None:
        await self.until(lambda: all(self.reason(each) == "Ready" for each in CONDITIONS), seconds=seconds)

    async def until_revisions(self, *wanted: int) -> None:
        await self.until(lambda: self.revisions() == list(wanted) and self.reason() == "Ready")

    async def until_reason(self, reason: str, role: str = "kube-vip") -> None:
        await self.until(lambda: self.reason(role) == reason)

    async def visits(self, number: int = 2) -> list[SeenRequest]:
        """Wait for so many visits, and return the requests from now on."""
        self.proxy.forget_requests()

        async def is_over() -> bool:
            seen = self.proxy.requests_of(self.guest_id)
            return sum(each.path == "/api/v1/configmaps" for each in seen) > number

        await eventually(is_over, seconds=PATIENCE_SECONDS, what="visits")
        return self.proxy.requests_of(self.guest_id)

    async def selector(self) -> dict[str, str]:
        """The node selector of the DaemonSet `kube-system/kube-vip`."""
        found = await self.client.get(DAEMON_SET)
        return dict(found["spec"]["template"]["spec"].get("nodeSelector") or {})

    async def data(self, namespace: str = "kube-system") -> dict[str, str]:
        path = f"/api/v1/namespaces/{namespace}/configmaps/kubevip"
        return (await self.client.find(path) or {}).get("data") or {}

    async def secrets(self, release: str, namespace: str = "kube-system") -> list[Json]:
        return await self.client.items(
            f"/api/v1/namespaces/{namespace}/secrets", labelSelector=f"owner=helm,name={release}"
        )

    async def of_helm(self) -> set[str]:
        """All objects of the releases' kinds that helm made, by kind and name."""
        return set(await self.objects_of_helm())

    async def objects_of_helm(self) -> dict[str, Json]:
        found = {}
        for path in (
            "/apis/apps/v1/daemonsets",
            "/apis/apps/v1/deployments",
            "/api/v1/namespaces/kube-system/serviceaccounts",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        ):
            for each in await self.client.items(path, labelSelector="app.kubernetes.io/managed-by=Helm"):
                found[f"{path.rpartition('/')[2]}/{each['metadata']['name']}"] = each
        return found

    async def helm(self, *arguments: str | Path, values: str = "") -> None:
        """Run helm by hand, as an administrator of the guest; `values` is YAML, in one line."""
        with tempfile.TemporaryDirectory() as folder:
            helm = Helm(program=Path(self.helm_program), home=Path(folder))
            given = ("--set-json", values) if values else ()
            await helm.run(*arguments, "--kubeconfig", self.plane.admin_kubeconfig, *given)

    def helm_processes(self) -> list[int]:
        """The processes of the operator's helm."""
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
    plane: ControlPlane, proxy: RancherProxy, helm: str, guest_id: str, *, speed: int = SPEED, **options: str
) -> AsyncIterator[GuestBench]:
    """Put a guest cluster behind the proxy, with a floating IP, and start an operator."""
    proxy.issue_token(TOKEN)
    proxy.bind_token(TOKEN, guest_id)
    route = proxy.add_guest(guest_id, upstream_of(plane))
    bench = GuestBench(plane=plane, proxy=proxy, route=route, helm_program=helm, guest_id=guest_id)
    bench.fleet.add_range(iprange="10.0.0.10-10.0.0.29")
    bench.fleet.add_guest(guest_id)
    key = ("secrets", WORKSPACE, f"cluster-{guest_id}-kubeconfig")
    secret = bench.fleet.memory.objects[key]
    value = base64.b64encode(json.dumps(_kubeconfig(proxy, guest_id)).encode()).decode()
    bench.fleet.memory.put(key, {**secret, "data": {"value": value}})
    bench.set_options(**OPTIONS | options)
    bench.fleet.ask(guest_id)
    async with fast_time(speed):
        try:
            await bench.start()
            yield bench
        finally:
            await bench.stop()
            await bench.guests.close()
            proxy.remove_guest(guest_id)


def _kubeconfig(proxy: RancherProxy, guest_id: str) -> Json:
    ca = base64.b64encode(proxy.ca_pem.encode()).decode()
    cluster = {"server": proxy.url_of(guest_id), "certificate-authority-data": ca}
    return {
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": TOKEN}}],
        "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
        "current-context": "default",
    }
