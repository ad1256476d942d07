"""The guard against a mass release: many addresses without an owner at once are rather a lost backup than a wish."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from fipop.api.models import Reservation
from fipop.operator.guests import GuestDirectory
from fipop.operator.world import World

logger = logging.getLogger(__name__)

LEAST_SUSPICIOUS = 10
SUSPICIOUS_SHARE = 0.1
REMEMBERED_DELETIONS = 100_000


@dataclass(slots=True)
class ReleaseGuard:
    """Counts the held addresses whose floating IP vanished unseen while its cluster is still there.

    `confirmed` gives the number that an admin confirmed on kube-fip-config; `tell` brings the count to people.
    """

    world: World
    guests: GuestDirectory
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    _deleted: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _told: int = 0

    def note_deleted(self, uid: str) -> None:
        """Note a DELETED event: that floating IP was deleted by somebody's will."""
        self._deleted[uid] = None
        if len(self._deleted) > REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)

    def may_release(self, reservation: Reservation) -> bool:
        """Whether the reservation may be let go; its owner was looked for, live, and does not exist."""
        if not self._is_suspicious(reservation):
            return True
        held = [each for each in self.world.reservations.all() if each.is_held]
        suspicious = sum(1 for each in held if self._is_suspicious(each))
        if suspicious <= max(LEAST_SUSPICIOUS, SUSPICIOUS_SHARE * len(held)):
            return True
        if suspicious <= self.confirmed():
            return True
        if suspicious != self._told:
            self._told = suspicious
            logger.error("mass release withheld", extra={"ownerless": suspicious, "held": len(held)})
            self.tell(suspicious)
        return False

    def _is_suspicious(self, reservation: Reservation) -> bool:
        owner = reservation.owner
        return (
            reservation.is_held
            and owner.uid not in self._deleted
            and self.world.floating_ips.get(*owner.key) is None
            and self.guests.exists(owner.namespace)
        )
