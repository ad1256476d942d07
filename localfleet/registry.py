"""A real OCI registry on loopback, for charts that are named `oci://…`, and for images."""

import base64
import json
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from localfleet.certificates import CertificateAuthority
from localfleet.helm import Helm
from localfleet.ports import Ports
from localfleet.processes import Process

_READY_SECONDS = 20.0
_REPOSITORY = "charts"
CREDENTIAL = ("reader", "l0cal-fleet")
_HTPASSWD = "reader:$2b$04$JHAMxzZnSNyl2YEWcl9Ia.epVYsa9Cl7DSPulZdRe.ziB/08WTUbO\n"
"""The same, as bcrypt has it: what the registry reads."""


class OciRegistry:
    """The distribution registry, running while entered as `async with`; clients have to trust `ca_file`."""

    def __init__(
        self,
        *,
        program: Path,
        folder: Path,
        ports: Ports,
        authority: CertificateAuthority | None,
        helm: Helm,
        is_closed: bool = False,
    ) -> None:
        """Prepare a registry that keeps its data, certificate and log in `folder`.

        Without an `authority` it speaks plain HTTP. One that `is_closed` lets in who has CREDENTIAL.
        """
        self._is_closed = is_closed
        self.ca_file = folder / "ca.pem"
        self._folder = folder
        self._ports = ports
        self._authority = authority
        self._helm = helm
        self._port = ports.reserve()
        self._config = folder / "config.yml"
        environment = {"HOME": str(folder), "OTEL_TRACES_EXPORTER": "none"}
        self._process = Process(
            "registry", [program, "serve", self._config], log=folder / "registry.log", environment=environment
        )

    async def __aenter__(self) -> Self:
        """Start, and return when it answers."""
        self._write_files()
        await self._process.start()
        await self._process.wait_until(self._answers, timeout_seconds=_READY_SECONDS)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop; what was pushed stays in the folder."""
        await self.stop()
        self._ports.release(self._port)

    async def start(self) -> None:
        """Run again after `stop`, on the same port."""
        await self._process.start()
        await self._process.wait_until(self._answers, timeout_seconds=_READY_SECONDS)

    async def stop(self) -> None:
        """Take the registry away."""
        await self._process.stop(grace_seconds=1.0)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """Where charts are pushed to, as `oci://127.0.0.1:<port>/charts`."""
        return f"oci://{self.address}/{_REPOSITORY}"

    def reference(self, chart: str) -> str:
        """What `kubevipChartRef` is set to for a chart of that name."""
        return f"{self.url}/{chart}"

    async def push(self, archive: Path) -> None:
        """Push a packed chart with helm."""
        config = self._folder / "registry-config.json"
        pair = base64.b64encode(":".join(CREDENTIAL).encode()).decode()
        auths = {self.address: {"auth": pair}} if self._is_closed else {}
        config.write_text(json.dumps({"auths": auths}))
        trust = ("--ca-file", self.ca_file) if self._authority else ("--plain-http",)
        await self._helm.run("push", archive, self.url, *trust, "--registry-config", config)

    def _write_files(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(self._folder / "data")}},
            "http": {"addr": self.address},
        }
        if self._authority:
            config["http"]["tls"] = self._write_certificate(self._authority)
        if self._is_closed:
            accounts = self._folder / "htpasswd"
            accounts.write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "charts", "path": str(accounts)}}
        self._config.write_text(yaml.safe_dump(config))

    def _write_certificate(self, authority: CertificateAuthority) -> dict[str, str]:
        pair = authority.issue_server(["127.0.0.1", "localhost"])
        key, certificate = self._folder / "server.key", self._folder / "server.pem"
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        certificate.write_bytes(pair.certificate)
        self.ca_file.write_bytes(authority.pem)
        return {"certificate": str(certificate), "key": str(key)}

    async def _answers(self) -> bool:
        scheme = "https" if self._authority else "http"
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session,
                session.get(f"{scheme}://{self.address}/v2/", ssl=False) as answer,
            ):
                return answer.status in {200, 401}
        except (aiohttp.ClientError, TimeoutError):
            return False
