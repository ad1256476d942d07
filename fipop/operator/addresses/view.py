"""What a decision about a floating IP rests on: values, and questions about who has which address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fipop.api.models import FloatingIP, Owner, Removal, Reservation
from fipop.ipam.addresses import Address, Family
from fipop.operator.addresses.allocation import RangeView
from fipop.operator.addresses.blockers import Blocker
from fipop.operator.addresses.guest_binding import GuestBinding
from fipop.operator.addresses.request import Request
from fipop.state.claims import Claim
from fipop.state.observations import GuestObservation


class Holders(Protocol):
    """Who has which address, by all that is known here."""

    def choose(self, family: Family, owner: Owner, range_name: str) -> Address:
        """Choose an address of a range for a new claim; IpamError says why there is none."""

    def refusal(self, claim: Claim, *, is_own: bool, beside: Collection[Claim] = ()) -> Blocker | None:
        """Say what speaks against a claim whoever is asked: another had the address, or the guest's quota is used up.

        The quota counts the claims that are made `beside` it. None stands in the way of what was the claimant's own.
        """

    def holder(self, claim: Claim) -> Reservation | None:
        """Give the reservation that keeps the address from the claimant, as far as is known; None where none does."""

    def describe(self, reservation: Reservation) -> Blocker:
        """Say who has an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that a decision rests on.

    `own` are the reservations that name the floating IP as their owner, in quarantine too; `fresh` the names of those
    that this process wrote less than NAMING_SECONDS ago; `unsafe_for` tells of the others for how many seconds they
    must not be released yet. `denied` are the reservations that the API server itself named as the reason why a claim
    failed, by name. `written` are the addresses that this process wrote into the spec last, which was changed back
    `write_backs` times. `is_live`: the floating IP was just read. `is_inherited`: the addresses of its spec came from
    the predecessor. `is_guest_known`: also that there is none. `removal`: what the status is to record of the removal
    of the guest's releases.
    """

    floating_ip: FloatingIP
    is_live: bool
    is_inherited: bool
    own: tuple[Reservation, ...]
    fresh: frozenset[str]
    unsafe_for: Mapping[str, float]
    request: Request | Blocker
    range: RangeView | Blocker
    binding: GuestBinding
    is_guest_known: bool
    observation: GuestObservation | None
    is_gate_open: bool
    holders: Holders
    denied: Mapping[str, Reservation]
    written: frozenset[Address]
    write_backs: int
    now: datetime
    removal: Removal | None = None
