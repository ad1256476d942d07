"""What a new leader does once: all that have addresses claim them, then everything is enqueued.

What happened while no replica led causes no event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from fipop.api.models import FloatingIP
from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.operator.addresses.ranges import request_count
from fipop.operator.addresses.values import is_settled
from fipop.operator.addresses.waiting import request_floating_ip, request_reservation
from fipop.operator.queues import Key, Kind, Request, request_routine_visit
from fipop.runtime.retry import retry_passing
from fipop.runtime.workqueue import Priority
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

ATTEMPTS = 5
_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=4.0)
"""For trouble of the API server."""
TURN = 50
"""How many are adopted before other tasks have a turn: if nothing is written, nothing else lets them run."""
SETTLED_SECONDS = 5.0
"""How long what is as it should be waits for what is new. The scan of the guest clusters is over by then as a rule."""

Adopt = Callable[[tuple[str, str]], Awaitable[object]]


async def adopt_all(
    guests: GuestDirectory, gate: AllocationGate, adopt: Adopt, backoff: Backoff = _BACKOFF
) -> None:
    """Let every floating IP that has an address claim it, the oldest first, before anything new is assigned.

    `adopt` reconciles a floating IP. If reservation, spec and status agree, there is nothing to claim. What specs name
    by now may have come from the predecessor.
    """
    cache = guests.cache
    cache.inheritance.note(cache.floating_ips.all())
    having_addresses = (
        each for each in cache.floating_ips_by_age() if each.status.addresses or each.ipaddress
    )
    for number, floating_ip in enumerate([each for each in having_addresses if not _is_settled(cache, each)]):
        if number % TURN == 0:
            await asyncio.sleep(0)
        try:
            # Trouble of the API server must not let a younger one with the same address come first.
            await retry_passing(partial(_adopt, guests, adopt, floating_ip), backoff, attempts=ATTEMPTS)
        except FipopError as error:
            # Its status, or the reconciliation that the queue makes next, keeps the address from others.
            logger.warning(
                "Could not adopt FloatingIP yet",
                extra={"floating_ip": floating_ip.meta.key, "error": str(error)},
            )
    gate.adopted = True


async def _adopt(guests: GuestDirectory, adopt: Adopt, floating_ip: FloatingIP) -> None:
    if floating_ip.range is None and floating_ip.status.range is None:
        await guests.discover(floating_ip.namespace)  # its range is chosen by its guest cluster
    await adopt(floating_ip.meta.key)


def find_all(cache: ClusterCache) -> Iterator[Request]:
    """Yield what may need something, then what is as it should be and a visit of each guest cluster.

    The latter wait, so that they do not come before what is new.
    """
    yield request_count(0.0)
    for floating_ip in cache.floating_ips.all():
        delay_seconds = SETTLED_SECONDS if _is_settled(cache, floating_ip) else 0.0
        yield request_floating_ip(cache, floating_ip.meta.key)._replace(delay_seconds=delay_seconds)
    for owner in cache.allocations.claimants():
        # A claim of an earlier term whose floating IP is gone: nothing else would free its address.
        yield request_floating_ip(cache, owner)
    yield from map(request_reservation, cache.reservations.all())
    yield from find_unserved(cache)
    for cluster in cache.clusters.all():
        guest_id = cluster.cluster_name
        if guest_id and cache.floating_ips_of(guest_id):
            yield Request(Key(Kind.GUEST, "", guest_id), Priority.BACKGROUND, SETTLED_SECONDS)
        if guest_id:
            yield request_routine_visit(guest_id, SETTLED_SECONDS)


def find_unserved(cache: ClusterCache) -> Iterator[Request]:
    """Yield the guest clusters without a floating IP: they may get one."""
    for cluster in cache.clusters.all():
        if cluster.cluster_name and not cache.floating_ips_of(cluster.cluster_name):
            yield Request(Key(Kind.GUEST, "", cluster.cluster_name))


def _is_settled(cache: ClusterCache, floating_ip: FloatingIP) -> bool:
    return is_settled(floating_ip, cache.reservations_of(floating_ip.meta.key))
