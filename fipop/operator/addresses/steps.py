"""The steps that can be decided on for a floating IP; the reconciler takes them."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.api.models import FloatingIPStatus, Reservation
from fipop.operator.addresses.blockers import Blocker
from fipop.state.claims import Claim


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read the floating IP: what comes next must not rest on an old view of it."""


@dataclass(frozen=True, slots=True)
class MakeClaim:
    """Ask for an address."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Confirm:
    """Write a reservation anew as it is: who meant to release it as it was fails."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """Name the addresses in the spec, and where `range` is not None that range in its annotation."""

    ipaddress: str
    range: str | None
    is_write_back: bool
    """The status named them already: somebody took them out of the spec."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status."""

    status: FloatingIPStatus


@dataclass(frozen=True, slots=True)
class Release:
    """Put a reservation in quarantine."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done now; look again after `seconds`, or when something changes.

    `is_settled`: spec and status say what is held.
    """

    blockers: tuple[Blocker, ...] = ()
    seconds: float | None = None
    is_settled: bool = True


Step = ReadAgain | MakeClaim | Confirm | WriteSpec | WriteStatus | Release | Wait
