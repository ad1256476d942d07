"""Real kube-vips on two nodes: network namespaces on a bridge, in which addresses and ARP are real.

It needs root and Linux's network namespaces. kube-vip is built from its Go module, in the only version that is there as
one; the environment variable KUBE_VIP names another program.
"""

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from localfleet.assets import ensure
from localfleet.controlplane import ControlPlane

NODES = ("n1", "n2")
_ADDRESSES = {"n1": "10.77.0.1/24", "n2": "10.77.0.2/24"}
_NUMBERS = itertools.count()
_GATEWAY = "10.77.0.254"
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
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return f"No network namespace can be made: {made.stderr.strip()}." if made.returncode else ""


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


@dataclass(slots=True, kw_only=True)
class Wire:
    """Two nodes on a bridge; `programs` are the kube-vips that run, by node."""

    program: Path
    folder: Path
    kubeconfig: Path
    prefix: str
    programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def namespace(self, node: str) -> str:
        """Return the name of the network namespace of a node."""
        return f"{self.prefix}-{node}"

    def addresses(self, node: str) -> set[str]:
        """Return the addresses on the interface of a node."""
        shown = _ip("-n", self.namespace(node), "-o", "addr", "show", "dev", "eth0")
        return set(re.findall(r"inet6? ([0-9a-f.:]+)/", shown))

    def nodes_of(self, address: str) -> list[str]:
        """Return the nodes that have an address."""
        return [node for node in NODES if address in self.addresses(node)]

    def start(self, node: str, **env: str) -> None:
        """Start kube-vip on a node."""
        log = (self.folder / f"{node}.log").open("ab")
        self.programs[node] = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(node), str(self.program), "manager"],
            env={
                "PATH": os.environ["PATH"],
                "k8s_config_file": str(self.kubeconfig),
                "KUBECONFIG": str(self.kubeconfig),
                "vip_nodename": node,
                **_MODE,
                **env,
            },
            stdout=log,
            stderr=log,
        )
        log.close()

    def end(self, node: str) -> None:
        """End kube-vip as SIGTERM does."""
        self.programs[node].terminate()
        self.programs[node].wait()

    def stop(self) -> None:
        """End all kube-vips."""
        for each in self.programs.values():
            each.kill()
            each.wait()

    def logs(self) -> str:
        """Return what the kube-vips wrote last."""
        return "\n".join(
            f"{path.stem}: {path.read_text(errors='replace')[-2000:]}" for path in self.folder.glob("n*.log")
        )


@asynccontextmanager
async def open_wire(plane: ControlPlane, folder: Path) -> AsyncIterator[Wire]:
    """Make both nodes, from which the API server of `plane` can be reached."""
    # A namespace that is deleted keeps its interfaces for a moment: each wire has names of its own.
    prefix = f"f{os.getpid() % 100000}{next(_NUMBERS)}"
    bridge = f"{prefix}br"
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{_GATEWAY}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for node in NODES:
            namespace, outside = f"{prefix}-{node}", f"{prefix}{node}"
            _ip("netns", "add", namespace)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", outside, "master", bridge, "up")
            _ip("-n", namespace, "addr", "add", _ADDRESSES[node], "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        async with _forward(plane) as port:
            kubeconfig = _write_kubeconfig(plane, folder, port)
            given = os.environ.get("KUBE_VIP")
            program = Path(given) if given else await asyncio.to_thread(ensure, "kube-vip")
            wire = Wire(program=program, folder=folder, kubeconfig=kubeconfig, prefix=prefix)
            try:
                yield wire
            finally:
                wire.stop()
    finally:
        for node in NODES:
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "del", f"{prefix}-{node}")
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "del", bridge)


def _write_kubeconfig(plane: ControlPlane, folder: Path, port: int) -> Path:
    config = yaml.safe_load(plane.admin_kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"] |= {"server": f"https://{_GATEWAY}:{port}", "tls-server-name": "127.0.0.1"}
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def _forward(plane: ControlPlane) -> AsyncIterator[int]:
    """Serve the API server, which listens on the loopback interface alone, on the bridge."""
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

    server = await asyncio.start_server(serve, _GATEWAY, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
