"""What all passes over guests share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fipop.guest.chartcache import ChartCache
from fipop.guest.helm import HelmRunner
from fipop.guest.memory import GuestMemory
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.connection import Connection

LEASE_SECONDS = 30.0
"""Longer than a lease holds: a leader that lost touch has stopped its helm by then."""


@dataclass(slots=True, kw_only=True)
class GuestTools:
    """Programs, charts, memory and limits of the passes.

    `slots` bounds how many guests are talked to at once; a pass gives its slot back while it waits for charts
    and for helm, which has a bound of its own. `request_seconds` is for one request, `talk_seconds` for all that
    a pass asks a guest between two waits. `observe_request` sees each request (never a body), for logs and metrics.
    """

    helm: HelmRunner
    charts: ChartCache
    allow_loopback: bool
    memory: GuestMemory = field(default_factory=GuestMemory)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))
    request_seconds: float = 10.0
    talk_seconds: float = 45.0
    lease_seconds: float = LEASE_SECONDS
    monotonic: Callable[[], float] = time.monotonic
    observe_request: Callable[[RequestRecord], None] | None = None

    @property
    def grace_seconds(self) -> float:
        """How long after its start a helm process may be alive, ours or a former leader's."""
        return self.helm.deadline_seconds + self.lease_seconds

    def open_client(
        self, connection: Connection, on_request: Callable[[RequestRecord], None] | None = None
    ) -> KubeClient:
        """Give a client for one talk with a guest; the caller closes it."""
        observers = [observe for observe in (on_request, self.observe_request) if observe is not None]

        def observe_all(record: RequestRecord) -> None:
            for observe in observers:
                observe(record)

        return KubeClient(
            connection,
            timeout_seconds=self.request_seconds,
            max_connections=2,
            on_request=observe_all,
            user_agent="fipop",
        )
