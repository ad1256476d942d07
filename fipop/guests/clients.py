"""The way to guest clusters: a client for each session, at the pace of its Rancher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from fipop.deadlines import GUEST_REQUEST_SECONDS, GUEST_SESSION_SECONDS
from fipop.guests.errors import VisitTimeoutError
from fipop.guests.pace import Pace
from fipop.helm.proxy import HelmTarget
from fipop.interfaces import loop_time
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.guests import ANSWER_BYTES, PAGE_ITEMS, PAGES, GuestAccess, GuestFactory


@dataclass(slots=True, kw_only=True)
class GuestClients:
    """Opens sessions with guest clusters. `guests` reaches them, `observe_request` sees each request, never a body.

    `rate`: how many requests go through one Rancher in a second.
    """

    guests: GuestFactory
    rate: Callable[[], float]
    observe_request: Callable[[RequestRecord], None] | None = None
    _paces: dict[str, Pace] = field(default_factory=dict)

    @asynccontextmanager
    async def session(self, access: GuestAccess, *, is_urgent: bool) -> AsyncIterator[KubeClient]:
        """Lend a client for a bounded time, in which waiting for turns does not count. Raises VisitTimeoutError."""
        limit = asyncio.timeout(GUEST_SESSION_SECONDS)
        turns = _Turns(take=partial(self._pace(access).take, is_urgent=is_urgent), limit=limit)
        client = open_guest(self.guests, access, on_request=self.observe_request, admit=turns.wait)
        try:
            async with client, limit:
                yield client
        except TimeoutError as error:
            raise VisitTimeoutError(seconds=GUEST_SESSION_SECONDS) from error

    def target(self, access: GuestAccess) -> HelmTarget:
        """Return a guest cluster for helm, whose requests are never urgent."""
        admit = partial(self._pace(access).take, is_urgent=False)
        return HelmTarget(access=access, admit=admit, on_request=self.observe_request)

    def _pace(self, access: GuestAccess) -> Pace:
        rancher = urlsplit(access.server).netloc
        return self._paces.setdefault(rancher, Pace(rate=self.rate))


@dataclass(slots=True, kw_only=True)
class _Turns:
    """Has the time of a session stand still while its requests wait for their turn: many visits share one pace."""

    take: Callable[[], Awaitable[None]]
    limit: asyncio.Timeout
    _waiting: int = 0
    _left: float = 0.0

    async def wait(self) -> None:
        """Wait for the turn of a request."""
        deadline = self.limit.when()
        if deadline is not None:
            self._left = deadline - loop_time()
            self.limit.reschedule(None)
        self._waiting += 1
        try:
            await self.take()
        finally:
            self._waiting -= 1
            if not self._waiting and not self.limit.expired():
                self.limit.reschedule(loop_time() + self._left)


def open_guest(
    guests: GuestFactory,
    access: GuestAccess,
    *,
    timeout_seconds: float = GUEST_REQUEST_SECONDS,
    on_request: Callable[[RequestRecord], None] | None = None,
    admit: Callable[[], Awaitable[None]] | None = None,
) -> KubeClient:
    """Return a client of a guest cluster, which is not trusted: each answer is bounded."""
    return KubeClient(
        guests(access),
        timeout_seconds=timeout_seconds,
        answer_bytes=ANSWER_BYTES,
        page_items=PAGE_ITEMS,
        pages=PAGES,
        on_request=on_request,
        admit=admit,
    )
