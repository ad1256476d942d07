"""The guard against a mass release: many addresses that lose their owner at once are a lost backup, not a wish."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from fipop.api.models import Reservation
from fipop.state.cache import ClusterCache
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)

LEAST_SUSPICIOUS = 10
SUSPICIOUS_SHARE = 0.1
COUNT_SECONDS = 2.0


@dataclass(slots=True)
class MassReleaseGuard:
    """Counts the held addresses whose floating IP vanished unseen while its cluster is still there.

    `confirmed` gives the number that an admin confirmed on kube-fip-config; `tell` brings the count to people.
    A confirmation holds for the loss that was told with that very number, and for no later one. Counting walks over
    all reservations, so a count serves for a while; `monotonic` is this process's clock, in seconds.
    """

    cache: ClusterCache
    guests: GuestDirectory
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    monotonic: Callable[[], float] = time.monotonic
    _told: int = 0
    _used: int = 0
    """The confirmation that served for a loss that is over; the same words for a later one are not meant for it."""
    _counted_at: float = float("-inf")
    _counted: tuple[int, int] = (0, 0)

    def may_release(self, reservation: Reservation) -> bool:
        """Whether the reservation, whose owner is not in the store, may be let go."""
        if not self._is_suspicious(reservation):
            return True
        suspicious, held = self._count()
        confirmed = self._confirmed()
        if are_few(suspicious, held):
            if self._told and self._told == confirmed:
                self._used = confirmed
            self._told = 0
            return True
        if self._told and suspicious <= self._told == confirmed:
            return True
        if suspicious != self._told:
            self._told = suspicious
            if suspicious != confirmed:
                logger.error(
                    "Release of many addresses is withheld", extra={"ownerless": suspicious, "held": held}
                )
                self.tell(suspicious)
        return suspicious == confirmed

    def count_again(self) -> None:
        """Forget the last count: a list has just shown that objects are gone."""
        self._counted_at = float("-inf")

    def withheld(self) -> int:
        """Give how many addresses wait for a confirmation; 0 where none do."""
        if not self._told:
            return 0
        suspicious, held = self._count()
        return 0 if are_few(suspicious, held) or suspicious == self._confirmed() else suspicious

    def _confirmed(self) -> int:
        """Give the number that people confirmed; 0 for one that has served already and was not taken away since."""
        number = self.confirmed()
        if number != self._used:
            self._used = 0
        return 0 if number == self._used else number

    def _count(self) -> tuple[int, int]:
        """Count the suspicious ones, and all that are held."""
        if self.monotonic() >= self._counted_at + COUNT_SECONDS:
            held = [each for each in self.cache.reservations.all() if each.is_held]
            self._counted = sum(1 for each in held if self._is_suspicious(each)), len(held)
            self._counted_at = self.monotonic()
        return self._counted

    def _is_suspicious(self, reservation: Reservation) -> bool:
        owner = reservation.owner
        return (
            reservation.is_held
            and not self.cache.was_deleted(owner.uid)
            and self.cache.floating_ips.get(*owner.key) is None
            and self.guests.exists(owner.namespace)
        )


def are_few(suspicious: int, held: int) -> bool:
    """Whether so many at once, of so many in all, are no reason to ask people: ten, or a tenth."""
    return suspicious <= max(LEAST_SUSPICIOUS, SUSPICIOUS_SHARE * held)
