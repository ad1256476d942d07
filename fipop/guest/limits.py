"""What all passes over guests share."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fipop.boundary import ApiServer, GuestFactory
from fipop.deadlines import FOREIGN_LEASE_SECONDS, GUEST_REQUEST_SECONDS, GUEST_SESSION_SECONDS
from fipop.errors import PassTimeoutError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.runner import HelmRunner
from fipop.guest.kubeconfig import parse_kubeconfig
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.connection import Connection
from fipop.kube.http_server import HttpServer
from fipop.kube.limits import GUEST_BUDGET_BYTES, GUEST_LIMITS, GUEST_SESSION_BYTES, Allowance, ByteBudget
from fipop.kube.sessions import SharedSession

_USUAL_KUBECONFIG = 16 * 1024


@dataclass(slots=True, kw_only=True)
class GuestLimits:
    """Programs, charts and limits of the passes.

    `slots` bounds how many guests are talked to at once. A pass gives its slot back while helm runs; a session that
    takes longer than `brisk_seconds` moves over to one of `slow_slots`: guests that hang do not keep the slots from
    those that answer.
    `request_seconds` is for one request, `session_seconds` for all that a pass asks a guest between two waits.
    `budget` is what answers of all guests may take at once. `observe_request` sees each request (never a body), for
    logs and metrics.
    """

    helm: HelmRunner
    charts: ChartCache
    allow_loopback: bool
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))
    brisk_seconds: float = 0.5
    slow_slots: int = 256
    request_seconds: float = GUEST_REQUEST_SECONDS
    session_seconds: float = GUEST_SESSION_SECONDS
    lease_seconds: float = FOREIGN_LEASE_SECONDS
    budget: ByteBudget = field(default_factory=lambda: ByteBudget(GUEST_BUDGET_BYTES))
    observe_request: Callable[[RequestRecord], None] | None = None
    guests: GuestFactory | None = None
    """How guest clusters are reached; None: over HTTPS, and all behind one Rancher share connections."""
    _slow_sessions: int = field(default=0, init=False, repr=False)
    _shared: SharedSession = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """All guests lie behind a Rancher, most of them behind the same one."""
        self._shared = SharedSession(local_addresses_allowed=self.allow_loopback)

    async def close(self) -> None:
        """Stop fetching charts, remove them from the disk, and close connections. Who began passes ends them."""
        await self.charts.close()
        await self._shared.close()

    @property
    def grace_seconds(self) -> float:
        """How long after its start a helm process may be alive, ours or a former leader's."""
        return self.helm.deadline_seconds + self.lease_seconds

    async def connect(self, guest_id: str, kubeconfig: bytes) -> Connection:
        """Read a guest's kubeconfig. Raises KubeconfigError.

        A large one is none of Rancher's: what reading it takes is not to be every other guest's time.
        """
        parse = functools.partial(
            parse_kubeconfig, kubeconfig, guest_id=guest_id, allow_loopback=self.allow_loopback
        )
        return parse() if len(kubeconfig) <= _USUAL_KUBECONFIG else await asyncio.to_thread(parse)

    @asynccontextmanager
    async def session(
        self,
        connection: Connection,
        *,
        allowance: Allowance | None = None,
    ) -> AsyncIterator[KubeClient]:
        """Lend a client for one session with a guest: in a slot, for a bounded time. Raises PassTimeoutError.

        `allowance` is what the guest may still send, where it is talked to more than once.
        """
        client = self._open_client(connection, allowance, max_connections=2)
        async with self._slot(), client, _bounded(self.session_seconds):
            yield client

    @asynccontextmanager
    async def look(self, connection: Connection) -> AsyncIterator[KubeClient]:
        """Lend a client for a look into a guest, for a bounded time. Raises PassTimeoutError.

        It takes no slot from passes: who looks bounds how many guests are looked into at once. An open connection takes
        a third of a MiB, so a look has but one.
        """
        client = self._open_client(connection, None, max_connections=1)
        async with client, _bounded(self.session_seconds):
            yield client

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        await self.slots.acquire()
        has_moved = False

        def move_over() -> None:
            # No turn of the loop lies between the question and the answer: there is no one to wait for.
            nonlocal has_moved
            if self._slow_sessions < self.slow_slots:
                self._slow_sessions += 1
                self.slots.release()
                has_moved = True

        timer = asyncio.get_running_loop().call_later(self.brisk_seconds, move_over)
        try:
            yield
        finally:
            timer.cancel()
            if has_moved:
                self._slow_sessions -= 1
            else:
                self.slots.release()

    def _open_server(self, connection: Connection) -> ApiServer:
        if self.guests is not None:
            return self.guests(connection)
        return HttpServer(connection, shared=self._shared)

    def _open_client(
        self, connection: Connection, allowance: Allowance | None, *, max_connections: int
    ) -> KubeClient:
        return KubeClient(
            self._open_server(connection),
            timeout_seconds=self.request_seconds,
            limits=GUEST_LIMITS,
            allowance=allowance or Allowance(GUEST_SESSION_BYTES),
            budget=self.budget,
            max_connections=max_connections,
            on_request=self.observe_request,
            user_agent="fipop",
        )


@asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PassTimeoutError(seconds=seconds) from error
