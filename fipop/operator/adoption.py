"""What happens first: whoever has an address claims it, before anything new is given out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

from fipop.api.models import FloatingIP
from fipop.backoff import Backoff
from fipop.errors import FipopError
from fipop.operator.addresses.values import is_settled
from fipop.runtime.retry import retry_passing
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate

logger = logging.getLogger(__name__)

ATTEMPTS = 5
_BACKOFF = Backoff(first_seconds=0.5, limit_seconds=4.0)
TURN = 50
"""So many are adopted before others have a turn: where nothing is to be written, nothing else would let them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Adoption at a start.

    `adopt` does a round over one floating IP; `discover` resolves the links of a guest. `backoff` is for
    trouble of the API server.
    """

    cache: ClusterCache
    gate: AllocationGate
    adopt: Callable[[tuple[str, str]], Awaitable[object]]
    discover: Callable[[str], Awaitable[object]]
    backoff: Backoff = _BACKOFF

    async def adopt_all(self) -> None:
        """Let every floating IP that has an address claim it, the oldest first, before anything new is given out.

        Where reservation, spec and status agree there is nothing to claim. What specs name by now may have come from
        the predecessor.
        """
        self.cache.inheritance.note(self.cache.floating_ips.all())
        for number, floating_ip in enumerate(list(self._having_addresses())):
            if number % TURN == 0:
                await asyncio.sleep(0)
            try:
                # Trouble of the API server must not let a younger one with the same address come first.
                await retry_passing(partial(self._adopt, floating_ip), self.backoff, attempts=ATTEMPTS)
            except FipopError as error:
                # Its status, or the round that the queue makes next, keeps the address from others.
                logger.warning(
                    "Could not adopt FloatingIP yet",
                    extra={"floating_ip": floating_ip.meta.key, "error": str(error)},
                )
        self.gate.adopted = True

    async def _adopt(self, floating_ip: FloatingIP) -> None:
        if floating_ip.range is None and floating_ip.status.range is None:
            await self.discover(floating_ip.namespace)  # its range is chosen by its guest
        await self.adopt(floating_ip.meta.key)

    def _having_addresses(self) -> Iterable[FloatingIP]:
        return (
            each
            for each in self.cache.floating_ips_by_age()
            if (each.status.addresses or each.ipaddress)
            and not is_settled(each, self.cache.reservations_of(each.meta.key))
        )
