"""A Helm chart repository over HTTP: `index.yaml` and archives, which can be changed and taken away."""

import base64
import gzip
import hashlib
import io
import tarfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from localfleet.certificates import CertificateAuthority, build_server_tls


class ChartRepository:
    """Serves what was published, on a free loopback port while entered as `async with`.

    `unavailable = True` makes every answer 503. `requests` counts the paths asked for, `authorizations` are those seen.
    `moved` tells by path where who has the credential is redirected to.
    """

    def __init__(
        self, *, authority: CertificateAuthority | None = None, credential: tuple[str, str] | None = None
    ) -> None:
        """An empty repository; with an `authority` over TLS, with a `credential` (user, password) for who has that."""
        self.unavailable = False
        self._authority = authority
        self._credential = credential
        self.requests: Counter[str] = Counter()
        self.authorizations: set[str] = set()
        self.moved: dict[str, str] = {}
        self._entries: dict[str, dict[str, dict[str, Any]]] = {}
        self.archives: dict[str, bytes] = {}
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        self._port = 0

    async def __aenter__(self) -> Self:
        """Listen on loopback."""
        await self._runner.setup()
        tls = None
        if self._authority is not None:
            tls = build_server_tls(self._authority.issue_server(["127.0.0.1"]))
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=tls).start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """What `kubevipChartRepoUrl` is set to."""
        scheme = "http" if self._authority is None else "https"
        return f"{scheme}://127.0.0.1:{self._port}"

    def publish(self, archive: Path) -> None:
        """Add a packed chart to the index, in place of one of the same name and version."""
        content = archive.read_bytes()
        chart = _read_chart_yaml(content)
        name, version = str(chart["name"]), str(chart["version"])
        self.archives[archive.name] = content
        self._entries.setdefault(name, {})[version] = {
            **chart,
            "created": datetime.now(UTC).isoformat(),
            "digest": hashlib.sha256(content).hexdigest(),
            "urls": [archive.name],
        }

    def retract(self, name: str, version: str) -> None:
        """Take a version out of the index; its archive is gone too."""
        entry = self._entries.get(name, {}).pop(version)
        del self.archives[entry["urls"][0]]

    def index(self) -> bytes:
        """The text of index.yaml, newest publication first as `helm repo index` writes it."""
        entries = {
            name: list(reversed(versions.values())) for name, versions in self._entries.items() if versions
        }
        return yaml.safe_dump({"apiVersion": "v1", "entries": entries}).encode()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests[request.path] += 1
        self.authorizations.add(request.headers.get("Authorization", ""))
        if self.unavailable:
            return web.Response(status=503, text="the chart repository is away")
        if self._credential is not None:
            wanted = f"Basic {base64.b64encode(':'.join(self._credential).encode()).decode()}"
            if request.headers.get("Authorization") != wanted:
                return web.Response(status=401, text="who are you")
        if request.path in self.moved:
            return web.Response(status=307, headers={"Location": self.moved[request.path]})
        if request.path == "/index.yaml":
            return web.Response(body=self.index(), content_type="application/yaml")
        archive = self.archives.get(request.path.removeprefix("/"))
        if archive is None:
            return web.Response(status=404, text="no such chart")
        return web.Response(body=archive, content_type="application/gzip")


def _read_chart_yaml(archive: bytes) -> dict[str, Any]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as content:
        for member in content:
            if member.name.count("/") == 1 and member.name.endswith("/Chart.yaml"):
                file = content.extractfile(member)
                assert file is not None
                chart: dict[str, Any] = yaml.safe_load(file)
                return chart
    raise ValueError("the archive holds no Chart.yaml")
