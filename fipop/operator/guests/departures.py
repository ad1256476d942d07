"""Leaving guests: which of them lose what fipop installed, how many at once, and when so many that people are asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fipop.api.models import FloatingIP, Removal
from fipop.operator.configuration import Configuration
from fipop.operator.confirmation import Confirmation
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ProvisioningCluster
from fipop.state.guests import GuestDirectory, GuestState, ReleaseRemoval

MOST_UNCONFIRMED = 10
"""The most guest clusters that lose their releases unconfirmed, or a tenth of those with releases if less."""


@dataclass(slots=True, kw_only=True)
class Departures:
    """Knows of each guest that is to have no releases whether it still has ours, as passes of this process saw it.

    An option that was deleted by mistake must not uninstall a fleet: of more guests than few, none is touched until
    an administrator confirms them. A guest of which nothing is known counts as one with releases, and what was once
    seen there holds until something else is: guests that are out of reach in turns must not pass a few at a time.

    A guest loses releases only by what the status of its floating IPs records: that it was opted in while the
    option was on, and opted out since. `is_listed`: the clusters were listed since the option is on. A watch that lags
    could still show a cluster as opted in that was opted out before.
    """

    configuration: Configuration
    guests: GuestDirectory
    confirmation: Confirmation
    is_listed: bool = False

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
        is_recorded = not self._recorded(guest.id).isdisjoint({Removal.ON_OPT_OUT, Removal.PENDING})
        return is_recorded and self.guests.state(guest.id).removal.has_ours is not False

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
        if before is Removal.PENDING and self.guests.state(floating_ip.namespace).removal.has_ours is False:
            return Removal.DONE
        return Removal.PENDING if before is Removal.ON_OPT_OUT else before

    def note(self, state: GuestState, has_ours: bool | None, *, awaits_helm: bool = False) -> None:
        """Record whether a guest has releases of ours; None: it could not be asked.

        A guest that does not wait for helm leaves its turn to another.
        """
        if has_ours is False:
            # A new record: what was confirmed or under way ends with the releases.
            state.removal = ReleaseRemoval(has_ours=False)
        elif has_ours:
            state.removal.has_ours = True
        if not awaits_helm:
            state.removal.is_under_way = False
        state.removal.was_asked = True

    def may_remove(self, guest_id: str) -> bool:
        """Whether a guest's releases may be uninstalled now: so many at once as a wave of a rollout has at most."""
        settings, guests = self.configuration.settings, self._find_candidates()
        leaving = {each.id: self.guests.state(each.id).removal for each in guests if self.is_leaving(each)}
        removal = leaving.get(guest_id)
        if removal is None or Removal.PENDING not in self._recorded(guest_id):
            return False
        if not (removal.has_ours and all(each.was_asked for each in leaving.values())):
            return False  # who is left at once is known when all were looked at
        fleet = len(leaving) + sum(
            settings.kubevip_guest_install.includes(opted_in=each.cluster.opted_in)
            for each in guests
            if self.guests.cache.floating_ips_of(each.id)
        )
        unconfirmed = min(MOST_UNCONFIRMED, max(1, math.ceil(fleet / 10)))
        if removal not in self.confirmation.permitted(frozenset(leaving.values()), most=unconfirmed):
            return False
        most = max(1, settings.kubevip_rollout_max_concurrency.of(fleet))
        under_way = sum(each.is_under_way for each in leaving.values())
        removal.is_under_way = removal.is_under_way or under_way < most
        return removal.is_under_way

    def _find_candidates(self) -> list[Guest]:
        """Return all guests, also those without resolved links: a new term must not count only those it knows."""
        ids = sorted({cluster.cluster_name for cluster in self.guests.cache.clusters.all()})
        found = (self.guests.known(each) or self.guests.glimpse(each) for each in ids)
        return [guest for guest in found if guest is not None]

    def _recorded(self, guest_id: str) -> frozenset[Removal]:
        """Return what the status of a guest's floating IPs records of the removal of its releases."""
        statuses = self.guests.cache.guest_statuses(guest_id)
        return frozenset(each.removal for each in statuses if each.removal is not None)
