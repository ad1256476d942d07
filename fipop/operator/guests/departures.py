"""Leaving guests: which of them lose what fipop installed, how many at once, and when so many that people are asked."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP, Removal
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ProvisioningCluster
from fipop.settings.options import Settings

logger = logging.getLogger(__name__)

MOST_UNCONFIRMED = 10
"""So many guests, or a tenth of those with releases where that is fewer, are left without asking people."""


@dataclass(slots=True, kw_only=True)
class Departures:
    """Knows of each guest that is to have no releases whether it still has ours, as passes of this process saw it.

    An option that somebody deleted by mistake must not uninstall a fleet: of more guests than few, none is touched
    until `confirmed` becomes their number. A confirmation holds for the guests that people had been told of by then,
    once: `tell` brings their number to people, also where the same number stands there from before. A guest of which
    nothing is known counts as one with releases, and what was once seen there holds until something else is: guests
    that are out of reach in turns must not pass a few at a time.

    A guest loses releases only by what the status of its floating IPs records (K5): that it was opted in while the
    option was on, and opted out since. `recorded` returns it. `is_listed`: the clusters were listed since the option is
    on. A watch that lags could still show a cluster as opted in that was opted out before.
    """

    settings: Callable[[], Settings]
    guests: Callable[[], Iterable[Guest]]
    recorded: Callable[[str], frozenset[Removal]]
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    is_listed: bool = False
    _has_ours: dict[str, bool | None] = field(default_factory=dict)
    _removing: set[str] = field(default_factory=set)
    _granted: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _used: int = 0
    """The number that stood there before these guests were told of, or that served: it says nothing of them."""

    def is_leaving(self, guest: Guest) -> bool:
        """Whether a guest is to lose what fipop installed there, as far as is known."""
        settings = self.settings()
        if settings.unknown_options:
            return False
        stays = (
            settings.kubevip_guest_install.includes(opted_in=guest.opted_in) or guest.deleting or guest.paused
        )
        if not (settings.kubevip_guest_remove and self.is_listed) or stays:
            return False
        # Also one whose opting out is still to be recorded: how many leave must be known before the first does.
        is_recorded = not self.recorded(guest.id).isdisjoint({Removal.ON_OPT_OUT, Removal.PENDING})
        return is_recorded and self._has_ours.get(guest.id, True) is not False

    def next_record(self, floating_ip: FloatingIP, cluster: ProvisioningCluster) -> Removal | None:
        """Return what the status of a floating IP is to record of the removal of its guest's releases."""
        settings, guest = self.settings(), floating_ip.status.guest
        before = guest.removal if guest is not None else None
        if settings.unknown_options:
            return before
        if not (settings.kubevip_guest_remove and self.is_listed):
            return None
        if settings.kubevip_guest_install.includes(opted_in=cluster.opted_in):
            return Removal.ON_OPT_OUT
        if before is Removal.PENDING and self._has_ours.get(floating_ip.namespace) is False:
            return Removal.DONE
        return Removal.PENDING if before is Removal.ON_OPT_OUT else before

    def note(self, guest_id: str, has_ours: bool | None) -> None:
        """Take in whether a guest has releases of ours; None: it could not be asked."""
        if has_ours is None:
            self._has_ours.setdefault(guest_id, None)
        else:
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
        is_one = guest_id in leaving and Removal.PENDING in self.recorded(guest_id)
        if not (is_one and self._has_ours.get(guest_id) and leaving <= self._has_ours.keys()):
            return False  # who is left at once is known when all were looked at
        fleet = len(leaving) + sum(
            settings.kubevip_guest_install.includes(opted_in=each.opted_in) for each in guests
        )
        if not self._are_confirmed(leaving, fleet):
            return False
        most = max(1, settings.kubevip_rollout_max_concurrency.of(fleet))
        if guest_id in self._removing or len(self._removing) < most:
            self._removing.add(guest_id)
            return True
        return False

    def _are_confirmed(self, leaving: set[str], fleet: int) -> bool:
        asked, confirmed = leaving - self._granted, self.confirmed()
        if confirmed != self._used:
            self._used = 0
        if len(asked) <= min(MOST_UNCONFIRMED, max(1, math.ceil(fleet / 10))):
            self._told = set()
            return True
        if asked <= self._told and len(self._told) == confirmed != self._used:
            self._granted |= asked
            self._used = confirmed
            return True
        if self._told != asked:
            self._told, self._used = asked, confirmed
            logger.error(
                "Removal from many guest clusters is withheld", extra={"guests": len(asked), "fleet": fleet}
            )
            self.tell(len(asked))
        return False
