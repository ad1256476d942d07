"""Leaving guests: which of them lose what fipop installed, how many at once, and when so many that people are asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fipop.operator.addresses.mass_release import are_few
from fipop.rancher.matching import Guest
from fipop.settings.options import Settings

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Departures:
    """Knows of each guest that is to have no releases whether it still has ours, as passes of this process saw it.

    An option that somebody deleted by mistake must not uninstall a fleet: of more guests than few, none is touched
    until `confirmed` is their number. The confirmation holds for the guests that there were then. `tell` brings the
    number to people.
    """

    settings: Callable[[], Settings]
    guests: Callable[[], Iterable[Guest]]
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    _has_ours: dict[str, bool | None] = field(default_factory=dict)
    _removing: set[str] = field(default_factory=set)
    _granted: set[str] = field(default_factory=set)
    _told: int = 0

    def is_leaving(self, guest: Guest) -> bool:
        """Whether a guest is to lose what fipop installed there, as far as is known."""
        settings = self.settings()
        stays = (
            settings.kubevip_guest_install.includes(opted_in=guest.opted_in) or guest.deleting or guest.paused
        )
        return settings.kubevip_guest_remove and not stays and self._has_ours.get(guest.id, True) is not False

    def note(self, guest_id: str, has_ours: bool | None) -> None:
        """Take in whether a guest has releases of ours; None: it could not be asked."""
        self._has_ours[guest_id] = has_ours
        if not has_ours:
            self._removing.discard(guest_id)
        if has_ours is False:
            self._granted.discard(guest_id)

    def forget(self, guest_id: str) -> None:
        """Forget a guest that is gone, or has its releases again."""
        self._has_ours.pop(guest_id, None)
        self._removing.discard(guest_id)
        self._granted.discard(guest_id)

    def may_remove(self, guest_id: str) -> bool:
        """Whether a guest's releases may be uninstalled now: so many at once as a wave of a rollout has at most."""
        settings, guests = self.settings(), tuple(self.guests())
        leaving = {each.id for each in guests if self.is_leaving(each)}
        unseen = {each for each in leaving if each not in self._has_ours}
        with_ours = {each for each in leaving if self._has_ours.get(each)}
        if unseen or guest_id not in with_ours:
            return False  # who is left at once is known when all were looked at
        fleet = len(with_ours) + sum(
            settings.kubevip_guest_install.includes(opted_in=each.opted_in) for each in guests
        )
        if not self._are_confirmed(with_ours, fleet):
            return False
        most = max(1, settings.kubevip_rollout_max_concurrency.of(fleet))
        if guest_id in self._removing or len(self._removing) < most:
            self._removing.add(guest_id)
            return True
        return False

    def _are_confirmed(self, with_ours: set[str], fleet: int) -> bool:
        asked = with_ours - self._granted
        if are_few(len(asked), fleet):
            self._told = 0
            self._granted |= asked
            return True
        if self.confirmed() == len(asked):
            self._granted |= asked
            return True
        if self._told != len(asked):
            self._told = len(asked)
            logger.error("mass removal withheld", extra={"guests": len(asked), "fleet": fleet})
            self.tell(len(asked))
        return False
