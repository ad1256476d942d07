"""fipop as it is deployed: the chart installed by helm, the program run outside as its ServiceAccount.

A fleet of one machine has no kubelet and no images, so the chart's Deployment stands at 0 replicas, and the same
program runs as a process: with the Deployment's arguments and the variables that values add to it, a token of the
chart's ServiceAccount (so all of its RBAC is in force) and the mounted settings as files.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from localfleet.chart import ROOT, copy_chart
from localfleet.controlplane import ControlPlane
from localfleet.helm import Helm
from localfleet.kubeconfigs import write_kubeconfig
from localfleet.ports import Ports
from localfleet.processes import Process

NAMESPACE = "kube-fip"
RELEASE = "fipop"
_TOKEN_SECONDS = 24 * 3600
ENDED = 1
"""The exit code of an operator that only a new process can go on from; the last line of its log says why."""
_RESTART_SECONDS = 0.5
_READY_SECONDS = 180.0
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What the chart left in the management cluster, and how a process runs on it, with `environment` besides."""

    plane: ControlPlane
    helm: Helm
    folder: Path
    settings: Mapping[str, str]
    values: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    program: Path | None = None
    """What runs as the operator; None: the one of this checkout."""
    namespace: str = NAMESPACE
    release: str = RELEASE

    async def install(self) -> None:
        """Install the chart of this repository, with `settings` as the defaults of kube-fip-config."""
        chart = copy_chart(self.folder / "chart")
        chosen = {
            "replicas": "0",
            **self.values,
            **{f"settings.{name}": value for name, value in self.settings.items()},
        }
        await self.helm.run(
            *("install", self.release, chart, "--namespace", self.namespace, "--create-namespace"),
            *("--kubeconfig", self.plane.admin_kubeconfig),
            *(argument for name, value in chosen.items() for argument in ("--set", f"{name}={value}")),
        )

    async def operator(
        self,
        ports: Ports,
        *arguments: str,
        name: str = "operator",
        environment: Mapping[str, str] | None = None,
    ) -> "OperatorProcess":
        """Prepare the operator as a process that may do what the chart allows, and no more."""
        folder = self.folder / name
        defaults = folder / "settings-defaults"
        defaults.mkdir(parents=True)
        config_maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        mounted = await self.plane.client.get(f"{config_maps}/{self.release}-settings-defaults")
        for option, value in mounted["data"].items():
            (defaults / option).write_text(value)
        token = await self.plane.token_for(self.namespace, self.release, seconds=_TOKEN_SECONDS)
        kubeconfig = write_kubeconfig(folder / "kubeconfig", self.plane.kubeconfig_for_token(token))
        health_port = ports.reserve()
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        deployment = await self.plane.client.get(f"{deployments}/{self.release}")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        deployed = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        argv = [
            str(self.program or Path(sys.executable).parent / "fipop"),
            *container["args"],
            # What is said last holds: where the files and ports of a pod would be others.
            *(f"--kubeconfig={kubeconfig}", f"--health-port={health_port}"),
            *(f"--settings-defaults={defaults}", f"--crds={ROOT / 'crds'}"),
            *arguments,
        ]
        return OperatorProcess(
            argv=argv,
            folder=folder,
            environment={**self._environment(folder, name), **deployed, **(environment or {})},
            health_port=health_port,
            metrics_port=int(mounted["data"]["metricsPort"]),
        )

    def _environment(self, folder: Path, name: str) -> dict[str, str]:
        return {
            "PATH": f"{self.helm.program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "POD_NAMESPACE": self.namespace,
            "POD_NAME": name,
            **self.environment,
        }


def has_lost_lease(log: Path) -> bool:
    """Return whether the last line of a log says that a Lease was lost."""
    lines = log.read_text(errors="replace").splitlines()
    return bool(lines) and "Lease" in lines[-1] and "was lost" in lines[-1]


class OperatorProcess:
    """A running `fipop operator`.

    One that was ready, and that ends with exit code 1, is started again as by a kubelet: `ended` counts that.
    """

    def __init__(
        self,
        *,
        argv: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        health_port: int,
        metrics_port: int,
    ) -> None:
        """Prepare; `start` begins."""
        self.process = Process("fipop operator", argv, log=folder / "operator.log", environment=environment)
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self.health_url = f"http://127.0.0.1:{health_port}"
        self.ended = 0
        self._kubelet: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start it and return when it says that it is ready. Raises ProcessFailedError."""
        await self.process.start()
        await self.process.wait_until(self.is_ready, timeout_seconds=_READY_SECONDS)
        self._kubelet = asyncio.create_task(self._start_again())

    async def stop(self) -> int:
        """Ask it to end and wait for that; its exit code."""
        await self.process.stop(grace_seconds=_STOP_SECONDS)
        return await self.process.wait()

    async def is_ready(self) -> bool:
        """Whether its readiness probe is green."""
        return await self._probe("/readyz")

    async def is_live(self) -> bool:
        """Whether its liveness probe is green."""
        return await self._probe("/livez")

    async def metrics(self) -> str:
        """What a scrape answers now."""
        async with aiohttp.ClientSession() as session, session.get(self.metrics_url) as answer:
            answer.raise_for_status()
            return await answer.text()

    async def _start_again(self) -> None:
        while await self.process.wait() == ENDED:
            self.ended += 1
            await asyncio.sleep(_RESTART_SECONDS)
            await self.process.start()

    async def _probe(self, path: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.health_url + path) as answer,
            ):
                return answer.ok
        except (aiohttp.ClientError, TimeoutError):
            return False
