"""A TLS server of our own that speaks as much HTTP as each hostile guest likes to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl

from tests.hostile.protobuf import MAGIC, read_secret

PREFIX = "/k8s/clusters/"
LONGEST_SECONDS = 60.0
"""Nothing that a hostile guest does to one connection takes longer: a run has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request of the operator or its helm; `path` is the guest's own."""

    guest: str
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def is_helms(self) -> bool:
        """Whether helm sent it, through its door."""
        return self.headers.get("user-agent", "").startswith("Helm")

    def json(self) -> Any:
        """The body."""
        return read_secret(self.body) if self.body.startswith(MAGIC) else json.loads(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An ordinary answer."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)

    def render(self) -> bytes:
        """The answer as it goes over the wire."""
        headers = {"Content-Type": "application/json", "Content-Length": str(len(self.body)), **self.headers}
        lines = [
            f"HTTP/1.1 {self.status} x",
            *(f"{name}: {value}" for name, value in headers.items() if value),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def reply(body: Any, status: int = 200, **headers: str) -> Reply:
    """An answer in JSON."""
    return Reply(status=status, body=json.dumps(body).encode(), headers=headers)


def failure(status: int, reason: str, message: str, **details: Any) -> Reply:
    """What an API server says when it refuses."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return reply(body | {"message": message, "details": details, "metadata": {}}, status)


Writer = asyncio.StreamWriter
Raw = Callable[[Writer], Awaitable[None]]
"""Whoever wants to say something that is no answer writes to the connection itself."""
Answering = Callable[[Request], Awaitable[Reply | Raw]]


class HostileServer:
    """Holds all guests of a run at `https://127.0.0.1:<port>/k8s/clusters/<id>`; use as `async with`."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.guests: dict[str, Answering] = {}
        self.requests: dict[str, list[Request]] = {}
        self.port = 0

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cut everything."""
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def url_of(self, guest: str) -> str:
        """The address that a guest's kubeconfig names."""
        return f"https://127.0.0.1:{self.port}{PREFIX}{guest}"

    def seen(self, guest: str) -> list[Request]:
        """What came in for a guest."""
        return self.requests.get(guest, [])

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            async with asyncio.timeout(LONGEST_SECONDS * 5):
                while await self._exchange(reader, writer):
                    pass
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ssl.SSLError,
            asyncio.CancelledError,
        ):
            pass
        finally:
            self._connections.discard(task)
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: Writer) -> bool:
        """Answer one request; whether another may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", "0") or "0"))
        if headers.get("transfer-encoding") == "chunked":
            body = await _read_chunks(reader)
        path, _, query = target.partition("?")
        guest, _, rest = path.removeprefix(PREFIX).partition("/")
        request = Request(
            guest=guest,
            method=method,
            path=f"/{rest}",
            query=dict(parse_qsl(query)),
            headers=headers,
            body=body,
            at=time.monotonic(),
        )
        self.requests.setdefault(guest, []).append(request)
        answering = self.guests.get(guest)
        if answering is None:
            writer.write(failure(404, "NotFound", "no such cluster").render())
            await writer.drain()
            return True
        answer = await answering(request)
        if isinstance(answer, Reply):
            writer.write(answer.render())
            await writer.drain()
            return True
        async with asyncio.timeout(LONGEST_SECONDS):
            await answer(writer)
        return False


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body
