"""A real control plane on loopback: kube-apiserver, and what else a test or the demo needs of it."""

import asyncio
import datetime as dt
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from localfleet.client import ApiClient, Json
from localfleet.components import (
    Files,
    build_api_server,
    build_controller_manager,
    build_credentials,
    build_kwok,
    build_node,
    build_scheduler,
)
from localfleet.etcd import Etcd
from localfleet.kubeconfigs import build_kubeconfig, token_credential
from localfleet.ports import Ports
from localfleet.processes import Process, build_environment, run_to_end
from localfleet.servers import start_server

_API_SERVER = "kube-apiserver"
_CONTROLLER_MANAGER = "kube-controller-manager"
_SCHEDULER = "kube-scheduler"
_KWOK = "kwok"
_KUBECTL = "kubectl"

# An API server is ready after 4 s on an idle machine. A machine that is loaded must not fail a run.
_START_SECONDS = 180.0
_SETTLE_SECONDS = 90.0
_KUBECTL_SECONDS = 180.0
_NODES = "/api/v1/nodes"
_NAMESPACES = "/api/v1/namespaces"


class ControlPlane:
    """One Kubernetes control plane with a store of its own (a prefix in `etcd`) and keys of its own.

    `controllers` names what the kube-controller-manager runs (it does not run without any), `nodes` is the
    number of fake nodes (kwok runs if there is one). More nodes may be created later: kwok makes each ready.
    """

    def __init__(
        self,
        name: str,
        *,
        etcd: Etcd,
        folder: Path,
        ports: Ports,
        programs: Mapping[str, Path],
        controllers: Sequence[str] = (),
        scheduler: bool = False,
        nodes: int = 0,
    ) -> None:
        self.name = name
        self.etcd = etcd
        self.files = Files(folder=folder / name)
        self._ports = ports
        self._programs = programs
        self._controllers = tuple(controllers)
        self._has_scheduler = scheduler
        self._nodes = nodes
        self._port = 0
        self._api: Process | None = None
        self._others: dict[str, Process] = {}
        self._client: ApiClient | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca_pem(self) -> bytes:
        """The CA that the API server's certificate is checked with."""
        return self.files.authority.read_bytes()

    @property
    def admin_kubeconfig(self) -> Path:
        return self.files.kubeconfig("admin")

    @property
    def client(self) -> ApiClient:
        """A connection as admin, open as long as the control plane is started."""
        assert self._client is not None, "the control plane was not started"
        return self._client

    @property
    def api(self) -> Process:
        """The kube-apiserver."""
        assert self._api is not None, "the control plane was not started"
        return self._api

    async def start(self) -> None:
        """Start everything and wait until it works; after `stop`, at the same port and with the same data."""
        try:
            await self.start_api()
            if not self._others:
                self._others = self._build_others()
            for process in self._others.values():
                await process.start()
            await self._settle()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything abruptly: there is nothing in these processes that the store does not have."""
        await self._stop_processes()
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def restart(self) -> None:
        """Stop and start everything: for after a restore of the store, which leaves caches ahead of it."""
        await self._stop_processes()
        await self.start()

    async def _stop_processes(self) -> None:
        await asyncio.gather(*(process.stop(grace_seconds=0) for process in self._others.values()))
        await self.stop_api()

    async def start_api(self) -> None:
        """Start the kube-apiserver alone; its clients among our processes find it again by themselves."""
        if self._api is None:
            await self._start_api_first()
        else:
            await self._api.start()
        if self._client is None:
            self._client = ApiClient(self.url, self._admin_tls())
        await self.wait_ready()

    async def stop_api(self) -> None:
        """Take the kube-apiserver away: connections are refused, as in an outage."""
        if self._api is not None:
            await self._api.stop(grace_seconds=0)

    def pause(self) -> None:
        """Freeze the kube-apiserver: connections are accepted and nothing is answered."""
        self.api.pause()

    def resume(self) -> None:
        self.api.resume()

    async def wait_ready(self) -> None:
        """Wait until /readyz says yes. Raises ProcessFailedError."""
        tls = self._admin_tls()
        await self.api.wait_until(lambda: _is_ready(self.url, tls), timeout_seconds=_START_SECONDS)

    async def token_for(self, namespace: str, account: str, *, seconds: int = 3600) -> str:
        """A token of the ServiceAccount `namespace`/`account`, by TokenRequest."""
        answer = await self.client.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": seconds},
            },
        )
        token: str = answer["status"]["token"]
        return token

    async def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace and wait until pods may be made in it."""
        await self.client.create(
            _NAMESPACES,
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": dict(labels or {})},
            },
        )
        await self._wait_for_default_account(name)

    def kubeconfig_for_token(self, token: str) -> dict[str, Any]:
        """A kubeconfig that reaches this control plane directly with a bearer token."""
        return build_kubeconfig(self.name, self.url, self.ca_pem, "user", token_credential(token))

    async def kubectl(
        self, *arguments: str, stdin: str = "", timeout_seconds: float = _KUBECTL_SECONDS
    ) -> str:
        """Run the real kubectl as admin; its standard output. Raises ToolFailedError with what it wrote."""
        return await run_to_end(
            [self._programs[_KUBECTL], f"--kubeconfig={self.admin_kubeconfig}", *arguments],
            stdin=stdin,
            environment=build_environment(self.files.folder),
            timeout_seconds=timeout_seconds,
        )

    async def _start_api_first(self) -> None:
        credentials = build_credentials(self.name, dt.datetime.now(dt.UTC))
        self.files.write(credentials)
        tls = self._admin_tls()

        def build(port: int) -> Process:
            argv = build_api_server(
                self._programs[_API_SERVER],
                self.files,
                etcd_url=self.etcd.url,
                etcd_prefix=f"/{self.name}",
                port=port,
            )
            return self._process(_API_SERVER, argv)

        self._port, self._api = await start_server(
            self._ports,
            build,
            lambda port: _is_ready(f"https://127.0.0.1:{port}", tls),
            timeout_seconds=_START_SECONDS,
        )
        self.files.write_kubeconfigs(self.name, self.url, credentials)

    def _build_others(self) -> dict[str, Process]:
        lines: dict[str, Sequence[str]] = {}
        if self._controllers:
            program = self._programs[_CONTROLLER_MANAGER]
            lines[_CONTROLLER_MANAGER] = build_controller_manager(program, self.files, self._controllers)
        if self._has_scheduler:
            lines[_SCHEDULER] = build_scheduler(self._programs[_SCHEDULER], self.files)
        if self._nodes:
            lines[_KWOK] = build_kwok(self._programs[_KWOK], self.files)
        return {program: self._process(program, argv) for program, argv in lines.items()}

    def _process(self, program: str, argv: Sequence[str]) -> Process:
        return Process(
            f"{program} of {self.name}",
            argv,
            log=self.files.log(program),
            environment=build_environment(self.files.folder),
        )

    async def _settle(self) -> None:
        await self._wait_for_default_account("default")
        if self._nodes:
            await self._add_nodes()
            await self._others[_KWOK].wait_until(self._are_nodes_ready, timeout_seconds=_SETTLE_SECONDS)

    async def _wait_for_default_account(self, namespace: str) -> None:
        """Wait for what the controllers bring: a pod without it is refused."""
        place = f"{_NAMESPACES}/{namespace}/serviceaccounts/default"

        async def is_there() -> bool:
            return await self.client.find(place) is not None

        if "serviceaccount-controller" in self._controllers:
            await self._others[_CONTROLLER_MANAGER].wait_until(is_there, timeout_seconds=_SETTLE_SECONDS)

    async def _add_nodes(self) -> None:
        present = {node["metadata"]["name"] for node in await self.client.items(_NODES)}
        for name in (f"{self.name}-node-{number}" for number in range(1, self._nodes + 1)):
            if name not in present:
                await self.client.create(_NODES, build_node(name))

    async def _are_nodes_ready(self) -> bool:
        return all(is_true(node, "Ready") for node in await self.client.items(_NODES))

    def _admin_tls(self) -> ssl.SSLContext:
        context = _trust(self.ca_pem)
        context.load_cert_chain(self.files.certificate("admin"), self.files.key("admin"))
        return context


def is_true(resource: Json, condition: str) -> bool:
    """Whether this condition of an object's status is True."""
    conditions = resource.get("status", {}).get("conditions") or ()  # null in a CRD that has just been made
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _trust(authority: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.decode())


async def _is_ready(url: str, tls: ssl.SSLContext) -> bool:
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url}/readyz", ssl=tls) as answer,
        ):
            return answer.ok
    except (aiohttp.ClientError, TimeoutError):
        return False
