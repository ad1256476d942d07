"""helm as `build_operator` takes it, on guest clusters in memory: a SIMULATION.

It writes the records and workloads that a visit looks for. No chart is rendered, no hook is run, nothing is waited for.
What real helm does is for tests/api.
"""

import asyncio
import base64
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from fipop.helm.process import Finished
from tests.harness.api_in_memory import ApiInMemory, Json

HISTORY = 10
CHARTS = ("kube-vip", "kube-vip-cloud-provider")


@dataclass(slots=True)
class HelmInMemory:
    """Runs of helm. `guest_of` returns the guest cluster behind a URL.

    A run takes `seconds`. `failures` are what the next runs of a command write to stderr before they exit with 1;
    `unready` guest clusters never get ready pods. `runs` are the commands so far, each with the guest's URL.
    """

    guest_of: Callable[[str], ApiInMemory]
    seconds: float = 1.0
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(CHARTS, "1.0.0"))
    """The newest version of each chart in every repository."""
    contents: dict[str, str] = field(default_factory=dict)
    """What a chart holds beside its metadata, by name and version ("kube-vip 1.0.0")."""
    failures: dict[str, list[str]] = field(default_factory=dict)
    unready: set[str] = field(default_factory=set)
    """URLs of guest clusters, and texts of values with which no pod gets ready."""
    refused: dict[str, str] = field(default_factory=dict)
    """Texts of values with which helm fails: "absent" leaves no revision, "failed" leaves one that is not deployed."""
    dark: set[str] = field(default_factory=set)
    """Texts of values with which kube-vip runs, gets ready, and announces nothing."""
    gone: set[str] = field(default_factory=set)
    """Sources and versions from which no chart can be pulled any more, as helm's arguments name them."""
    runs: list[tuple[str, str]] = field(default_factory=list)

    async def __call__(
        self,
        arguments: list[str],
        *,
        guest: Any,
        env: Mapping[str, str],
        folder: Path,
        stdin: bytes | None,
        deadline_seconds: float,
        **_: Any,
    ) -> Finished:
        """Run helm once, as `fipop.interfaces.HelmProcess` describes it."""
        del folder, env
        url = guest.access.server if guest is not None else ""
        self.runs.append((arguments[0], url))
        await asyncio.sleep(min(self.seconds, deadline_seconds))
        if self.seconds > deadline_seconds:
            return Finished(returncode=-9, timed_out=True, stdout=b"", stderr=b"")
        if self.failures.get(arguments[0]):
            return _failed(self.failures[arguments[0]].pop(0))
        if arguments[0] == "pull" and not self.gone.isdisjoint(map(str, arguments)):
            return _failed("404 not found")
        if guest is None:
            return self._fetch(arguments)
        if self.guest_of(url) is None:
            return _failed("Kubernetes cluster unreachable")
        return self._work(url, arguments, stdin)

    def _gets_ready(self, url: str, values: Json) -> bool:
        text = json.dumps(values)
        return not any(each in (url, text) or f'"{each}"' in text for each in self.unready)

    def _fetch(self, arguments: list[str]) -> Finished:
        match arguments[0]:
            case "pull":
                name = arguments[1].rpartition("/")[2]
                version = _option(arguments, "--version") or self.versions[name]
                content = self.contents.get(f"{name} {version}", "")
                folder = Path(_option(arguments, "--destination"))
                (folder / f"{name}-{version}.tgz").write_bytes(_pack(name, version, content))
                return _succeeded("")
            case "show":
                return _succeeded(_read_metadata(Path(arguments[2])))
            case _:  # `repo update`, and a rendering, which no test of the simulation reads
                return _succeeded("")

    def _work(self, url: str, arguments: list[str], stdin: bytes | None) -> Finished:
        name = arguments[2] if arguments[0] == "get" else arguments[1]
        release = _Release(self.guest_of(url), name, _option(arguments, "--namespace"))
        match arguments[0]:
            case "upgrade":
                values = yaml.safe_load(stdin or b"") or {}
                labels = dict(
                    pair.split("=", 1) for pair in _option(arguments, "--labels").split(",") if pair
                )
                chart = "kube-vip-cloud-provider" if "cloud-provider" in name else "kube-vip"
                fates = [fate for each, fate in self.refused.items() if f'"{each}"' in json.dumps(values)]
                if fates != ["absent"]:
                    is_ready = self._gets_ready(url, values)
                    release.write(chart, values, labels, is_ready=is_ready, is_deployed=not fates)
                if chart == "kube-vip" and self.dark and not fates:
                    is_dark = any(f'"{each}"' in json.dumps(values) for each in self.dark)
                    self.guest_of(url).leader = "" if is_dark else "n1"  # type: ignore[attr-defined]
                return _failed("refused") if fates else _succeeded("{}")
            case "rollback":
                return release.roll_back(int(arguments[2]), lambda values: self._gets_ready(url, values))
            case "uninstall":
                release.uninstall()
                return _succeeded("")
            case _:
                return release.describe(arguments[1], int(_option(arguments, "--revision")))


class _Release:
    """One release in a guest cluster."""

    def __init__(self, guest: ApiInMemory, name: str, namespace: str) -> None:
        self._guest, self._name, self._namespace = guest, name, namespace

    def _records(self) -> list[Json]:
        found = [
            each
            for each in self._guest.of_kind("secrets").values()
            if each["metadata"]["namespace"] == self._namespace
            and (each["metadata"].get("labels") or {}).get("name") == self._name
            and each.get("type") == "helm.sh/release.v1"
        ]
        return sorted(found, key=lambda each: int(each["metadata"]["labels"]["version"]))

    def write(
        self,
        chart: str,
        values: Json,
        labels: Mapping[str, str],
        *,
        is_ready: bool,
        is_deployed: bool = True,
    ) -> None:
        """Make the next revision, with its record, and with its workload if it is deployed."""
        records = self._records()
        revision = int(records[-1]["metadata"]["labels"]["version"]) + 1 if records else 1
        for each in records:
            if is_deployed and each["metadata"]["labels"]["status"] in ("deployed", "failed"):
                self._label(each, status="superseded")
        data = base64.b64encode(json.dumps({"chart": chart, "values": values}).encode()).decode()
        status = "deployed" if is_deployed else "failed"
        own = {"owner": "helm", "name": self._name, "version": str(revision), "status": status}
        secret = f"sh.helm.release.v1.{self._name}.v{revision}"
        self._guest.put(
            ("secrets", self._namespace, secret),
            {
                "metadata": {"name": secret, "namespace": self._namespace, "labels": {**labels, **own}},
                "type": "helm.sh/release.v1",
                "data": {"release": data},
            },
        )
        if is_deployed:
            self._apply(chart, values, is_ready=is_ready)
        for each in records[: max(len(records) + 1 - HISTORY, 0)]:
            self._guest.remove(("secrets", self._namespace, each["metadata"]["name"]))

    def roll_back(self, revision: int, gets_ready: Callable[[Json], bool]) -> Finished:
        record = self._record(revision)
        if record is None:
            return _failed("release: not found")
        kept = json.loads(base64.b64decode(record["data"]["release"]))
        own = ("owner", "name", "version", "status")
        labels = {key: value for key, value in record["metadata"]["labels"].items() if key not in own}
        self.write(kept["chart"], kept["values"], labels, is_ready=gets_ready(kept["values"]))
        return _succeeded("")

    def uninstall(self) -> None:
        self._guest.remove(("pods", self._namespace, self._name))
        for plural in ("daemonsets", "deployments"):
            for key, each in self._guest.of_kind(plural).items():
                annotations = each["metadata"].get("annotations") or {}
                if annotations.get("meta.helm.sh/release-name") == self._name and key[1] == self._namespace:
                    self._guest.remove(key)
        for each in self._records():
            self._guest.remove(("secrets", self._namespace, each["metadata"]["name"]))

    def describe(self, what: str, revision: int) -> Finished:
        record = self._record(revision)
        if record is None:
            return _failed("release: not found")
        kept = json.loads(base64.b64decode(record["data"]["release"]))
        version = record["metadata"]["labels"].get("chartVersion", "1.0.0")
        answers = {
            "metadata": json.dumps({"name": self._name, "chart": kept["chart"], "version": version}),
            "values": json.dumps(kept["values"]),
            "manifest": yaml.safe_dump(self._workload(kept["chart"], kept["values"])),
        }
        return _succeeded(answers[what])

    def _record(self, revision: int) -> Json | None:
        wanted = str(revision)
        return next(
            (each for each in self._records() if each["metadata"]["labels"]["version"] == wanted), None
        )

    def _label(self, record: Json, **labels: str) -> None:
        metadata = {**record["metadata"], "labels": {**record["metadata"]["labels"], **labels}}
        key = ("secrets", self._namespace, record["metadata"]["name"])
        self._guest.put(key, {**record, "metadata": metadata})

    def _workload(self, chart: str, values: Json) -> Json:
        is_provider = chart == "kube-vip-cloud-provider"
        env = {} if is_provider else {"svc_enable": "true", **(values.get("env") or {})}
        container = {
            "image": f"example/{chart}:v1",
            "env": [{"name": name, "value": str(value)} for name, value in env.items()],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment" if is_provider else "DaemonSet",
            "metadata": {
                "name": values.get("nameOverride") or self._name,
                "namespace": self._namespace,
                "labels": {
                    "app.kubernetes.io/managed-by": "Helm",
                    "app.kubernetes.io/instance": self._name,
                },
                "annotations": {
                    "meta.helm.sh/release-name": self._name,
                    "meta.helm.sh/release-namespace": self._namespace,
                },
            },
            "spec": {
                "replicas": 1,
                "template": {"spec": {"containers": [container]}},
            },
        }

    def _run_pod(self, *, is_ready: bool) -> None:
        """Have a pod that has been ready since now, or is not."""
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/instance": self._name},
        }
        ready = {
            "type": "Ready",
            "status": str(is_ready),
            "lastTransitionTime": self._guest.timestamp(),
        }
        key = ("pods", self._namespace, self._name)
        self._guest.put(key, {"metadata": metadata, "status": {"conditions": [ready]}})

    def _apply(self, chart: str, values: Json, *, is_ready: bool) -> None:
        body = self._workload(chart, values)
        plural = "deployments" if body["kind"] == "Deployment" else "daemonsets"
        key = (plural, self._namespace, body["metadata"]["name"])
        former = self._guest.objects.get(key)
        generation = former["metadata"]["generation"] if former is not None else 1
        ready = int(is_ready)
        counts = (
            {"replicas": 1, "readyReplicas": ready, "updatedReplicas": 1}
            if plural == "deployments"
            else {"desiredNumberScheduled": 1, "numberReady": ready, "updatedNumberScheduled": 1}
        )
        made = self._guest.put(key, {**body, "status": {"observedGeneration": generation, **counts}})
        observed = made["metadata"]["generation"]
        self._run_pod(is_ready=is_ready)
        if observed != generation:  # as the controller does
            self._guest.put(key, {**made, "status": {"observedGeneration": observed, **counts}})


def _option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1] if name in arguments else ""


def _succeeded(stdout: str) -> Finished:
    return Finished(returncode=0, timed_out=False, stdout=stdout.encode(), stderr=b"")


def _failed(message: str) -> Finished:
    return Finished(returncode=1, timed_out=False, stdout=b"", stderr=f"Error: {message}".encode())


def _read_metadata(path: Path) -> str:
    with tarfile.open(path) as archive:
        member = next(each for each in archive if each.name.endswith("/Chart.yaml"))
        stream = archive.extractfile(member)
        assert stream is not None
        return stream.read().decode()


def _pack(name: str, version: str, content: str) -> bytes:
    buffer = io.BytesIO()
    files = {"Chart.yaml": yaml.safe_dump({"apiVersion": "v2", "name": name, "version": version})}
    if content:
        files["values.yaml"] = content
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    # As a repository has it: the same bytes each time.
    return gzip.compress(buffer.getvalue(), mtime=0)
