"""What a pass over a guest is to bring there, and how urgent its helm is."""

from __future__ import annotations

from collections.abc import Iterable

from fipop.api.models import FloatingIP, Reservation
from fipop.guest.configmap.keys import WantedAddress
from fipop.guest.reports import GuestTask, PassReport
from fipop.ipam.addresses import format_address
from fipop.operator.addresses.facts import bind_guest
from fipop.operator.addresses.values import address_of
from fipop.rancher.matching import Guest
from fipop.runtime.workqueue import Priority
from fipop.state.cache import ClusterCache


def served_floating_ips(cache: ClusterCache, guest: Guest) -> list[FloatingIP]:
    """Return the floating IPs whose addresses belong into the guest's ConfigMap."""
    return [
        floating_ip
        for floating_ip in cache.floating_ips_of(guest.id)
        if floating_ip.status.addresses and bind_guest(cache, floating_ip).blocker is None
    ]


def build_wanted(floating_ip: FloatingIP, granted: frozenset[str]) -> WantedAddress | None:
    """Say what a floating IP asks of the ConfigMap: of its addresses only those that reservations back."""
    addresses = tuple(address for address in floating_ip.status.addresses if address in granted)
    if not addresses:
        return None
    return WantedAddress(
        floating_ip=floating_ip.meta.key,
        created=floating_ip.meta.created,
        addresses=addresses,
        service_namespace=floating_ip.service_namespace,
        allow_share=floating_ip.allow_share,
        interface=floating_ip.interface,
        update_config_map=floating_ip.update_config_map,
    )


def reported_releases(cache: ClusterCache, guest_id: str) -> frozenset[tuple[str, str]]:
    """Return the releases that the status of a guest's floating IPs names, as (namespace, name)."""
    return frozenset(
        (release.namespace, release.name)
        for each in cache.floating_ips_of(guest_id)
        if each.status.guest is not None
        for release in each.status.guest.releases
    )


def judge_urgency(task: GuestTask, report: PassReport) -> Priority:
    """Say how soon a guest is to have helm: what goes back first, guests without releases next, upgrades last."""
    if task.gate.going_back is not None:
        return Priority.URGENT
    is_new = any(not release.deployed_revision for release in report.releases)
    return Priority.NORMAL if is_new else Priority.BACKGROUND


def text_of(reservations: Iterable[Reservation]) -> frozenset[str]:
    """Return addresses in canonical form."""
    return frozenset(format_address(address_of(each)) for each in reservations)
