"""Leaving guests: which of them lose what fipop installed, how many at once, and when so many that people are asked."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fipop.api.models import FloatingIP, Removal
from fipop.operator.configuration import Configuration
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ProvisioningCluster
from fipop.state.guests import GuestDirectory, GuestState, ReleaseRemoval

logger = logging.getLogger(__name__)

MOST_UNCONFIRMED = 10
"""The most guest clusters that lose their releases unconfirmed, or a tenth of those with releases if less."""


@dataclass(slots=True, kw_only=True)
class Departures:
    """Knows of each guest that is to have no releases whether it still has ours, as passes of this process saw it.

    An option that was deleted by mistake must not uninstall a fleet: of more guests than few, none is touched
    until `confirmed` becomes their number. A confirmation holds for the guests that people had been told of by then,
    once: `tell` brings their number to people, also where the same number stands there from before. A guest of which
    nothing is known counts as one with releases, and what was once seen there holds until something else is: guests
    that are out of reach in turns must not pass a few at a time.

    A guest loses releases only by what the status of its floating IPs records (K5): that it was opted in while the
    option was on, and opted out since. `recorded` returns it. `is_listed`: the clusters were listed since the option is
    on. A watch that lags could still show a cluster as opted in that was opted out before.
    """

    configuration: Configuration
    guests: Callable[[], Iterable[Guest]]
    recorded: Callable[[str], frozenset[Removal]]
    confirmed: Callable[[], int]
    tell: Callable[[int], None]
    state: Callable[[str], GuestState]
    is_listed: bool = False
    _told: frozenset[str] = frozenset()
    """The guests that people were told of last."""
    _used: int = 0
    """The number that stood there before these guests were told of, or that served: it says nothing of them."""

    def is_leaving(self, guest: Guest) -> bool:
        """Whether a guest is to lose what fipop installed there, as far as is known."""
        settings = self.configuration.settings
        if settings.unknown_options:
            return False
        stays = (
            settings.kubevip_guest_install.includes(opted_in=guest.cluster.opted_in)
            or guest.deleting
            or guest.cluster.paused
        )
        if not (settings.kubevip_guest_remove and self.is_listed) or stays:
            return False
        # Also one whose opting out is still to be recorded: how many leave must be known before the first does.
        is_recorded = not self.recorded(guest.id).isdisjoint({Removal.ON_OPT_OUT, Removal.PENDING})
        return is_recorded and self.state(guest.id).removal.has_ours is not False

    def next_record(self, floating_ip: FloatingIP, cluster: ProvisioningCluster) -> Removal | None:
        """Return what the status of a floating IP is to record of the removal of its guest's releases."""
        settings, guest = self.configuration.settings, floating_ip.status.guest
        before = guest.removal if guest is not None else None
        if settings.unknown_options:
            return before
        if not (settings.kubevip_guest_remove and self.is_listed):
            return None
        if settings.kubevip_guest_install.includes(opted_in=cluster.opted_in):
            return Removal.ON_OPT_OUT
        if before is Removal.PENDING and self.state(floating_ip.namespace).removal.has_ours is False:
            return Removal.DONE
        return Removal.PENDING if before is Removal.ON_OPT_OUT else before

    def note(self, removal: ReleaseRemoval, has_ours: bool | None) -> None:
        """Record whether a guest has releases of ours; None: it could not be asked."""
        removal.was_asked = True
        if has_ours is not None:
            removal.has_ours = has_ours
        removal.is_under_way = removal.is_under_way and bool(has_ours)
        removal.is_confirmed = removal.is_confirmed and has_ours is not False

    def may_remove(self, guest_id: str) -> bool:
        """Whether a guest's releases may be uninstalled now: so many at once as a wave of a rollout has at most."""
        settings, guests = self.configuration.settings, tuple(self.guests())
        leaving = {each.id: self.state(each.id).removal for each in guests if self.is_leaving(each)}
        is_one = guest_id in leaving and Removal.PENDING in self.recorded(guest_id)
        if not (is_one and leaving[guest_id].has_ours and all(each.was_asked for each in leaving.values())):
            return False  # who is left at once is known when all were looked at
        fleet = len(leaving) + sum(
            settings.kubevip_guest_install.includes(opted_in=each.cluster.opted_in) for each in guests
        )
        if not self._are_confirmed(leaving, fleet):
            return False
        most = max(1, settings.kubevip_rollout_max_concurrency.of(fleet))
        removal = leaving[guest_id]
        others = sum(self.state(each.id).removal.is_under_way for each in guests if each.id != guest_id)
        removal.is_under_way = removal.is_under_way or others < most
        return removal.is_under_way

    def _are_confirmed(self, leaving: Mapping[str, ReleaseRemoval], fleet: int) -> bool:
        asked = frozenset(guest_id for guest_id, removal in leaving.items() if not removal.is_confirmed)
        confirmed = self.confirmed()
        if confirmed != self._used:
            self._used = 0
        if len(asked) <= min(MOST_UNCONFIRMED, max(1, math.ceil(fleet / 10))):
            self._told = frozenset()
            return True
        if asked <= self._told and len(self._told) == confirmed != self._used:
            for guest_id in asked:
                leaving[guest_id].is_confirmed = True
            self._used = confirmed
            return True
        if self._told != asked:
            self._told, self._used = asked, confirmed
            logger.error(
                "Removal from many guest clusters is withheld", extra={"guests": len(asked), "fleet": fleet}
            )
            self.tell(len(asked))
        return False


def find_candidates(guests: GuestDirectory) -> list[Guest]:
    """Return all guests, also those whose links are not resolved yet: a new term must not count only those it knows."""
    ids = sorted({cluster.cluster_name for cluster in guests.cache.clusters.all()})
    found = (guests.known(each) or guests.glimpse(each) for each in ids)
    return [guest for guest in found if guest is not None]


def find_records(guests: GuestDirectory, guest_id: str) -> frozenset[Removal]:
    """Return what the status of a guest's floating IPs records of the removal of its releases."""
    statuses = (each.status.guest for each in guests.cache.floating_ips_of(guest_id))
    return frozenset(each.removal for each in statuses if each is not None and each.removal is not None)
