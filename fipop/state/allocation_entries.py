"""What is known of one address: its reservation, the claims under way, who names it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from fipop.api.models import Reservation
from fipop.ipam.addresses import Address
from fipop.ipam.ledger import Ledger

OwnerKey = tuple[str, str]


class Name(NamedTuple):
    """An address that a floating IP names; `is_had`: its status does, not only its spec."""

    space: str
    address: Address
    range: str
    is_had: bool


Named = frozenset[Name]


class Holder(NamedTuple):
    """Who has an address, or asks for it, from which range; `quarantined_until` where it is released."""

    owner: OwnerKey
    range: str
    quarantined_until: datetime | None


@dataclass(slots=True)
class Entry:
    """All that is known of one address of a space."""

    reservation: Reservation | None = None
    claims: dict[OwnerKey, str] = field(default_factory=dict)
    named_by: dict[OwnerKey, Name] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it any more."""
        return self.reservation is None and not self.claims and not self.named_by

    @property
    def holder(self) -> Holder:
        """Who has it, of an entry that is not empty: a reservation counts before a claim, a claim before a name."""
        if self.reservation is not None:
            return _holder_by(self.reservation)
        if self.claims:
            return Holder(*min(self.claims.items()), None)
        owner, name = min(self.named_by.items())
        return Holder(owner, name.range, None)


@dataclass(slots=True)
class Space:
    """One address space: its ledger, and the entries that it is made from."""

    ledger: Ledger[OwnerKey] = field(default_factory=Ledger)
    entries: dict[Address, Entry] = field(default_factory=dict)


def _holder_by(reservation: Reservation) -> Holder:
    return Holder(reservation.owner.key, reservation.range, reservation.quarantined_until)
