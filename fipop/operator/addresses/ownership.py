"""What a floating IP brings along to a round: who it is, as the owner of addresses, and which were its own before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fipop.api import names
from fipop.api.models import FloatingIP, FloatingIPStatus, Owner, Requested, Reservation
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, parse_address
from fipop.operator.addresses.guest_binding import GuestBinding


def is_made_by_us(floating_ip: FloatingIP) -> bool:
    """Whether fipop, or the predecessor, made it for a new guest: its address was chosen, not asked for."""
    return floating_ip.name == f"{floating_ip.cluster}{names.FLOATING_IP_SUFFIX}"


def build_owner(floating_ip: FloatingIP, binding: GuestBinding, held: tuple[Reservation, ...]) -> Owner:
    """Give the owner to write; what was known of the guest stays known while Rancher takes it apart."""
    before = held[0].owner if held else None
    cluster = binding.cluster
    if cluster is None and before is not None:
        return replace(before, uid=floating_ip.uid)
    return Owner(
        namespace=floating_ip.namespace,
        name=floating_ip.name,
        uid=floating_ip.uid,
        cluster=cluster.name if cluster is not None else "",
        imported=cluster.is_imported if cluster is not None else False,
    )


def inherit(held: tuple[Reservation, ...], floating_ip: FloatingIP) -> tuple[Reservation, ...]:
    """Give what is held as the floating IP of today sees it.

    An address that only a deleted object of its name asked for by name counts as chosen. One that fipop chose stays
    chosen though the spec names it: fipop wrote it there, and a restored backup brings it back.
    """
    named = read_addresses(floating_ip.ipaddress.split(","))
    return tuple(
        replace(each, requested=Requested.DYNAMIC)
        if each.owner.uid != floating_ip.uid and parse_address(each.address) not in named
        else each
        for each in held
    )


def is_settled(floating_ip: FloatingIP, own: Iterable[Reservation]) -> bool:
    """Whether its reservations, its status and its spec say the same, so that nothing is left to claim."""
    held = [each for each in own if each.is_held]
    named = read_addresses(floating_ip.status.addresses)
    space = space_named(floating_ip.status)
    return (
        bool(held)
        and floating_ip.status.observed_generation == floating_ip.meta.generation
        and floating_ip.range in (None, floating_ip.status.range)
        and all(each.owner.uid == floating_ip.uid and each.space == space for each in held)
        and frozenset(address_of(each) for each in held) == named
        and read_addresses(floating_ip.ipaddress.split(",")) == named
    )


def space_named(status: FloatingIPStatus) -> str:
    """Give the address space of what a status names."""
    return status.address_space or DEFAULT_ADDRESS_SPACE


def read_addresses(texts: Iterable[str]) -> frozenset[Address]:
    """Read what can be read: in a status, and in a spec, people may write."""
    found = set()
    for text in texts:
        try:
            found.add(parse_address(text))
        except IpamError:
            continue
    return frozenset(found)


def is_named(floating_ip: FloatingIP, reservation: Reservation) -> bool:
    """Whether the status of a floating IP names what is reserved."""
    status = floating_ip.status
    is_there = space_named(status) == reservation.space
    return is_there and address_of(reservation) in read_addresses(status.addresses)


def address_of(reservation: Reservation) -> Address:
    """Give the address of a reservation."""
    return parse_address(reservation.address)


def is_former_owner(reservation: Reservation, owner: Owner, range_name: str) -> bool:
    """Whether an address in quarantine goes back to this owner at once: same cluster, floating IP and range.

    The namespace may differ: a guest that is made again gets another one.
    """
    former = reservation.owner
    return (
        bool(former.cluster)
        and former.cluster == owner.cluster
        and former.name == owner.name
        and reservation.range == range_name
    )
