"""What a floating IP holds or asks for, and the name of the reservation that answers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.api.objects import FloatingIP, FloatingIPReservation, FloatingIPStatus, Owner, Requested
from fipop.ipam.addresses import Address, address_key, parse_address, parse_addresses


def read_addresses(texts: Iterable[str]) -> frozenset[Address]:
    """Read what can be read: a status or a spec may be written by anyone."""
    return frozenset(parse_addresses(texts))


def address_of(reservation: FloatingIPReservation) -> Address:
    """Return the address of a reservation."""
    return parse_address(reservation.spec.address)


def slots_named_by(status: FloatingIPStatus) -> frozenset[tuple[str, Address]]:
    """Return the addresses that a status names, each with its space."""
    space = status.address_space or DEFAULT_ADDRESS_SPACE
    return frozenset((space, each) for each in read_addresses(status.addresses))


def names_address(floating_ip: FloatingIP, space: str, address: Address) -> bool:
    """Return whether the status of a floating IP names an address."""
    return (space, address) in slots_named_by(floating_ip.status)


def named_addresses(floating_ip: FloatingIP) -> frozenset[Address]:
    """Return the addresses that a floating IP names: in its status, and before its first status in its spec."""
    status = floating_ip.status
    texts = (
        status.addresses
        if status.observed_generation
        else (*status.addresses, *floating_ip.spec.ipaddress.split(","))
    )
    return read_addresses(texts)


def reservation_name(space: str, address: Address) -> str:
    """Return the name of the reservation of an address: `<space>.<v4 dotted>` or `<space>.<32 hex>`."""
    return f"{space}.{address_key(address)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One address of a space for one owner, counted in one range."""

    space: str
    address: Address
    range: str
    owner: Owner
    requested: Requested

    @property
    def name(self) -> str:
        """The name of the reservation."""
        return reservation_name(self.space, self.address)
