"""How the parts that work on addresses are put together."""

from __future__ import annotations

from dataclasses import dataclass

from fipop.operator.addresses.mass_release import MassReleaseGuard
from fipop.operator.addresses.quarantine import QuarantineReconciler, Surroundings
from fipop.operator.addresses.ranges import RangeReconciler
from fipop.operator.addresses.reconciler import Callbacks, FloatingIPReconciler
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.view_building import ViewBuilder
from fipop.operator.estate import Estate
from fipop.operator.guests.conflicts import AddressConflicts
from fipop.operator.guests.inspection import GuestInspector
from fipop.operator.guests.pass_triggers import PassTriggers
from fipop.operator.notices import Notices
from fipop.operator.routing import Router
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The other parts of a term that the work on addresses needs, or sets to work."""

    guests: GuestDirectory
    gate: AllocationGate
    router: Router
    notices: Notices
    reservation_store: ReservationStore
    inspector: GuestInspector
    conflicts: AddressConflicts


class AddressParts:
    """What decides on floating IPs, their addresses and their ranges, in one term."""

    def __init__(self, estate: Estate, near: Neighbours) -> None:
        client, cache = estate.client, estate.cache
        self.mass_release = MassReleaseGuard(
            cache=cache,
            guests=near.guests,
            confirmed=near.notices.confirmed_releases,
            tell=near.notices.tell_mass_release,
            monotonic=cache.monotonic,
        )
        self.quarantine = self._build_quarantine(estate, near)
        self.pass_triggers = PassTriggers(cache=cache, add_pass=near.router.add_pass)
        self.floating_ips = self._build_floating_ips(estate, near)
        self.ranges = RangeReconciler(client=client, cache=cache, monotonic=cache.monotonic)

    def _build_quarantine(self, estate: Estate, near: Neighbours) -> QuarantineReconciler:
        return QuarantineReconciler(
            client=estate.client,
            cache=estate.cache,
            reservation_store=near.reservation_store,
            guests=near.guests,
            surroundings=Surroundings(
                look=near.inspector.find_carrier,
                look_at_conflicts=near.conflicts.carriers_of,
                waiting=near.router.waiting_by_name,
                were_looked_at=lambda: near.gate.looked,
                may_release=self.mass_release.may_release,
                clean=near.router.add_pass,
                owner_changed=near.router.add_floating_ip,
                still_carried=near.router.wake_waiting,
            ),
            now=estate.client.server_now,
        )

    def _build_floating_ips(self, estate: Estate, near: Neighbours) -> FloatingIPReconciler:
        return FloatingIPReconciler(
            client=estate.client,
            cache=estate.cache,
            reservation_store=near.reservation_store,
            views=ViewBuilder(
                cache=estate.cache,
                reservation_store=near.reservation_store,
                gate=near.gate,
                guests=near.guests,
                carrier_of=self.quarantine.carrier_of,
            ),
            callbacks=Callbacks(
                deciding=near.router.note_decided_on,
                settled=self.pass_triggers.note_settled,
                gone=near.router.add_reservation,
                waiting=near.router.note_waiting,
                allocated=near.notices.tell_allocated,
                blocked=estate.metrics.count_allocation,
            ),
        )
