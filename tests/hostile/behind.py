"""The hostile guests in a process of their own, behind a reverse proxy that frames their answers as Rancher does.

What they do costs their own time, not that of who measures. `Behind` starts it and speaks with it, a line of JSON at a
time; `python -m tests.hostile.behind` is that process. It is nice to all others: in the world it is on other machines.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from localfleet.assets import ensure
from localfleet.certificates import KeyPair, build_authority, build_server_tls
from tests.hostile.cases import CASES, aim
from tests.hostile.guest import Guest
from tests.hostile.server import PREFIX, HostileServer

_NICENESS = 10


@dataclass(slots=True)
class Behind:
    """The process with the hostile guests; use as `async with`. `trap_port` is where redirects lead."""

    trap_port: int
    port: int = 0
    ca_pem: str = ""
    _process: asyncio.subprocess.Process | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def __aenter__(self) -> Self:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.hostile.behind", str(self.trap_port), str(ensure("guest-proxy"))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        told = json.loads(await self._process.stdout.readline())
        self.port, self.ca_pem = told["port"], told["ca"]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    def url_of(self, guest: str) -> str:
        """The address that a guest's kubeconfig names."""
        return f"https://127.0.0.1:{self.port}{PREFIX}{guest}"

    async def add(self, guest: str, case: str | None) -> None:
        """Have a guest of this kind; None: a well-behaved one."""
        await self._ask(add=guest, case=case)

    async def seen(self, guest: str) -> int:
        """Count the requests that came in for a guest."""
        return int((await self._ask(seen=guest))["count"])

    async def _ask(self, **question: object) -> dict[str, Any]:
        async with self._lock:
            assert self._process is not None
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
            answer: dict[str, Any] = json.loads(await self._process.stdout.readline())
            return answer


@asynccontextmanager
async def as_rancher(program: str, url: str, pair: KeyPair) -> AsyncIterator[int]:
    """Run the reverse proxy before a server; its port."""
    with tempfile.NamedTemporaryFile() as certificate:
        certificate.write(pair.certificate + pair.key)
        certificate.flush()
        process = await asyncio.create_subprocess_exec(
            program, certificate.name, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            yield int(await process.stdout.readline())
        finally:
            process.kill()
            await process.wait()


async def serve(trap_port: int, program: str) -> None:
    """Serve guests until nobody asks any more."""
    cases = {case.name: case for case in CASES}
    authority = build_authority("hostile", datetime.now(UTC))
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    pair = authority.issue_server(["127.0.0.1"])
    async with (
        HostileServer(build_server_tls(pair)) as server,
        as_rancher(program, f"https://127.0.0.1:{server.port}", pair) as port,
    ):
        _say(port=port, ca=authority.pem.decode())
        while line := await reader.readline():
            question = json.loads(line)
            if "add" in question:
                case = question["case"]
                answering = Guest() if case is None else aim(cases[case].guest(), trap_port)
                server.guests[question["add"]] = answering
                _say(done=True)
            else:
                _say(count=len(server.seen(question["seen"])))


def _say(**answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.nice(_NICENESS)
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
