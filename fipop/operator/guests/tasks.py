"""What a pass over a guest is to bring there, whether that may be written, and how urgent its helm is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fipop.api.objects import FloatingIP, FloatingIPReservation
from fipop.errors import UnavailableError
from fipop.guest.reports import GuestTask, PassReport
from fipop.ipam.addresses import format_address
from fipop.operator.addresses.decision import bind_guest
from fipop.operator.addresses.reservations import ReservationStore
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import Priority
from fipop.settings.options import Settings
from fipop.state.cache import ClusterCache
from fipop.state.claims import address_of, slots_named_by
from fipop.state.gate import Gate
from fipop.state.guests import GuestDirectory
from fipop.state.ledger import BY_OWNER_NAMESPACE

logger = logging.getLogger(__name__)

READS_AT_ONCE = 32
"""How many reservations are read at once before a guest cluster is written: the answers must be fresh together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAddresses:
    """The addresses of a guest cluster, as the ledger has them when a pass begins."""

    floating_ips: tuple[FloatingIP, ...]
    """Those whose addresses belong into its ConfigMap."""
    held: tuple[FloatingIPReservation, ...]
    """The reservations that back these addresses."""
    retired: frozenset[str]
    """The addresses that it had and that are in quarantine: they are removed from it."""
    frozen: frozenset[str]
    """The addresses of floating IPs with the wrong `clustername`: keys with one of them stay as they are."""

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
    if not status.addresses:
        return None
    return (
        floating_ip.uid,
        status.addresses,
        floating_ip.spec.service_namespace,
        floating_ip.spec.allow_share,
        floating_ip.spec.interface,
        floating_ip.update_config_map,
        floating_ip.paused,
        floating_ip.ignored_claims,
        floating_ip.cluster,
        floating_ip.problem,
    )


def collect_addresses(cache: ClusterCache, guest: Guest) -> GuestAddresses:
    """Collect the addresses of a guest cluster."""
    floating_ips = tuple(served_floating_ips(cache, guest))
    held = tuple(
        each
        for floating_ip in floating_ips
        for each in cache.reservations_of(floating_ip.key)
        if each.is_held and each.spec.owner.uid == floating_ip.uid
    )
    retired = (each for each in cache.reservations.by_index(BY_OWNER_NAMESPACE, guest.id) if not each.is_held)
    frozen = (
        text
        for each in cache.floating_ips_of(guest.id)
        if bind_guest(cache, each).blocker is not None
        for text in each.status.addresses
    )
    return GuestAddresses(
        floating_ips=floating_ips,
        held=held,
        retired=_text_of(retired) - _text_of(held),
        frozen=frozenset(frozen),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePermits:
    """Permits writes. `leads` tells whether this replica leads for as long as a write may take."""

    cache: ClusterCache
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

    def find_withheld(self, addresses: GuestAddresses) -> frozenset[str]:
        """Return the addresses that another guest cluster uses, too: no key gets them anew."""
        found = {
            format_address(address)
            for each in addresses.floating_ips
            for space, address in slots_named_by(each.status)
            if self.cache.ledger.find_rivals(each, space, address)
        }
        return frozenset(found)


def served_floating_ips(cache: ClusterCache, guest: Guest) -> list[FloatingIP]:
    """Return the floating IPs whose addresses belong into the guest's ConfigMap."""
    return [
        floating_ip
        for floating_ip in cache.floating_ips_of(guest.id)
        if floating_ip.status.addresses and bind_guest(cache, floating_ip).blocker is None
    ]


def is_leaving(guest: Guest, settings: Settings) -> bool:
    """Return whether a guest cluster has to lose the releases that fipop made: two labels say so."""
    wants_removal = guest.cluster.opted_out and guest.cluster.wants_removal
    return wants_removal and not (settings.unknown_release_options or guest.deleting or guest.cluster.paused)


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


def _text_of(reservations: Iterable[FloatingIPReservation]) -> frozenset[str]:
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
