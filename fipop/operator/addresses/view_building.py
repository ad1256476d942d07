"""Gathers from the cluster cache what a decision about a floating IP rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from fipop.api.models import EPOCH, FloatingIP, Owner, Removal, Requested, Reservation
from fipop.deadlines import NAMING_SECONDS, UNDER_WAY_SECONDS
from fipop.errors import AddressSpaceChangedError
from fipop.ipam.addresses import Address, Family
from fipop.operator.addresses.allocation import RangeView
from fipop.operator.addresses.blockers import Blocker, describe_conflicting_owner, describe_holder
from fipop.operator.addresses.guest_binding import bind_guest
from fipop.operator.addresses.ownership import address_of
from fipop.operator.addresses.range_choice import find_range, find_restriction
from fipop.operator.addresses.ranges import describe_problem
from fipop.operator.addresses.request import Request, SpecError, read_request
from fipop.operator.addresses.reservations import ReservationStore
from fipop.operator.addresses.view import View
from fipop.rancher.matching import Guest
from fipop.rancher.objects import ProvisioningCluster
from fipop.state.cache import BY_FORMER_OWNER, BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.claims import Claim
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What only the round, or the process, knows: see `View` for the fields."""

    is_live: bool
    denied: Mapping[str, Reservation]
    written: frozenset[Address]
    write_backs: int
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBuilder:
    """Builds views.

    `carrier_of` says who still carries an address in quarantine, by the name of its reservation; `removal_of` what a
    status is to record of the removal of the releases in its guest, by the cluster.
    """

    cache: ClusterCache
    reservation_store: ReservationStore
    gate: AllocationGate
    guests: GuestDirectory
    carrier_of: Callable[[str], str | None]
    removal_of: Callable[[FloatingIP, ProvisioningCluster], Removal | None]

    def build(self, floating_ip: FloatingIP, observed: Observed) -> View:
        """Give the view of a floating IP as it is known now."""
        store, own = self.reservation_store, self.cache.reservations_of(floating_ip.meta.key)
        guest = self.guests.known(floating_ip.namespace)
        binding = bind_guest(self.cache, floating_ip)
        found: RangeView | Blocker
        request: Request | Blocker
        try:
            request = read_request(floating_ip)
            found = self._find_range(floating_ip, tuple(each for each in own if each.is_held), guest, request)
        except SpecError as error:
            request = found = Blocker(reason="InvalidSpec", message=f"The FloatingIP is invalid: {error}.")
        return View(
            floating_ip=floating_ip,
            is_live=observed.is_live,
            is_inherited=self.cache.inheritance.is_inherited(floating_ip),
            own=own,
            fresh=frozenset(each.name for each in own if store.seconds_since_write(each) < NAMING_SECONDS),
            unsafe_for={each.name: self._unsafe_for(each) for each in own},
            request=request,
            range=found,
            binding=binding,
            is_guest_known=guest is not None or self.guests.glimpse(floating_ip.namespace) is None,
            observation=self.guests.observation(floating_ip.namespace),
            removal=self.removal_of(floating_ip, binding.cluster) if binding.cluster is not None else None,
            is_gate_open=self.gate.is_open(found.name if isinstance(found, RangeView) else None),
            holders=_Holders(cache=self.cache, reservation_store=store, carrier_of=self.carrier_of),
            # What changed since may be had by now.
            denied={
                name: each
                for name, each in observed.denied.items()
                if self.cache.reservations.get("", name) == each
            },
            written=observed.written,
            write_backs=observed.write_backs,
            now=observed.now,
        )

    def _unsafe_for(self, reservation: Reservation) -> float:
        """Give for how many seconds a status that relies on a reservation may still be under way elsewhere."""
        if not math.isinf(self.reservation_store.seconds_since_write(reservation)):
            return 0.0
        return UNDER_WAY_SECONDS - self.cache.age_of(reservation)

    def _find_range(
        self, floating_ip: FloatingIP, held: tuple[Reservation, ...], guest: Guest | None, request: Request
    ) -> RangeView | Blocker:
        found = find_range(self.cache, floating_ip, held, guest, static=request.static.values())
        if isinstance(found, Blocker):
            return found
        allocations = self.cache.allocations
        problem = allocations.ranges.problem_of(found.name)
        if problem is not None:
            reason = (
                "AddressSpaceChanged" if isinstance(problem, AddressSpaceChangedError) else "RangeInvalid"
            )
            return Blocker(reason=reason, message=describe_problem(found.name, problem))
        return RangeView(
            name=found.name,
            space=found.address_space,
            families=allocations.ranges.families(found.name),
            draining=found.draining,
            restricted=find_restriction(found, guest),
            refuses=lambda address: allocations.ranges.why_refused(found.name, address),
            is_anothers=lambda address: allocations.is_held_by_other(
                found.address_space, address, floating_ip.meta.key
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holders:
    """Answers from the cluster cache who has which address."""

    cache: ClusterCache
    reservation_store: ReservationStore
    carrier_of: Callable[[str], str | None]

    def choose(self, family: Family, owner: Owner, range_name: str) -> Address:
        allocations = self.cache.allocations
        unsettled = allocations.unsettled(owner.key, range_name, family)
        if unsettled is not None:
            return unsettled
        former = self._former(family, owner, range_name)
        return former if former is not None else allocations.ranges.peek_free(range_name, family)

    def _former(self, family: Family, owner: Owner, range_name: str) -> Address | None:
        """Give the address that the owner had from the range before; of several the one that was released last."""
        allocations = self.cache.allocations
        own = self.cache.reservations_of(owner.key)
        of_name = self.cache.reservations.by_index(BY_FORMER_OWNER, (owner.cluster, owner.name, range_name))
        former = {each.name: each for each in (*own, *(of_name if owner.cluster else ())) if not each.is_held}
        for each in sorted(former.values(), key=lambda each: each.quarantined_until or EPOCH, reverse=True):
            address = address_of(each)
            claim = Claim(
                space=each.space,
                address=address,
                range=range_name,
                owner=owner,
                requested=Requested.DYNAMIC,
            )
            if (
                address.family is family
                and each.range == range_name
                and each.space == allocations.ranges.space_of(range_name)
                and allocations.ranges.why_refused(range_name, address) is None
                and self.reservation_store.may_take(each, claim)
            ):
                return address
        return None

    def refusal(self, claim: Claim, *, is_own: bool, beside: Collection[Claim] = ()) -> Blocker | None:
        holder = self.cache.allocations.named_by_another(claim.space, claim.address, claim.owner.key)
        if holder is not None:
            return describe_conflicting_owner(holder, claim.address)
        return None if is_own else find_quota_excess(self.cache, claim, beside)

    def holder(self, claim: Claim) -> Reservation | None:
        known = self.cache.reservations.get("", claim.name)
        is_free = known is None or self.reservation_store.may_take(known, claim)
        return None if is_free else known

    def describe(self, reservation: Reservation) -> Blocker:
        return describe_holder(reservation, self.carrier_of(reservation.name))


def find_quota_excess(cache: ClusterCache, claim: Claim, beside: Collection[Claim] = ()) -> Blocker | None:
    """Say that a guest has all addresses that the range allows one guest; None where it may have this one.

    It has what is claimed `beside` it as well: of two families neither is claimed that would be given back at once.
    What waits in quarantine counts: else whoever makes and deletes floating IPs in a loop empties the range.
    """
    found = cache.ranges.get("", claim.range)
    limit = found.max_per_guest if found is not None else None
    if limit is None:
        return None
    namespace = claim.owner.namespace
    had = {
        each.name
        for each in cache.reservations.by_index(BY_OWNER_NAMESPACE, namespace)
        if each.range == claim.range
    }
    asked_for = cache.allocations.open_claims(namespace, claim.range) | {each.name for each in beside}
    if claim.name in had or len(had | (asked_for - {claim.name})) < limit:
        return None
    message = (
        f'Range "{claim.range}" assigns at most {limit} addresses to a guest cluster (maxPerGuest): {namespace} has '
        f"{len(had)}, addresses in quarantine included. Delete unused FloatingIPs or choose another range."
    )
    return Blocker(reason="QuotaExceeded", message=message)
