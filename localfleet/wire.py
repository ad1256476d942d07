"""Real kube-vips on two nodes: network namespaces on a bridge, in which addresses and ARP are real.

It needs root and Linux's network namespaces, and leaves the network of the machine as it is: the bridge is in a
namespace of its own, too. kube-vip is built from its Go module, in the only version that is there as one; the
environment variable KUBE_VIP names another program.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane
from localfleet.processes import Process, run_to_end

NODES = ("n1", "n2")
NODE_ADDRESSES = {"n1": "10.77.0.1", "n2": "10.77.0.2"}
_ROUTER, _ROUTER_ADDRESS, _BRIDGE = "router", "10.77.0.254", "br0"
_NUMBERS = itertools.count()
_CLONE_NEWNET = 0x40000000
_CURL_SECONDS = 10
_MODE = {
    "vip_arp": "true",
    "vip_interface": "eth0",
    "vip_subnet": "32",
    "port": "6443",
    "svc_enable": "true",
    "cp_enable": "false",
    "cp_namespace": "kube-system",
    "vip_leaderelection": "true",
    "vip_leaseduration": "15",
    "vip_renewdeadline": "10",
    "vip_retryperiod": "2",
    "prometheus_server": "",
}


def find_obstacle() -> str:
    """Return why there can be no wire on this machine, as a sentence; "" if there can."""
    if os.geteuid() != 0:
        return "Network namespaces need root."
    if shutil.which("ip") is None:
        return "The program ip (iproute2) is not installed."
    name = f"fipop-try-{os.getpid()}"
    commands = (f"netns add {name}", f"-n {name} link add {_BRIDGE} type bridge")
    try:
        for each in commands:
            _ip(*each.split())
    except subprocess.CalledProcessError as error:
        return f"No bridge can be made in a network namespace: {error.stderr.strip()}."
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


def find_kube_vip() -> Path:
    """Return the program of kube-vip, built first if it is missing. Raises AssetError, ToolFailedError."""
    given = os.environ.get("KUBE_VIP")
    return Path(given) if given else ensure("kube-vip")


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


@dataclass(slots=True, kw_only=True)
class Wire:
    """Two nodes on a bridge, and a router there; `kube_vips` has what was started, by node."""

    program: Path
    folder: Path
    kubeconfig: Path
    prefix: str
    kube_vips: dict[str, Process] = field(default_factory=dict)

    def addresses(self, node: str) -> set[str]:
        """Return the addresses on the interface of a node."""
        shown = _ip("-n", self._namespace(node), "-o", "addr", "show", "dev", "eth0")
        return set(re.findall(r"inet6? ([0-9a-f.:]+)/", shown))

    def nodes_of(self, address: str) -> list[str]:
        """Return the nodes that have an address."""
        return [node for node in NODES if address in self.addresses(node)]

    async def start(self, node: str, **env: str) -> None:
        """Start kube-vip on a node."""
        config = str(self.kubeconfig)
        own = {"k8s_config_file": config, "KUBECONFIG": config, "vip_nodename": node}
        self.kube_vips[node] = Process(
            f"kube-vip on {node}",
            ["ip", "netns", "exec", self._namespace(node), self.program, "manager"],
            log=self.folder / f"{node}.log",
            environment={"PATH": os.environ["PATH"], **own, **_MODE, **env},
        )
        await self.kube_vips[node].start()

    async def end(self, node: str) -> None:
        """End kube-vip as SIGTERM does."""
        await self.kube_vips[node].stop()

    async def kill(self, node: str) -> None:
        """End kube-vip as SIGKILL does."""
        await self.kube_vips[node].stop(grace_seconds=0)

    async def restart(self) -> None:
        """Start kube-vip again on both nodes, as a kubelet does with pods that a DaemonSet replaces."""
        for node in NODES:
            await self.end(node)
            await self.start(node)

    def logs(self) -> str:
        """Return what the kube-vips wrote last."""
        return "\n".join(f"{each.name}: {each.read_log()[-2000:]}" for each in self.kube_vips.values())

    @asynccontextmanager
    async def serve_http(self, node: str, text: str) -> AsyncIterator[None]:
        """Answer each request on port 80 of all addresses of a node, in place of kube-proxy and a pod."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, EOFError):
                await reader.readuntil(b"\r\n\r\n")
                body = text.encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
                )
                writer.write(body)
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, sock=_listen(self._namespace(node), "0.0.0.0", 80))
        async with server:
            yield

    async def curl(self, address: str) -> str:
        """Return what `curl http://<address>/` prints on the router. Raises ToolFailedError, TimeoutError."""
        router = self._namespace(_ROUTER)
        _ip("-n", router, "route", "replace", f"{address}/32", "dev", _BRIDGE)
        command = f"ip netns exec {router} curl --silent --show-error --fail http://{address}/"
        return await run_to_end(command.split(), timeout_seconds=_CURL_SECONDS)

    def _namespace(self, node: str) -> str:
        return f"{self.prefix}-{node}"


@asynccontextmanager
async def open_wire(plane: ControlPlane, folder: Path, program: Path) -> AsyncIterator[Wire]:
    """Make both nodes, from which the API server of `plane` can be reached; no kube-vip runs yet."""
    prefix = f"fipop-{os.getpid()}-{next(_NUMBERS)}"
    router = f"{prefix}-{_ROUTER}"
    try:
        _ip("netns", "add", router)
        _ip("-n", router, "link", "add", _BRIDGE, "type", "bridge")
        _ip("-n", router, "addr", "add", f"{_ROUTER_ADDRESS}/24", "dev", _BRIDGE)
        _ip("-n", router, "link", "set", _BRIDGE, "up")
        for node in NODES:
            namespace = f"{prefix}-{node}"
            _ip("netns", "add", namespace)
            _ip("-n", router, "link", "add", node, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("-n", router, "link", "set", node, "master", _BRIDGE, "up")
            _ip("-n", namespace, "addr", "add", f"{NODE_ADDRESSES[node]}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        async with _forward(plane, router) as port:
            kubeconfig = _write_kubeconfig(plane, folder, port)
            wire = Wire(program=program, folder=folder, kubeconfig=kubeconfig, prefix=prefix)
            try:
                yield wire
            finally:
                for node in wire.kube_vips:
                    await wire.kill(node)
    finally:
        for name in (*NODES, _ROUTER):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", f"{prefix}-{name}")


def _write_kubeconfig(plane: ControlPlane, folder: Path, port: int) -> Path:
    config = yaml.safe_load(plane.admin_kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"] |= {"server": f"https://{_ROUTER_ADDRESS}:{port}", "tls-server-name": "127.0.0.1"}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def _forward(plane: ControlPlane, router: str) -> AsyncIterator[int]:
    """Serve the API server, which listens on the loopback interface of the machine alone, on the router."""
    target = int(plane.url.rpartition(":")[2])

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    listening = _listen(router, _ROUTER_ADDRESS, 0)
    port = int(listening.getsockname()[1])
    server = await asyncio.start_server(serve, sock=listening)
    try:
        yield port
    finally:
        server.close()


def _listen(namespace: str, address: str, port: int) -> socket.socket:
    """Return a socket that listens in a network namespace: it stays there, whoever uses it. Raises OSError."""
    found: list[socket.socket | OSError] = []

    def listen() -> None:
        # A thread of its own: it does not come back from the namespace.
        try:
            with Path("/var/run/netns", namespace).open() as file:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(file.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            found.append(socket.create_server((address, port)))
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    (result,) = found
    if isinstance(result, OSError):
        raise result
    return result
