"""What a floating IP asks for, and the name of the reservation that answers it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fipop.api.models import Owner, Requested
from fipop.ipam.addresses import Address, address_key, parse_address
from fipop.ipam.errors import IpamError


def read_addresses(texts: Iterable[str]) -> frozenset[Address]:
    """Read what can be read: a status or a spec may be written by anyone."""
    found = set()
    for text in texts:
        try:
            found.add(parse_address(text))
        except IpamError:
            continue
    return frozenset(found)


def reservation_name(space: str, address: Address) -> str:
    """Give the name of the reservation of an address: `<space>.<v4 dotted>` or `<space>.<32 hex>`."""
    return f"{space}.{address_key(address)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is asked for: one address, for one owner, counted in one range."""

    space: str
    address: Address
    range: str
    owner: Owner
    requested: Requested

    @property
    def name(self) -> str:
        """The name of the reservation."""
        return reservation_name(self.space, self.address)
