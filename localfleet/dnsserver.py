"""A real DNS server on loopback, Knot DNS: a zone that whoever has the key may update and transfer."""

import base64
import secrets
from pathlib import Path
from typing import Self

from localfleet.ports import Ports
from localfleet.processes import Process, run_to_end

KEY_NAME = "external-dns"
_READY_SECONDS = 30.0
_QUERY_SECONDS = 10.0
_CONFIG = """\
server:
  listen: 127.0.0.1@{port}
  rundir: {folder}
database:
  storage: {folder}
key:
  - id: {key_name}
    algorithm: hmac-sha256
    secret: {secret}
acl:
  - id: writer
    key: {key_name}
    action: [transfer, update]
zone:
  - domain: {zone}
    storage: {folder}
    acl: writer
log:
  - target: stderr
    any: info
"""
_ZONE = """\
@ 60 SOA ns.{zone}. admin.{zone}. 1 3600 600 86400 60
@ 60 NS ns.{zone}.
ns 60 A 127.0.0.1
"""


class DnsServer:
    """Knot DNS, running while entered as `async with`. `secret` is that of the key KEY_NAME."""

    def __init__(self, *, knot: Path, kdig: Path, folder: Path, ports: Ports, zone: str) -> None:
        """Prepare a server that keeps its zone and log in `folder`."""
        self.zone = zone
        self.secret = base64.b64encode(secrets.token_bytes(32)).decode()
        self.port = ports.reserve()
        self._kdig, self._folder, self._ports = kdig, folder, ports
        config = folder / "knot.conf"
        self._process = Process("knot", [knot, "--config", config], log=folder / "knot.log", folder=folder)

    async def __aenter__(self) -> Self:
        """Start, and return when it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        values = {"port": self.port, "folder": self._folder, "key_name": KEY_NAME, "zone": self.zone}
        (self._folder / "knot.conf").write_text(_CONFIG.format(secret=self.secret, **values))
        (self._folder / f"{self.zone}.zone").write_text(_ZONE.format(zone=self.zone))
        await self._process.start()
        await self._process.wait_until(self._answers, timeout_seconds=_READY_SECONDS)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Stop."""
        await self._process.stop()
        self._ports.release(self.port)

    async def resolve(self, name: str, kind: str = "A") -> list[str]:
        """Return what the server answers for a name, in order; empty if there is no such record."""
        query = ("@127.0.0.1", "-p", str(self.port), "+short", name, kind)
        answer = await run_to_end([self._kdig, *query], timeout_seconds=_QUERY_SECONDS)
        return sorted(answer.split())

    async def _answers(self) -> bool:
        return bool(await self.resolve(f"ns.{self.zone}"))
