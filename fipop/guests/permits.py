"""Whether addresses may be written to a guest cluster now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fipop.addresses.gate import Gate
from fipop.addresses.reservations import ReservationStore
from fipop.api.objects import FloatingIPReservation
from fipop.errors import UnavailableError

logger = logging.getLogger(__name__)

READS_AT_ONCE = 32
"""How many reservations are read at once before a guest cluster is written: the answers must be fresh together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePermits:
    """Permits writes. `leads` tells whether this replica leads for as long as a write may take."""

    reservations: ReservationStore
    gate: Gate
    leads: Callable[[], bool]

    async def may_write(self, held: Iterable[FloatingIPReservation]) -> bool:
        """Return whether addresses are still their owners', and this replica still leads."""
        if not self.gate.is_open:
            return False
        slots = asyncio.Semaphore(READS_AT_ONCE)

        async def is_held(each: FloatingIPReservation) -> bool:
            async with slots:
                return await self.reservations.is_held_by(each.name, each.spec.owner)

        try:
            if not all(await asyncio.gather(*map(is_held, held))):
                return False
        except UnavailableError as error:
            # The guest cluster has no part in that, and is not to wait as if it had.
            logger.debug("Could not confirm addresses", extra={"error": str(error)})
            return False
        return self.leads()
