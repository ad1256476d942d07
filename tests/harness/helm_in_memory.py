"""helm as `build_operator` takes it, on guest clusters in memory: a SIMULATION.

It writes the records and workloads that a visit looks for. No chart is rendered, no hook is run, nothing is waited for.
What real helm does is for tests/api.
"""

import asyncio
import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from fipop.deadlines import HELM_DEADLINE_SECONDS
from fipop.helm.process import Finished
from localfleet.standin_helm import HelmError, Release, option
from tests.harness.api_in_memory import ApiInMemory, Json

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
        **_: Any,
    ) -> Finished:
        """Run helm once, as `fipop.interfaces.HelmProcess` describes it."""
        del folder, env
        url = guest.access.server if guest is not None else ""
        self.runs.append((arguments[0], url))
        await asyncio.sleep(min(self.seconds, HELM_DEADLINE_SECONDS))
        if self.seconds > HELM_DEADLINE_SECONDS:
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
                version = option(arguments, "--version") or self.versions[name]
                content = self.contents.get(f"{name} {version}", "")
                folder = Path(option(arguments, "--destination"))
                (folder / f"{name}-{version}.tgz").write_bytes(_pack(name, version, content))
                return _succeeded("")
            case "show":
                return _succeeded(_read_metadata(Path(arguments[2])))
            case _:  # `repo update`, and a rendering, which no test of the simulation reads
                return _succeeded("")

    def _work(self, url: str, arguments: list[str], stdin: bytes | None) -> Finished:
        guest, name = self.guest_of(url), arguments[2] if arguments[0] == "get" else arguments[1]
        release = Release(_InMemory(guest), name, option(arguments, "--namespace"), guest.timestamp)
        values = yaml.safe_load(stdin or b"") or {}
        fates = [fate for each, fate in self.refused.items() if f'"{each}"' in json.dumps(values)]
        try:
            said = release.work(
                arguments, values, lambda each: self._gets_ready(url, each), next(iter(fates), "")
            )
        except HelmError as error:
            return _failed(str(error))
        if self.dark and arguments[0] == "upgrade" and name == "kube-vip":
            is_dark = any(f'"{each}"' in json.dumps(values) for each in self.dark)
            guest.leader = "" if is_dark else "n1"  # type: ignore[attr-defined]
        return _succeeded(said)


@dataclass(frozen=True, slots=True)
class _InMemory:
    """The API of a guest cluster in memory."""

    guest: ApiInMemory

    def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        parts = urlsplit(path)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        sent = json.dumps(body).encode() if body is not None else b""
        answer = self.guest.handle(method, parts.path, dict(parse_qsl(parts.query)), "", kind, sent)
        return answer.status, answer.body


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
