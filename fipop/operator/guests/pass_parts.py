"""What passes over guests work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Protocol

from fipop.control.runs import Priority
from fipop.guest.guest_pass import GuestSessions
from fipop.guest.release_gate import ReleaseGate
from fipop.guest.reports import PassReport
from fipop.kube.client import KubeClient
from fipop.metrics import Metrics
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.operator.guests.departures import Departures
from fipop.operator.guests.inspection import GuestInspector
from fipop.rancher.matching import Guest
from fipop.settings.options import Settings
from fipop.state.cache import ClusterCache
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory


class PassRequests(Protocol):
    """What a pass asks for."""

    def add_pass(self, guest_id: str) -> None:
        """Want a pass before all that are only due again."""

    def add_pass_later(self, guest_id: str, seconds: float) -> None:
        """Want a pass in a while."""

    def add_install(self, guest_id: str, priority: Priority) -> None:
        """Want a pass that may run helm, when its turn comes."""

    async def stand_back(self) -> None:
        """Wait while floating IPs wait for an address: those come first."""

    def add_guest_floating_ips(self, guest_id: str) -> None:
        """Want rounds over the floating IPs of a guest: their statuses tell what was found."""


class Rollout(Protocol):
    """Who knows what may be done about the releases of a guest, and is told what was found."""

    def gate(self, guest: Guest) -> ReleaseGate:
        """Give what may be done about a guest's releases now."""

    def note(self, guest_id: str, report: PassReport | None) -> None:
        """Take in how a pass ended; None: there could be none."""

    def note_helm(self, guest_id: str) -> None:
        """Take in that helm begins to change a release of a guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassParts:
    """What passes work with.

    `leads` tells whether this replica leads for as long as a write may take; `gate` and `conflicts` what guests were
    seen to carry.
    """

    client: KubeClient
    cache: ClusterCache
    guests: GuestDirectory
    sessions: GuestSessions
    metrics: Metrics
    settings: Callable[[], Settings]
    leads: Callable[[], bool]
    reservation_store: ReservationStore
    gate: AllocationGate
    conflicts: AddressConflicts
    requests: PassRequests
    inspector: GuestInspector
    rollout: Rollout
    departures: Departures
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Random
