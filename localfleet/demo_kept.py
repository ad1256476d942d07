"""The fleet that the demo leaves running: what to look around with, and how guest clusters are added to it.

    python -m localfleet.demo_kept NAME NETWORK

asks the demo for one more guest cluster, through a socket in the folder of its fleet.
"""

import asyncio
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml

from localfleet.controlplane import ControlPlane
from localfleet.demo_stage import Stage, run_beside
from localfleet.errors import LocalFleetError
from localfleet.kubeconfigs import write_private

_SOCKET = "demo.sock"
_KUBECONFIG = "kubeconfig"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")
_SOON_SECONDS = 2.0


async def keep(stage: Stage) -> None:
    """Leave everything running until it is cancelled."""
    folder = stage.fleet.folder
    for plane in (stage.management, *stage.running().values()):
        add_context(folder / _KUBECONFIG, plane)
    for name in stage.guests:
        run_beside(stage.exits, _serve(stage, name))
    (folder / "bin").mkdir()
    venv = Path(sys.executable).parent
    programs = (stage.fleet.programs["kubectl"], stage.helm.program, venv / "fipop", venv / "kubectl-fip")
    for program in programs:
        (folder / "bin" / program.name).symlink_to(program)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, network = json.loads(await reader.readline())
        writer.write(f"{await _add(stage, name, network)}\n".encode())
        writer.close()

    server = await asyncio.start_unix_server(answer, folder / _SOCKET)
    stage.report.chapter("Everything runs on until you press ctrl-C. In another terminal:")
    for line in _describe(stage):
        stage.report.line(line)
    async with server:
        await server.serve_forever()


def add_context(path: Path, plane: ControlPlane) -> None:
    """Add a control plane to a kubeconfig, as a context and a user of its name; the first one is the current one."""
    merged: Any = {"apiVersion": "v1", "kind": "Config", "clusters": [], "contexts": [], "users": []}
    merged = yaml.safe_load(path.read_text()) if path.exists() else merged | {"current-context": plane.name}
    own = yaml.safe_load(plane.admin_kubeconfig.read_text())
    merged["clusters"].append({"name": plane.name, "cluster": own["clusters"][0]["cluster"]})
    merged["users"].append({"name": plane.name, "user": own["users"][0]["user"]})
    merged["contexts"].append({"name": plane.name, "context": {"cluster": plane.name, "user": plane.name}})
    write_private(path, yaml.safe_dump(merged).encode())


def _describe(stage: Stage) -> list[str]:
    folder = stage.fleet.folder
    return [
        f"export KUBECONFIG={folder / _KUBECONFIG} PATH={folder / 'bin'}:$PATH",
        "kubectl config get-contexts",
        "fipop status",
        "fipop web   # the web UI, at http://127.0.0.1:8090/",
        "make demo-cluster NAME=x NETWORK=vlan99   # one more guest cluster, without labels",
        f"curl -s {stage.operator.metrics_url}",
        f"tail -f {stage.operator.process.log}",
    ]


async def _add(stage: Stage, name: str, network: str) -> str:
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(network):
        return f'Error: NAME and NETWORK must be names like shop-2, not "{name}" and "{network}".'
    if (stage.fleet.folder / name).exists():
        return f'Error: The name "{name}" is in use on this fleet. Choose another NAME.'
    try:
        await stage.create_guest(name, network=network)
    except LocalFleetError as error:
        return f"Error: {error}"
    add_context(stage.fleet.folder / _KUBECONFIG, stage.running()[name])
    run_beside(stage.exits, _serve(stage, name))
    return (
        f"Rancher has the guest cluster {name} ({stage.guests[name].cluster_id}), on the network {network}."
    )


async def _serve(stage: Stage, name: str) -> None:
    """Run the cloud provider of a guest cluster while fipop has its chart installed there: it ends with its account."""
    while True:
        with suppress(LocalFleetError):
            if name not in stage.providers or not stage.providers[name].process.is_running:
                await stage.start_provider(name)
        await asyncio.sleep(_SOON_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask a fleet that runs for a guest cluster: that of KUBECONFIG, or the newest one."""
    name, network = sys.argv[1:] if arguments is None else arguments
    found = sorted(Path(tempfile.gettempdir()).glob(f"fipop-fleet-*/{_SOCKET}"), key=os.path.getmtime)
    for path in (Path(os.environ.get("KUBECONFIG", "")).parent / _SOCKET, *reversed(found)):
        with closing(socket.socket(socket.AF_UNIX)) as connection, suppress(OSError):
            connection.connect(str(path))
            connection.sendall(f"{json.dumps([name, network])}\n".encode())
            answer = (
                connection.makefile().read() or "Error: The demo did not answer. Its terminal shows why.\n"
            )
            print(answer, end="")
            return 1 if answer.startswith("Error") else 0
    print("Error: No fleet runs. Start one in another terminal: make demo KEEP=1", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
