"""Charts on our disk: each fetched once, checked, and used for all guest clusters.

A source is a repository over HTTP, an OCI registry or a mounted archive. Its credential and its authority are read at
each fetch, written into helm's private folder alone, and gone with it. The credential goes to one host; where a
registry at that host sends its clients for tokens is the registry's own matter, as with every client.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from fipop.errors import ApiError, FipopError, ForbiddenError
from fipop.helm.charts import Chart
from fipop.helm.command import Helm
from fipop.helm.errors import ChartError, HelmError, HelmFailure
from fipop.helm.process import write_private
from fipop.interfaces import loop_time
from fipop.jsons import Json, as_mapping, as_text
from fipop.kube.client import KubeClient
from fipop.kube.resources import CONFIG_MAPS, SECRETS, Resource
from fipop.settings.options import Settings

SOURCE_REST_SECONDS = 30.0
"""How long a source of charts rests that failed."""
MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
_LONGEST_CREDENTIAL, _LONGEST_AUTHORITY = 16 * 1024, 512 * 1024
_PEM = "-----BEGIN CERTIFICATE-----"
_DOCKER_CONFIG = ".dockerconfigjson"
_FILE, _OCI = "file://", "oci://"
_REASONS = {
    HelmFailure.UNAUTHORIZED: "ChartUnauthorized",
    HelmFailure.FORBIDDEN: "ChartUnauthorized",
    HelmFailure.CERTIFICATE: "ChartSourceUntrusted",
}
"""The reason of the condition if helm cannot fetch a chart, if there is one for it."""


class ChartAccessError(FipopError):
    """The Secret or ConfigMap with the access to a source cannot be used; the text names it and never quotes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the sources of an installation ask for: names of a Secret and a ConfigMap in the operator's namespace."""

    host: str
    """The credential goes to this host alone, and not over http."""
    secret: str = ""
    authority: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """Return the access that the options name."""
        ref, repository = settings.kubevip_chart_ref, settings.kubevip_chart_repo_url
        return cls(
            host=urlsplit(repository if ref.startswith(_FILE) else ref or repository).netloc,
            secret=settings.kubevip_chart_secret,
            authority=settings.kubevip_chart_ca,
        )

    def has_login_for(self, order: Chart) -> bool:
        """Whether the credential goes to the source of a chart."""
        url = urlsplit(order.url)
        return bool(self.secret) and url.scheme in ("https", "oci") and url.netloc == self.host


@dataclass(slots=True, kw_only=True)
class ChartStore:
    """Fetches charts, one at a time: few are ever needed. `client` reads the access in `namespace`."""

    helm: Helm
    client: KubeClient
    namespace: str
    _paths: dict[Chart, Path] = field(default_factory=dict)
    _answers: dict[Chart, Chart] = field(default_factory=dict)
    """By order, what was resolved since the archives were last sorted out: an order means one chart until then."""
    _failures: dict[Chart, tuple[float, ChartError]] = field(default_factory=dict)
    """By order, until when its source rests, and why."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def resolve(self, order: Chart, access: Access) -> Chart:
        """Return which chart an order means: its version and the digest of its archive, which is on disk now.

        Raises ChartError, and for some time the same one again: a source that failed rests.
        """
        async with self._turn:
            if order in self._paths:
                return order
            if order in self._answers:
                return self._answers[order]
            until, problem = self._failures.pop(order, (0.0, None))
            if problem is None or loop_time() >= until:
                try:
                    self._answers[order] = await self._resolve(order, access)
                    return self._answers[order]
                except ChartError as error:
                    until, problem = loop_time() + SOURCE_REST_SECONDS, error
            self._failures[order] = until, problem
            raise problem

    async def _resolve(self, order: Chart, access: Access) -> Chart:
        try:
            with self.helm.private_folder() as folder:
                return await self._keep(order, await self._fetch(order, access, folder))
        except HelmError as error:
            condition = _REASONS.get(error.failure, "ReleaseFailed")
            raise _problem(order, error.failure.value, condition) from error
        except (ChartAccessError, ApiError) as error:
            raise _problem(order, str(error), "ChartAccessMissing") from error
        except OSError as error:
            reason = "the file does not exist in the pod of the operator, or fipop cannot read or store it"
            raise _problem(order, reason) from error

    async def path(self, chart: Chart, access: Access) -> Path:
        """Return the archive of a chart that was resolved, by this process or another. Raises ChartError."""
        return self._paths[await self.resolve(chart, access)]

    def keep_only(self, charts: Iterable[Chart]) -> None:
        """Delete the archives of all other charts. The next order of a newest version asks its source again."""
        self._answers.clear()
        wanted = {self._paths[each] for each in charts if each in self._paths}
        for chart, path in list(self._paths.items()):
            if path not in wanted:
                del self._paths[chart]
                path.unlink(missing_ok=True)

    async def read_login(self, order: Chart, access: Access) -> dict[str, str]:
        """Return `username` and `password`; nothing if the credential is not for this source.

        Raises ChartAccessError and ApiError.
        """
        if not access.has_login_for(order):
            return {}
        name = f"Secret {self.namespace}/{access.secret}"
        data = as_mapping((await self._read(SECRETS, access.secret, "kubevipChartSecret")).get("data"))
        if _DOCKER_CONFIG in data:
            login = _read_docker_config(name, _decode(name, data[_DOCKER_CONFIG]), access.host)
        else:
            login = {key: _decode(name, data.get(key)) for key in ("username", "password")}
        if not all(login.values()):
            raise ChartAccessError(
                f"{name} must hold username and password, or a pull secret for {access.host}"
            )
        return login

    async def read_authority(self, access: Access) -> str:
        """Return the certificate authority of the sources in PEM; "" for none. Raises ChartAccessError and ApiError."""
        if not access.authority:
            return ""
        found = await self._read(CONFIG_MAPS, access.authority, "kubevipChartCA")
        # Comments between certificates can be in any language; no tool reads them.
        pem = as_text(as_mapping(found.get("data")).get("ca.crt")).encode("ascii", "ignore").decode()
        if _PEM not in pem or len(pem) > _LONGEST_AUTHORITY:
            raise ChartAccessError(
                f"ConfigMap {self.namespace}/{access.authority} must hold certificates in PEM under ca.crt"
            )
        return pem

    async def _fetch(self, order: Chart, access: Access, folder: Path) -> Path:
        archive = folder / "chart.tgz"
        if order.url.startswith(_FILE):
            # A copy: it must not change while helm reads it.
            await asyncio.to_thread(shutil.copyfile, order.url.removeprefix(_FILE), archive)
            return archive
        login, pem = await self.read_login(order, access), await self.read_authority(access)
        authority = str(write_private(folder / "ca.pem", pem)) if pem else ""
        is_registry = order.url.startswith(_OCI)
        repository: Json = {"name": "charts", "url": order.url, "caFile": authority}
        files = {
            "HELM_REGISTRY_CONFIG": _render_registry(access.host, login),
            "HELM_REPOSITORY_CONFIG": json.dumps({"repositories": [repository | login]}),
        }
        env = {name: str(write_private(folder / name, text)) for name, text in files.items()}
        command = self.helm.for_charts(f"chart {order}", folder, env)
        if not is_registry:
            # Not by pyhelm3's name: it has a flag that helm 4 does not know.
            await command.run(["repo", "update"])
        ref = order.url if is_registry else f"charts/{order.role.value}"
        version = ["--version", order.version] if order.version else []
        trust = ["--ca-file", authority] if authority and is_registry else []
        # pyhelm3's own `pull` unpacks, and the digest of the option is that of the archive.
        await command.run(["pull", ref, *version, "--destination", folder, *trust])
        found = [name for name in os.listdir(folder) if name.endswith(".tgz")]  # noqa: PTH208 - a name or two
        if not found:
            raise HelmError(action="pull", subject=f"chart {order}", failure=HelmFailure.CHART_NOT_FOUND)
        return folder / found[0]

    async def _keep(self, order: Chart, archive: Path) -> Chart:
        """Check an archive, and keep it for guest clusters."""
        sha256 = await asyncio.to_thread(_hash, archive)
        if not sha256:
            raise _problem(order, f"the archive has more than {MAX_ARCHIVE_BYTES} bytes")
        if order.sha256 not in ("", sha256):
            reason = f"the archive has digest sha256:{sha256}, and the options have another"
            raise _problem(order, reason, "ChartDigestMismatch")
        try:
            metadata = as_mapping(
                await self.helm.for_charts(f"chart {order}", archive.parent).show_chart(archive)
            )
        except yaml.YAMLError:
            raise _problem(order, "could not read its Chart.yaml") from None
        name, version = metadata.get("name"), str(metadata.get("version")).removeprefix("v")
        if name not in (order.role.value, order.url.rpartition("/")[2]) or order.version not in ("", version):
            raise _problem(order, "the archive holds another chart or version")
        chart = replace(order, version=version, sha256=sha256)
        self._paths[chart] = await asyncio.to_thread(archive.rename, self.helm.folder / f"{sha256}.tgz")
        return chart

    async def _read(self, resource: Resource, name: str, option: str) -> Mapping[str, Any]:
        what = f"{resource.kind} {self.namespace}/{name}"
        try:
            found = await self.client.get(resource, name, namespace=self.namespace)
        except ForbiddenError:
            text = f"fipop cannot read {what}. Set the chart's value settings.{option} to allow it"
            raise ChartAccessError(text) from None
        if found is None:
            raise ChartAccessError(f"{what} does not exist")
        return found


def _hash(archive: Path) -> str:
    """Return the digest of an archive; "" if it is too long."""
    with archive.open("rb") as stream:
        content = stream.read(MAX_ARCHIVE_BYTES + 1)
    return hashlib.sha256(content).hexdigest() if len(content) <= MAX_ARCHIVE_BYTES else ""


def _decode(name: str, value: object) -> str:
    try:
        text = base64.b64decode(as_text(value), validate=True).decode().strip("\n")
    except ValueError:
        raise ChartAccessError(f"{name} must hold text") from None
    if len(text) > _LONGEST_CREDENTIAL:
        raise ChartAccessError(f"{name} must hold at most {_LONGEST_CREDENTIAL} characters")
    return text


def _read_docker_config(name: str, text: str, host: str) -> dict[str, str]:
    """Return the login of a host in a Secret of type kubernetes.io/dockerconfigjson."""
    try:
        entry = as_mapping(as_mapping(as_mapping(json.loads(text)).get("auths")).get(host))
    except (ValueError, RecursionError):
        raise ChartAccessError(f"{name} must hold JSON under {_DOCKER_CONFIG}") from None
    if "auth" in entry:
        username, _, password = _decode(name, entry["auth"]).partition(":")
        return {"username": username, "password": password}
    found = {"username": entry.get("username"), "password": entry.get("password")}
    return {key: as_text(value) for key, value in found.items()}


def _render_registry(host: str, login: Mapping[str, str]) -> str:
    if not login:
        return json.dumps({"auths": {}})
    pair = base64.b64encode(f"{login['username']}:{login['password']}".encode()).decode()
    return json.dumps({"auths": {host: {"auth": pair}}})


def _problem(order: Chart, reason: str, condition: str = "ReleaseFailed") -> ChartError:
    return ChartError(source=str(order), version=order.version, reason=reason, condition=condition)
