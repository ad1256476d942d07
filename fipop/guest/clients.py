"""The way to guest clusters: a client for each session, at the pace of its Rancher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from fipop.boundary import GuestFactory
from fipop.deadlines import GUEST_REQUEST_SECONDS, GUEST_SESSION_SECONDS
from fipop.guest.errors import VisitTimeoutError
from fipop.guest.helm.proxy import HelmTarget
from fipop.guest.pace import Pace
from fipop.kube.client import KubeClient, RequestRecord
from fipop.kube.guests import ANSWER_BYTES, PAGE_ITEMS, PAGES, GuestAccess


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
        """Lend a client for one session, for a bounded time. Raises VisitTimeoutError."""
        admit = partial(self._pace(access).take, is_urgent=is_urgent)
        client = open_guest(self.guests, access, on_request=self.observe_request, admit=admit)
        try:
            async with client, asyncio.timeout(GUEST_SESSION_SECONDS):
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
