"""The world outside of a role: API servers and the clock of the machine.

`build_operator` and `build_provider` take these as parameters, so that one whole role can run over API servers in
memory, in virtual time. Nothing here knows Kubernetes: a request has a method, a path, and bytes. `HelmProcess`,
`GuestFactory` and `Watch` stand beside the types that they use: helm/process, kube/guests and runtime/informer.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One HTTP request; `path` is below the URL of the server, `headers` hold no credential."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    """A JSON object; bytes if the content type is not JSON."""


class ByteStream(Protocol):
    """A body as it arrives."""

    async def readany(self) -> bytes:
        """Return the bytes that arrived since; none at the end of the body."""


class ApiResponse(Protocol):
    """The answer to a request, whose body has not been read. `aiohttp.ClientResponse` is one."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, found in any case."""

    @property
    def content(self) -> ByteStream:
        """The body."""


class ApiServer(Protocol):
    """The requests of one API server.

    What fails on the way raises OSError or aiohttp.ClientError: the outcome of a write is unknown then.
    """

    def send(self, request: ApiRequest) -> AbstractAsyncContextManager[ApiResponse]:
        """Send a request, and return its answer until the context ends."""

    async def close(self) -> None:
        """Close the connections; requests under way fail."""

    def check_authority(self) -> None:
        """Raise an error if only a new process can trust the server: its certificate authority was replaced."""


def loop_time() -> float:
    """Return the seconds of the event loop's clock, by which all waiting is measured."""
    return asyncio.get_running_loop().time()


class Clock(Protocol):
    """The clocks of the machine beside the event loop's own."""

    def now(self) -> datetime:
        """Return the time (aware, UTC)."""

    def boottime(self) -> float:
        """Return seconds of a monotonic clock that counts the time for which the machine is suspended, too."""


def end_process() -> None:
    """End this process at once, with exit code 1: what it does may go on no longer."""
    os._exit(1)


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        """Return the time (aware, UTC)."""
        return datetime.now(UTC)

    def boottime(self) -> float:
        """Return seconds since the machine was started, suspended or not: a Lease runs on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


ApiFactory = Callable[[], ApiServer]
"""Opens connections of their own to the API server."""
