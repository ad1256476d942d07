"""traceIpamData: the whole ledger in the log, as people of kube-fip-operator know it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fipop.ipam.allocator import Usage
from fipop.state.cache import ClusterCache

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""What is as long as the fleet is large is logged once a second at most; rounds in between are told together."""


class IpamTracer:
    """Logs the ledger after rounds, while `wanted` says so: no round goes untold, some are told by the same lines."""

    def __init__(self, cache: ClusterCache, *, wanted: Callable[[], bool]) -> None:
        self._cache = cache
        self._wanted = wanted
        self._next_at = float("-inf")
        self._pending: asyncio.TimerHandle | None = None

    def note_round(self) -> None:
        """Note that a round ended; the ledger is logged now, or when the pause is over."""
        if not self._wanted() or self._pending is not None:
            return
        loop = asyncio.get_running_loop()
        self._pending = loop.call_at(max(loop.time(), self._next_at), self._log)

    def _log(self) -> None:
        self._pending = None
        self._next_at = asyncio.get_running_loop().time() + PAUSE_SECONDS
        if self._wanted():
            log_ipam_data(self._cache)


def log_ipam_data(cache: ClusterCache) -> None:
    """Log every range with its counts, and every address with its holder."""
    for each in cache.ranges.all():
        usage = cache.allocations.ranges.usage(each.name)
        counts = usage.whole if usage is not None else Usage()
        logger.info(
            "IPAM data of range",
            extra={
                "range": each.name,
                "space": each.address_space,
                "pool": each.iprange,
                "total": counts.total,
                **counts._asdict(),
            },
        )
    for reservation in cache.reservations.all():
        logger.info(
            "IPAM data of address",
            extra={
                "address": reservation.address,
                "space": reservation.space,
                "range": reservation.range,
                "owner": f"{reservation.owner.namespace}/{reservation.owner.name}",
                "state": "held" if reservation.is_held else "quarantined",
            },
        )
