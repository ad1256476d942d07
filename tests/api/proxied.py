"""Operators whose way to the API server leads through a proxy that sees all, and does harm by a schedule."""

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from localfleet.certificates import build_authority
from localfleet.faultproxy import FaultProxy
from localfleet.faultproxy.rules import On, classify
from localfleet.installation import NAMESPACE, RELEASE, OperatorProcess
from localfleet.kubeconfigs import build_kubeconfig, token_credential, write_kubeconfig
from localfleet.stack import Stack

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Asked(NamedTuple):
    """A request as RBAC sees it, and the answer's status; None for a watch that goes on."""

    namespace: str
    group: str
    resource: str
    name: str
    verb: str
    status: int | None

    @property
    def is_write(self) -> bool:
        """Whether it changes something."""
        return self.verb not in {"get", "list", "watch"}


class SeeingProxy(FaultProxy):
    """Remembers every request for a resource in `asked`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asked: list[Asked] = []

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = read_request(request)
        if asked.verb == "watch":
            self.asked.append(asked)
        response = await super()._handle(request)
        self.asked.append(asked._replace(status=response.status))
        return response


def read_request(request: web.BaseRequest) -> Asked:
    """Read what is asked for: a field selector on the name is a name, a subresource part of the resource."""
    seen = classify(request.method, request.path, request.query_string)
    parts = request.path.strip("/").split("/")
    selected = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
    return Asked(
        namespace=seen.namespace,
        group=parts[1] if parts[0] == "apis" and len(parts) > 1 else "",
        resource=f"{seen.plural}/{seen.subresource}" if seen.subresource else seen.plural,
        name=seen.name or selected,
        verb=_VERBS.get(request.method, "") if seen.verb is On.WRITE else seen.verb.value,
        status=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxied:
    """An operator process, not started yet, and its proxy; its identity begins with `name`."""

    name: str
    operator: OperatorProcess
    proxy: SeeingProxy

    @property
    def pid(self) -> int:
        return self.operator.process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def log(self, message: str = "") -> list[dict[str, Any]]:
        """The lines of its log with this message, or all; over all its runs."""
        return [line for line in read_log(self.operator) if message in {"", line["message"]}]

    def helm_processes(self) -> list[int]:
        """The helm processes that it runs now."""
        return [pid for pid in _children(self.pid) if "helm" in _command(pid)]


def read_log(operator: OperatorProcess) -> list[dict[str, Any]]:
    """All lines of an operator's log, over all its runs."""
    if not operator.process.log.exists():
        return []
    lines = operator.process.log.read_text(errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(stat.parent.name))
    return found


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@asynccontextmanager
async def proxied(stack: Stack, name: str, *arguments: str) -> AsyncIterator[Proxied]:
    """Prepare an operator under the chart's RBAC behind a proxy of its own; it is stopped at the end."""
    authority = build_authority(f"proxy-{name}", datetime.now(UTC))
    async with SeeingProxy(
        stack.plane.url,
        trust=stack.plane.ca_pem,
        pair=authority.issue_server(["127.0.0.1"]),
        send_signal=lambda _number: None,
    ) as proxy:
        token = await stack.plane.token_for(NAMESPACE, RELEASE, seconds=24 * 3600)
        kubeconfig = write_kubeconfig(
            stack.fleet.folder / f"{stack.plane.name}-{name}.kubeconfig",
            build_kubeconfig("proxy", proxy.url, authority.pem, "user", token_credential(token)),
        )
        operator = await stack.installation.operator(
            stack.fleet.ports, f"--kubeconfig={kubeconfig}", *arguments, name=name
        )
        try:
            yield Proxied(name=name, operator=operator, proxy=proxy)
        finally:
            await operator.process.stop()
