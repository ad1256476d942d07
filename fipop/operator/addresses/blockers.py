"""Why a floating IP has not all that it asks for, and who stands in its way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fipop.api.models import Reservation
from fipop.errors import AddressOutOfRangeError, IpamError
from fipop.ipam.addresses import Address, format_address, parse_address
from fipop.texts import sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """Why a floating IP has not all that it asks for; `reason` is that of its condition.

    One that is `tolerable` leaves the wish fulfilled as long as there is an address: one family is enough. From
    `looked_at` on it is looked whether it still stands.
    """

    reason: str
    message: str
    tolerable: bool = False
    looked_at: datetime | None = None


def blocker_of(error: IpamError) -> Blocker:
    """Return the blocker that an error of the core is: its class is the reason."""
    remedy = ". Choose another address or range" if isinstance(error, AddressOutOfRangeError) else ""
    return Blocker(reason=type(error).__name__.removesuffix("Error"), message=sentence(f"{error}{remedy}"))


def describe_holder(reservation: Reservation, carrier: str | None = None) -> Blocker:
    """Say who stands in the way of a claim; `carrier` (a sentence) keeps the address in quarantine beyond its time."""
    text = format_address(parse_address(reservation.address))
    holder = f"{reservation.owner.namespace}/{reservation.owner.name}".rstrip("/")
    cluster = f' of cluster "{reservation.owner.cluster}"' if reservation.owner.cluster else ""
    if reservation.quarantined_until is None:
        message = f"Address {text} is held by FloatingIP {holder}{cluster}. Choose another address, or delete that one."
        return Blocker(reason="AddressInUse", message=message)
    until = reservation.quarantined_until.strftime("%Y-%m-%d %H:%M:%S UTC")
    message = f"Address {text} is in quarantine until {until} or later: "
    message += sentence(carrier) if carrier else f"FloatingIP {holder}{cluster} held it."
    looked_at = None if carrier else reservation.quarantined_until
    return Blocker(reason="AddressQuarantined", message=message, looked_at=looked_at)


def describe_conflicting_owner(holder: tuple[str, str], address: Address) -> Blocker:
    """Say that another floating IP had the address before: its reservation is missing, and will be made again."""
    message = (
        f"Address {format_address(address)} is held by FloatingIP {'/'.join(holder)}. Choose another address."
    )
    return Blocker(reason="AddressInUse", message=message)
