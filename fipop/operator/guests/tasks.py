"""What a pass over a guest is to bring there, whether that may be written, and how urgent its helm is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fipop.api.models import FloatingIP, Reservation
from fipop.errors import UnavailableError
from fipop.guest.reports import GuestTask, PassReport
from fipop.ipam.addresses import format_address
from fipop.operator.addresses.facts import bind_guest
from fipop.operator.addresses.values import address_of
from fipop.operator.guests.reported import ReportedAddresses
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import Priority
from fipop.settings.options import Settings
from fipop.state.cache import BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAddresses:
    """The addresses of a guest cluster, as the ledger has them when a pass begins."""

    floating_ips: tuple[FloatingIP, ...]
    """Those whose addresses belong into its ConfigMap."""
    held: tuple[Reservation, ...]
    """The reservations that back these addresses."""
    retired: frozenset[str]
    """The addresses that it had and that are in quarantine: they are removed from it."""

    @property
    def granted(self) -> frozenset[str]:
        """The addresses that reservations back."""
        return _text_of(self.held)

    @property
    def are_complete(self) -> bool:
        """Whether no reservation is missing. A missing one is made again; until then its address stays as it is."""
        granted = self.granted
        return all(granted.issuperset(each.status.addresses) for each in self.floating_ips)


def find_needs(floating_ip: FloatingIP | None) -> tuple[object, ...] | None:
    """Return all that a visit of its guest cluster takes from a floating IP; None if it takes nothing."""
    if floating_ip is None:
        return None
    status = floating_ip.status
    removal = status.guest.removal if status.guest is not None else None
    if not status.addresses and removal is None:
        return None
    return (
        floating_ip.uid,
        status.addresses,
        removal,
        floating_ip.service_namespace,
        floating_ip.allow_share,
        floating_ip.interface,
        floating_ip.update_config_map,
        floating_ip.paused,
        floating_ip.ignored_claims,
        floating_ip.cluster,
    )


def collect_addresses(cache: ClusterCache, guest: Guest) -> GuestAddresses:
    """Collect the addresses of a guest cluster."""
    floating_ips = tuple(served_floating_ips(cache, guest))
    held = tuple(
        each
        for floating_ip in floating_ips
        for each in cache.reservations_of(floating_ip.meta.key)
        if each.is_held and each.owner.uid == floating_ip.uid
    )
    # What was only found there was never given by us: it is somebody else's, and so are its keys.
    retired = (
        each
        for each in cache.reservations.by_index(BY_OWNER_NAMESPACE, guest.id)
        if not each.is_held and each.owner.name
    )
    return GuestAddresses(floating_ips=floating_ips, held=held, retired=_text_of(retired) - _text_of(held))


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePermits:
    """Permits writes.

    `leads` tells whether this replica leads for as long as a write may take; `gate` and `reported` what other guest
    clusters were seen to carry.
    """

    gate: AllocationGate
    reported: ReportedAddresses
    leads: Callable[[], bool]

    async def may_write(self, held: Iterable[Reservation]) -> bool:
        """Return whether addresses are still their owners', and no other guest cluster carries them.

        Raises AddressConflictError.
        """
        held = tuple(held)
        if self.gate.is_shut or not all(map(self.gate.may_write, held)):
            return False
        for reservation in held:
            await self.reported.check(reservation)
        try:
            for reservation in held:
                if not await self.reported.reservation_store.is_held_by(reservation.name, reservation.owner):
                    return False
        except UnavailableError as error:
            # The guest has no part in that, and is not to wait as if it had.
            logger.debug("Could not confirm addresses", extra={"error": str(error)})
            return False
        return self.leads()

    def contested(self, guest_id: str) -> dict[str, tuple[str, ...]]:
        """Return the guest clusters that claim addresses which this one holds, by address."""
        return {
            format_address(address_of(each)): claimants
            for each in self.reported.guests.cache.reservations.by_index(BY_OWNER_NAMESPACE, guest_id)
            if each.is_held and (claimants := self.reported.reporters(each, but=guest_id))
        }


def served_floating_ips(cache: ClusterCache, guest: Guest) -> list[FloatingIP]:
    """Return the floating IPs whose addresses belong into the guest's ConfigMap."""
    return [
        floating_ip
        for floating_ip in cache.floating_ips_of(guest.id)
        if floating_ip.status.addresses and bind_guest(cache, floating_ip).blocker is None
    ]


def reported_releases(cache: ClusterCache, guest_id: str) -> frozenset[tuple[str, str]]:
    """Return the releases that the status of a guest's floating IPs names, as (namespace, name)."""
    return frozenset(
        (release.namespace, release.name)
        for status in cache.guest_statuses(guest_id)
        for release in status.releases
    )


def judge_urgency(task: GuestTask, report: PassReport) -> Priority:
    """Return how soon a guest needs helm: what rolls back first, guests without releases next, upgrades last."""
    if task.gate.going_back is not None:
        return Priority.URGENT
    is_new = any(not release.deployed_revision for release in report.releases)
    return Priority.NORMAL if is_new else Priority.BACKGROUND


def _text_of(reservations: Iterable[Reservation]) -> frozenset[str]:
    return frozenset(format_address(address_of(each)) for each in reservations)


def find_fleet(guests: GuestDirectory, settings: Settings) -> dict[str, Guest]:
    """Return the guests in which fipop keeps releases now, by id."""
    install = settings.kubevip_guest_install
    return {
        guest.id: guest
        for guest in guests.all()
        if install.includes(opted_in=guest.cluster.opted_in) and _is_served(guests.cache, guest)
    }


def _is_served(cache: ClusterCache, guest: Guest) -> bool:
    served = served_floating_ips(cache, guest)
    return bool(served) and not (guest.cluster.paused or any(each.paused for each in served))
