"""A stand-in for helm towards simulated guests: it writes the records and workloads that a pass looks for.

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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode, urlsplit

import yaml

SIMULATED = "+simulated"
"""What a simulated guest's version ends with."""
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

    def must(self, method: str, path: str, body: Object | None = None) -> Object:
        """Send one request that has to succeed."""
        status, answer = self.ask(method, path, body)
        if status >= http.client.BAD_REQUEST:
            fail(f"{method} {path}: {status} {answer.get('message', '')}")
        return answer


class Release:
    """One release in a guest."""

    def __init__(self, guest: Guest, name: str, namespace: str) -> None:
        self.guest, self.name, self.namespace = guest, name, namespace
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"

    def records(self) -> list[Object]:
        """All revisions, the oldest first."""
        query = urlencode({"labelSelector": f"owner=helm,name={self.name}"})
        items: list[Object] = self.guest.must("GET", f"{self._secrets}?{query}")["items"]
        return sorted(items, key=lambda each: int(each["metadata"]["labels"]["version"]))

    def write(self, chart: str, values: Object, labels: dict[str, str]) -> None:
        """Make the next revision: its record, its workload, and the end of the one before."""
        records = self.records()
        revision = int(records[-1]["metadata"]["labels"]["version"]) + 1 if records else 1
        path = f"{self._secrets}/sh.helm.release.v1.{self.name}.v{revision}"
        kept = base64.b64encode(json.dumps({"chart": chart, "values": values}).encode()).decode()
        own = {"owner": "helm", "name": self.name, "version": str(revision)}
        self.guest.must(
            "POST",
            self._secrets,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": path.rpartition("/")[2],
                    "namespace": self.namespace,
                    "labels": {
                        **labels,
                        **own,
                        "status": "pending-upgrade" if records else "pending-install",
                    },
                },
                "type": "helm.sh/release.v1",
                "data": {"release": kept},
            },
        )
        self._apply(chart, values)
        for each in records:
            if each["metadata"]["labels"]["status"] == "deployed":
                self._set_status(each["metadata"]["name"], "superseded")
        self._set_status(path.rpartition("/")[2], "deployed")
        for each in records[: max(len(records) + 1 - _HISTORY, 0)]:
            self.guest.must("DELETE", f"{self._secrets}/{each['metadata']['name']}")

    def roll_back(self, revision: int) -> None:
        """Make the next revision of an earlier one, whose labels helm copies."""
        record = next(
            (each for each in self.records() if each["metadata"]["labels"]["version"] == str(revision)), None
        )
        if record is None:
            fail("release: not found")
        kept = json.loads(base64.b64decode(record["data"]["release"]))
        labels = {
            name: value
            for name, value in record["metadata"]["labels"].items()
            if name not in ("owner", "name", "version", "status")
        }
        self.write(kept["chart"], kept["values"], labels)

    def uninstall(self) -> None:
        """Remove workloads and records."""
        for plural in (_DAEMON_SETS, _DEPLOYMENTS):
            path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"
            for each in self.guest.must("GET", path)["items"]:
                if each["metadata"]["annotations"].get("meta.helm.sh/release-name") == self.name:
                    self.guest.must("DELETE", f"{path}/{each['metadata']['name']}")
        self.guest.ask("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{self.name}")
        for each in self.records():
            self.guest.must("DELETE", f"{self._secrets}/{each['metadata']['name']}")

    def _set_status(self, record: str, status: str) -> None:
        self.guest.must("PATCH", f"{self._secrets}/{record}", {"metadata": {"labels": {"status": status}}})

    def _apply(self, chart: str, values: Object) -> None:
        is_provider = "cloud-provider" in chart
        plural = _DEPLOYMENTS if is_provider else _DAEMON_SETS
        ready = 0 if (values.get("standIn") or {}).get("unready") else 1
        counts = (
            {"replicas": 1, "readyReplicas": ready, "updatedReplicas": 1}
            if is_provider
            else {"desiredNumberScheduled": 1, "numberReady": ready, "updatedNumberScheduled": 1}
        )
        program = "kube-vip-cloud-provider" if is_provider else "kube-vip"
        body: Object = {
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
            "spec": {
                "replicas": 1,
                "template": {"spec": {"containers": [{"image": f"example/{program}:v1"}]}},
            },
        }
        path = f"/apis/apps/v1/namespaces/{self.namespace}/{plural}"
        item = f"{path}/{body['metadata']['name']}"
        is_there = self.guest.ask("GET", item)[0] == http.client.OK
        made = self.guest.must("PATCH", item, body) if is_there else self.guest.must("POST", path, body)
        status = {"observedGeneration": made["metadata"]["generation"], **counts}
        self.guest.must("PATCH", f"{item}/status", {"status": status})  # as the controller does
        self._run_pod(is_ready=bool(ready))

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
        self.guest.must("POST", path, body)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": now}
        self.guest.must("PATCH", f"{path}/{self.name}/status", {"status": {"conditions": [ready]}})


def fail(message: str) -> NoReturn:
    """End as helm does."""
    sys.stderr.write(f"Error: {message}\n")
    sys.exit(1)


def option(arguments: list[str], name: str) -> str:
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
    release = Release(guest, arguments[1 if arguments[0] != "get" else 2], option(arguments, "--namespace"))
    match arguments[0]:
        case "upgrade":
            values = yaml.safe_load(sys.stdin) or {}
            if (values.get("standIn") or {}).get("refuse"):
                fail("execution error at (kube-vip/templates/daemonset.yaml:1:1): these values are refused")
            pairs = (pair.split("=", 1) for pair in option(arguments, "--labels").split(",") if pair)
            chart = "kube-vip-cloud-provider" if "cloud-provider" in release.name else "kube-vip"
            release.write(chart, values, dict(pairs))
            sys.stdout.write("{}")
        case "rollback":
            release.roll_back(int(arguments[2]))
        case "uninstall":
            release.uninstall()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
