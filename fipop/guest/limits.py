"""What all passes over guests share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fipop.boundary import GuestFactory
from fipop.deadlines import FOREIGN_LEASE_SECONDS, GUEST_REQUEST_SECONDS, GUEST_SESSION_SECONDS
from fipop.guest.errors import PassTimeoutError
from fipop.guest.helm.chart_cache import ChartCache
from fipop.guest.helm.runner import HelmRunner
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.guests import ANSWER_BYTES, PAGE_ITEMS, PAGES, GuestAccess, read_kubeconfig


@dataclass(slots=True, kw_only=True)
class GuestLimits:
    """Programs, charts and limits of the passes.

    `guests` reaches guest clusters. `slots` bounds how many are talked to at once. A pass gives its slot back while
    helm runs; a session that takes longer than `brisk_seconds` moves over to one of `slow_slots`: guests that hang do
    not keep the slots from those that answer. `request_seconds` is for one request, `session_seconds` for all that a
    pass asks a guest between two waits. `observe_request` sees each request (never a body), for logs and metrics.
    """

    helm: HelmRunner
    charts: ChartCache
    guests: GuestFactory
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(64))
    brisk_seconds: float = 0.5
    slow_slots: int = 256
    request_seconds: float = GUEST_REQUEST_SECONDS
    session_seconds: float = GUEST_SESSION_SECONDS
    lease_seconds: float = FOREIGN_LEASE_SECONDS
    observe_request: Callable[[RequestRecord], None] | None = None
    _slow_sessions: int = field(default=0, init=False, repr=False)

    async def close(self) -> None:
        """Stop fetching charts and remove them from the disk. Who began passes ends them."""
        await self.charts.close()

    @property
    def grace_seconds(self) -> float:
        """How long after its start a helm process may be alive, ours or a former leader's."""
        return self.helm.deadline_seconds + self.lease_seconds

    def connect(self, guest_id: str, kubeconfig: bytes) -> GuestAccess:
        """Read a guest cluster's kubeconfig. Raises GuestError."""
        return read_kubeconfig(kubeconfig, guest_id)

    @asynccontextmanager
    async def session(self, access: GuestAccess) -> AsyncIterator[KubeClient]:
        """Lend a client for one session with a guest: in a slot, for a bounded time. Raises PassTimeoutError."""
        async with self._slot(), self._open_client(access) as client, _bounded(self.session_seconds):
            yield client

    @asynccontextmanager
    async def look(self, access: GuestAccess) -> AsyncIterator[KubeClient]:
        """Lend a client for a look into a guest, for a bounded time. Raises PassTimeoutError.

        It takes no slot from passes: who looks bounds how many guests are looked into at once.
        """
        async with self._open_client(access) as client, _bounded(self.session_seconds):
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

    def _open_client(self, access: GuestAccess) -> KubeClient:
        return open_guest(
            self.guests, access, timeout_seconds=self.request_seconds, on_request=self.observe_request
        )


def open_guest(
    guests: GuestFactory,
    access: GuestAccess,
    *,
    timeout_seconds: float = GUEST_REQUEST_SECONDS,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> KubeClient:
    """Return a client of a guest cluster, which is not trusted: each answer is bounded."""
    return KubeClient(
        guests(access),
        timeout_seconds=timeout_seconds,
        answer_bytes=ANSWER_BYTES,
        page_items=PAGE_ITEMS,
        pages=PAGES,
        on_request=on_request,
    )


@asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise PassTimeoutError(seconds=seconds) from error
