"""A stand-in for helm towards simulated guests, and those in memory: it writes the records and workloads of releases.

It is NOT helm: no chart is rendered, no hook run, nothing is waited for. For real guests, and for what is about charts,
it runs the real helm in its place. Values say what it plays: `standIn: {refuse: true}` fails as rendering does,
`standIn: {unready: true}` makes workloads whose pods never become ready.

As a program: python standin_helm.py REAL_HELM ARGUMENT…
"""

import base64
import http.client
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import yaml

SIMULATED = "+simulated"
"""What a simulated guest's version ends with."""
REFUSAL = "execution error at (kube-vip/templates/daemonset.yaml:1:1): these values are refused"
_DAEMON_SETS, _DEPLOYMENTS = "daemonsets", "deployments"
_HISTORY = 10

Object = dict[str, Any]


def write_program(folder: Path, helm: Path) -> Path:
    """Write an executable that runs this module with the real helm; its path."""
    program = folder / "helm"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -B {__file__} {helm} "$@"\n', encoding="ascii")
    program.chmod(0o755)
    return program


class HelmError(Exception):
    """What helm writes to stderr before it exits with 1."""


class Api(Protocol):
    """The API of a guest cluster."""

    def ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """Send one request; return its status and answer."""
        ...


class Guest:
    """The API of one simulated guest."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._prefix = parts.path
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=30)

    def ask(self, method: str, path: str, body: Object | None = None) -> tuple[int, Object]:
        """Send one request; its status and answer."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        text = json.dumps(body) if body is not None else None
        headers = {"Content-Type": kind, "Accept": "application/json", "User-Agent": "Helm/stand-in"}
        self._connection.request(method, self._prefix + path, body=text, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")


class Release:
    """One release in a guest; `now` tells the time of its workloads."""

    def __init__(self, guest: Api, name: str, namespace: str, now: Callable[[], str]) -> None:
        self.guest, self.name, self.namespace, self._now = guest, name, namespace, now
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"

    def _must(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send one request that has to succeed."""
        status, answer = self.guest.ask(method, path, body)
        if status >= http.client.BAD_REQUEST:
            raise HelmError(f"{method} {path}: {status} {answer.get('message', '')}")
        return answer

    def records(self) -> list[Object]:
        """All revisions, the oldest first."""
        query = urlencode({"labelSelector": f"owner=helm,name={self.name}"})
        items: list[Object] = self._must("GET", f"{self._secrets}?{query}")["items"]
        return sorted(items, key=lambda each: int(each["metadata"]["labels"]["version"]))

    def write(
        self,
        chart: str,
        values: Object,
        labels: Mapping[str, str],
        *,
        is_ready: bool,
        is_deployed: bool = True,
    ) -> None:
        """Make the next revision: its record, and if it is deployed its workload, and the end of the one before."""
        records = self.records()
        revision = int(records[-1]["metadata"]["labels"]["version"]) + 1 if records else 1
        name = f"sh.helm.release.v1.{self.name}.v{revision}"
        kept = base64.b64encode(json.dumps({"chart": chart, "values": values}).encode()).decode()
        status = "pending-upgrade" if records else "pending-install"
        own = {"owner": "helm", "name": self.name, "version": str(revision), "status": status}
        body: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {**labels, **own}},
            "type": "helm.sh/release.v1",
            "data": {"release": kept},
        }
        self._must("POST", self._secrets, body)
        if is_deployed:
            self._apply(chart, values, is_ready=is_ready)
            for each in records:
                if each["metadata"]["labels"]["status"] == "deployed":
                    self._set_status(each["metadata"]["name"], "superseded")
        self._set_status(name, "deployed" if is_deployed else "failed")
        for each in records[: max(len(records) + 1 - _HISTORY, 0)]:
            self._must("DELETE", f"{self._secrets}/{each['metadata']['name']}")

    def roll_back(self, revision: int, is_ready: Callable[[Object], bool]) -> None:
        """Make the next revision of an earlier one, whose labels helm copies."""
        record, kept = self._find(revision)
        labels = {
            name: value
            for name, value in record["metadata"]["labels"].items()
            if name not in ("owner", "name", "version", "status")
        }
        self.write(kept["chart"], kept["values"], labels, is_ready=is_ready(kept["values"]))

    def uninstall(self) -> None:
        """Remove workloads and records."""
        for plural in (_DAEMON_SETS, _DEPLOYMENTS):
            path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"
            for each in self._must("GET", path)["items"]:
                annotations = each["metadata"].get("annotations") or {}
                if annotations.get("meta.helm.sh/release-name") == self.name:
                    self._must("DELETE", f"{path}/{each['metadata']['name']}")
        self.guest.ask("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{self.name}")
        for each in self.records():
            self._must("DELETE", f"{self._secrets}/{each['metadata']['name']}")

    def describe(self, what: str, revision: int) -> str:
        """Return metadata, values or manifest of a revision, as `helm get` prints them."""
        record, kept = self._find(revision)
        version = record["metadata"]["labels"].get("chartVersion", "1.0.0")
        match what:
            case "metadata":
                return json.dumps({"name": self.name, "chart": kept["chart"], "version": version})
            case "values":
                return json.dumps(kept["values"])
        return yaml.safe_dump(self._workload(kept["chart"], kept["values"]))

    def _find(self, revision: int) -> tuple[Object, Object]:
        """Return the record of a revision, and what it keeps."""
        for each in self.records():
            if each["metadata"]["labels"]["version"] == str(revision):
                return each, json.loads(base64.b64decode(each["data"]["release"]))
        raise HelmError("release: not found")

    def _set_status(self, record: str, status: str) -> None:
        self._must("PATCH", f"{self._secrets}/{record}", {"metadata": {"labels": {"status": status}}})

    def _workload(self, chart: str, values: Object) -> Object:
        is_provider = chart == "kube-vip-cloud-provider"
        env = {} if is_provider else {"svc_enable": "true", **(values.get("env") or {})}
        image = values["image"] if is_provider and isinstance(values.get("image"), dict) else {}
        container = {
            "image": f"{image.get('repository') or f'example/{chart}'}:v1",
            "env": [{"name": name, "value": str(value)} for name, value in env.items()],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment" if is_provider else "DaemonSet",
            "metadata": {
                "name": values.get("nameOverride") or self.name,
                "namespace": self.namespace,
                "labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": self.name},
                "annotations": {
                    "meta.helm.sh/release-name": self.name,
                    "meta.helm.sh/release-namespace": self.namespace,
                },
            },
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        }

    def _apply(self, chart: str, values: Object, *, is_ready: bool) -> None:
        body, ready = self._workload(chart, values), int(is_ready)
        is_deployment = body["kind"] == "Deployment"
        counts = (
            {"replicas": 1, "readyReplicas": ready, "updatedReplicas": 1}
            if is_deployment
            else {"desiredNumberScheduled": 1, "numberReady": ready, "updatedNumberScheduled": 1}
        )
        plural = _DEPLOYMENTS if is_deployment else _DAEMON_SETS
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"
        item = f"{path}/{body['metadata']['name']}"
        is_there = self.guest.ask("GET", item)[0] == http.client.OK
        made = self._must("PATCH", item, body) if is_there else self._must("POST", path, body)
        status = {"observedGeneration": made["metadata"]["generation"], **counts}
        self._must("PATCH", f"{item}/status", {"status": status})  # as the controller does
        self._run_pod(is_ready=is_ready)

    def _run_pod(self, *, is_ready: bool) -> None:
        """Have a pod as the controller makes it: it has been ready since now, or is not."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        labels = {"app.kubernetes.io/instance": self.name}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": labels},
        }
        self.guest.ask("DELETE", f"{path}/{self.name}")
        self._must("POST", path, body)
        ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": self._now()}
        self._must("PATCH", f"{path}/{self.name}/status", {"status": {"conditions": [ready]}})

    def work(
        self, arguments: Sequence[str], values: Object, is_ready: Callable[[Object], bool], fate: str = ""
    ) -> str:
        """Play one command of helm, and return what it prints. `fate`: "absent" or "failed", as it is refused."""
        match arguments[0]:
            case "upgrade":
                pairs = (pair.split("=", 1) for pair in option(arguments, "--labels").split(",") if pair)
                chart = "kube-vip-cloud-provider" if "cloud-provider" in self.name else "kube-vip"
                if fate != "absent":
                    self.write(chart, values, dict(pairs), is_ready=is_ready(values), is_deployed=not fate)
                if fate:
                    raise HelmError("refused")
                return "{}"
            case "rollback":
                self.roll_back(int(arguments[2]), is_ready)
            case "uninstall":
                self.uninstall()
            case "get":
                return self.describe(arguments[1], int(option(arguments, "--revision")))
        return ""


def option(arguments: Sequence[str], name: str) -> str:
    """Give the value of an option; "" where it is not there."""
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def main(helm: str, arguments: list[str]) -> None:
    """Play one helm, or be the real one."""
    kubeconfig = os.environ.get("KUBECONFIG", "")
    guest = None
    if kubeconfig and arguments[0] in ("upgrade", "rollback", "uninstall", "get"):
        config = json.loads(Path(kubeconfig).read_text(encoding="utf-8"))
        guest = Guest(config["clusters"][0]["cluster"]["server"])
        version = guest.ask("GET", "/version")[1].get("gitVersion", "")
        guest = guest if version.endswith(SIMULATED) else None
    if guest is None:
        os.execv(helm, [helm, *arguments])
    name = arguments[1 if arguments[0] != "get" else 2]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    release = Release(guest, name, option(arguments, "--namespace"), lambda: now)
    values = (yaml.safe_load(sys.stdin) or {}) if arguments[0] == "upgrade" else {}
    try:
        if _plays(values, "refuse"):
            raise HelmError(REFUSAL)
        sys.stdout.write(release.work(arguments, values, lambda each: not _plays(each, "unready")))
    except HelmError as error:
        sys.stderr.write(f"Error: {error}\n")
        sys.exit(1)


def _plays(values: Object, what: str) -> bool:
    return bool((values.get("standIn") or {}).get(what))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
