"""fipop as a guest's cloud provider: deployed by the chart of kube-vip-cloud-provider, run outside as its account.

There is no kubelet, so nothing runs in the Deployment's pods. The same program runs as a process: with the
Deployment's command line and environment, and a token of its ServiceAccount, so that all of its RBAC is in force.
"""

import base64
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from localfleet.controlplane import ControlPlane
from localfleet.helm import Helm
from localfleet.kubeconfigs import write_kubeconfig
from localfleet.ports import Ports
from localfleet.processes import Process

CHART = Path(__file__).parent / "charts" / "kube-vip-cloud-provider"
NAME = "kube-vip-cloud-provider"
NAMESPACE = "kube-system"
CONFIG_MAP = "kubevip"
IMAGE = {"image.repository": "registry.example/fipop", "image.tag": "dev"}
_TOKEN_SECONDS = 24 * 3600
_READY_SECONDS = 60.0


async def install_provider(
    plane: ControlPlane, helm: Helm, *, values: Mapping[str, str] | None = None
) -> None:
    """Install the chart of kube-vip-cloud-provider with fipop as its image, as the operator does it."""
    chosen = {"configMapName": CONFIG_MAP, **IMAGE, **(values or {})}
    await helm.run(
        *("install", NAME, CHART, "--namespace", NAMESPACE, "--kubeconfig", plane.admin_kubeconfig),
        *(argument for name, value in chosen.items() for argument in ("--set", f"{name}={value}")),
    )


@dataclass(slots=True, kw_only=True)
class ProviderProcess:
    """A cloud provider that runs as the chart's Deployment says, with `arguments` and `environment` besides.

    `program` is the name that it is started by; None: the one of the Deployment's command. `server` is an API server's
    URL other than the control plane's own, with its `authority`.
    """

    plane: ControlPlane
    folder: Path
    ports: Ports
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    deployment: str = NAME
    server: str | None = None
    authority: bytes = b""
    program: str | None = None
    process: Process = field(init=False)
    url: str = field(init=False, default="")

    async def start(self) -> None:
        """Start it, and return when it says that it lives. Raises ProcessFailedError."""
        await self.begin()
        await self.process.wait_until(self.is_ready, timeout_seconds=_READY_SECONDS)

    async def begin(self) -> None:
        """Start it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pod = await self._pod()
        container = pod["containers"][0]
        token = await self.plane.token_for(NAMESPACE, pod["serviceAccountName"], seconds=_TOKEN_SECONDS)
        kubeconfig = self.plane.kubeconfig_for_token(token)
        if self.server is not None:
            cluster = kubeconfig["clusters"][0]["cluster"]
            cluster["server"] = self.server
            cluster["certificate-authority-data"] = base64.b64encode(self.authority).decode()
        path = write_kubeconfig(self.folder / "kubeconfig", kubeconfig)
        port = self.ports.reserve()
        self.url = f"http://127.0.0.1:{port}"
        program, *deployed = container["command"]
        # What is said last holds: where the files and ports of a pod would be others.
        argv = [
            str(Path(sys.executable).parent / (self.program or Path(program).name)),
            *deployed,
            *(container.get("args") or ()),
            *(f"--kubeconfig={path}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *self.arguments,
        ]
        environment = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
        self.process = Process(
            "cloud provider",
            argv,
            log=self.folder / "provider.log",
            environment={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": str(self.folder),
                **environment,
                **self.environment,
            },
        )
        await self.process.start()

    async def stop(self) -> int:
        """Ask it to end and wait for that; its exit code."""
        await self.process.stop(grace_seconds=30.0)
        return await self.process.wait()

    async def is_ready(self) -> bool:
        """Whether its readiness probe is green."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False

    async def metrics(self) -> str:
        """What Prometheus would scrape."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as answer:
            return await answer.text()

    async def _pod(self) -> dict[str, Any]:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{self.deployment}"
        found = await self.plane.client.get(path)
        spec: dict[str, Any] = found["spec"]["template"]["spec"]
        return spec
