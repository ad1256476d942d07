"""Gathers from the cluster cache what a decision about a floating IP rests on: the only reader of the cache for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.api import names
from fipop.api.models import EPOCH, FloatingIP, FloatingIPRange, Owner, Removal, Requested, Reservation
from fipop.deadlines import NAMING_SECONDS, UNDER_WAY_SECONDS
from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import IpamError
from fipop.operator.addresses.range_selection import find_range, find_restriction, read_quota
from fipop.operator.addresses.ranges import describe_problem
from fipop.operator.addresses.reservations import ReservationStore, is_former_owner
from fipop.operator.addresses.values import (
    AddressFacts,
    Blocker,
    Facts,
    GuestBinding,
    RangeFacts,
    Request,
    SpecError,
    address_of,
    blocker_of,
    describe_conflicting_owner,
    describe_holder,
    read_request,
    space_named,
    wanted_families,
)
from fipop.rancher.discovery import choose_cluster
from fipop.rancher.objects import ProvisioningCluster
from fipop.state.cache import BY_FORMER_OWNER, ClusterCache
from fipop.state.claims import read_addresses, reservation_name
from fipop.state.gate import AllocationGate
from fipop.state.guests import GuestDirectory


def bind_guest(cache: ClusterCache, floating_ip: FloatingIP) -> GuestBinding:
    """Find the guest cluster by the namespace alone; the annotation `clustername` can only object, never steer."""
    namespace = floating_ip.namespace
    cluster = choose_cluster(cache.guest_clusters(namespace), cache.management.get("", namespace))
    if cluster is None:
        message = (
            f'Namespace "{namespace}" belongs to no guest cluster: no Cluster names it in status.clusterName.'
        )
        return GuestBinding(cluster=None, blocker=Blocker(reason="GuestNotFound", message=message))
    if floating_ip.cluster is not None and floating_ip.cluster != cluster.name:
        message = (
            f'Annotation {names.ANNOTATION_CLUSTER} must be "{cluster.name}", the cluster of namespace {namespace}: it '
            f'is "{floating_ip.cluster[:253]}", so fipop writes no guest cluster. Correct or remove it.'
        )
        return GuestBinding(cluster=cluster, blocker=Blocker(reason="ClusterMismatch", message=message))
    return GuestBinding(cluster=cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSource:
    """Where facts come from."""

    cache: ClusterCache
    reservation_store: ReservationStore
    gate: AllocationGate
    guests: GuestDirectory
    carrier_of: Callable[[str], str | None]
    """Returns who still carries an address in quarantine, by the name of its reservation."""
    removal_of: Callable[[FloatingIP, ProvisioningCluster], Removal | None]
    """Returns what a status records of the removal of the releases in its guest cluster."""

    def gather(
        self,
        floating_ip: FloatingIP,
        *,
        is_live: bool,
        written: str,
        write_backs: int,
    ) -> Facts:
        """Return what is known of a floating IP now.

        The arguments are what only this reconciliation, or this process, knows: see `Facts`.
        """
        own = self.cache.reservations_of(floating_ip.meta.key)
        held = _inherit(tuple(each for each in own if each.is_held), floating_ip)
        binding = bind_guest(self.cache, floating_ip)
        owner = _build_owner(floating_ip, binding, held)
        request: Request | Blocker
        found: RangeFacts | Blocker
        try:
            request = read_request(floating_ip)
            found = self._find_range(floating_ip, held, request, owner)
        except SpecError as error:
            request = found = Blocker(reason="InvalidSpec", message=f"The FloatingIP is invalid: {error}.")
        known = self.guests.known(floating_ip.namespace)
        return Facts(
            floating_ip=floating_ip,
            is_live=is_live,
            is_inherited=self.cache.inheritance.is_inherited(floating_ip),
            owner=owner,
            own=own,
            held=held,
            fresh=frozenset(
                each.name for each in own if self.reservation_store.seconds_since_write(each) < NAMING_SECONDS
            ),
            unsafe_for={each.name: self._unsafe_for(each) for each in own},
            request=request,
            range=found,
            addresses=self._read_addresses(floating_ip, owner, held, request, found),
            binding=binding,
            is_guest_known=known is not None or self.guests.glimpse(floating_ip.namespace) is None,
            observation=self.guests.state(floating_ip.namespace).observation,
            removal=self.removal_of(floating_ip, binding.cluster) if binding.cluster is not None else None,
            is_gate_open=self.gate.is_open(found.name if isinstance(found, RangeFacts) else None),
            written=written,
            write_backs=write_backs,
            now=self.reservation_store.now(),
        )

    def _unsafe_for(self, reservation: Reservation) -> float:
        """Return for how many seconds a status that relies on a reservation may still be under way elsewhere."""
        if not math.isinf(self.reservation_store.seconds_since_write(reservation)):
            return 0.0
        return UNDER_WAY_SECONDS - self.cache.age_of(reservation)

    # The range

    def _find_range(
        self, floating_ip: FloatingIP, held: tuple[Reservation, ...], request: Request, owner: Owner
    ) -> RangeFacts | Blocker:
        guest = self.guests.known(floating_ip.namespace)
        resolved = guest if self.guests.is_resolved(floating_ip.namespace) else None

        def had_from(each: FloatingIPRange) -> bool:
            return any(address for family in Family for address in self._find_own(family, owner, each))

        found = find_range(self.cache, floating_ip, held, resolved, request, had_from)
        if isinstance(found, Blocker):
            return found
        ranges = self.cache.allocations.ranges
        problem = ranges.problem_of(found.name)
        if problem is not None:
            return describe_problem(found.name, problem, "RangeInvalid")
        families = ranges.families(found.name)
        wanted = wanted_families(request, families, frozenset(address_of(each).family for each in held))
        there = found.address_space, found.name
        return RangeFacts(
            name=found.name,
            space=found.address_space,
            families=families,
            restricted=find_restriction(found, guest),
            quota=read_quota(self.cache, found, floating_ip.namespace),
            free={
                family: self._choose(family, owner, found)
                for family in wanted
                if {(each.space, each.range) for each in held if address_of(each).family is family} != {there}
            },
        )

    def _choose(self, family: Family, owner: Owner, found: FloatingIPRange) -> Address | Blocker:
        """Choose an address for a new claim: one of its own, or the next free one."""
        try:
            own = next(self._find_own(family, owner, found), None)
            return own or self.cache.allocations.ranges.peek_free(found.name, family)
        except IpamError as error:
            return blocker_of(error)

    def _find_own(self, family: Family, owner: Owner, found: FloatingIPRange) -> Iterator[Address]:
        """Yield the addresses of the range that the owner can have because it had them, the last one first.

        What it asked for without learning the outcome comes before all, unless another has or had it by now.
        """
        asked = self.cache.allocations.unsettled(owner.key, found.name, family)
        own = self.cache.reservations_of(owner.key)
        of_name = self.cache.reservations.by_index(BY_FORMER_OWNER, (owner.cluster, owner.name, found.name))
        former = {each.name: each for each in (*own, *(of_name if owner.cluster else ())) if not each.is_held}
        there = found.address_space, found.name
        had = [each for each in former.values() if (each.space, each.range) == there]
        had.sort(key=lambda each: each.quarantined_until or EPOCH, reverse=True)
        for address in filter(None, (asked, *map(address_of, had))):
            if address.family is family:
                known = self._read_address(found.address_space, address, found.name, owner)
                if known.refused is None and known.taken is None and not known.is_anothers:
                    yield address

    # Addresses

    def _read_addresses(
        self,
        floating_ip: FloatingIP,
        owner: Owner,
        held: tuple[Reservation, ...],
        request: Request | Blocker,
        where: RangeFacts | Blocker,
    ) -> dict[str, AddressFacts]:
        named = read_addresses(floating_ip.status.addresses)
        places = {(space_named(floating_ip.status), each) for each in named}
        if isinstance(where, RangeFacts):
            asked = request.static.values() if isinstance(request, Request) else ()
            free = (each for each in where.free.values() if isinstance(each, Address))
            mine = (address_of(each) for each in held)
            places |= {(where.space, each) for each in (*named, *asked, *free, *mine)}
        range_name = where.name if isinstance(where, RangeFacts) else ""
        return {
            reservation_name(space, address): self._read_address(space, address, range_name, owner)
            for space, address in places
        }

    def _read_address(self, space: str, address: Address, range_name: str, owner: Owner) -> AddressFacts:
        allocations = self.cache.allocations
        known = self.cache.get_reservation(reservation_name(space, address))
        refused = allocations.ranges.why_refused(range_name, address) if range_name else None
        # Without a reservation, the oldest of those whose statuses name it has it.
        first = min(allocations.named_by(space, address), key=self._age, default=owner.key)
        taken, is_anothers = None, False
        if known is not None and known.owner.key != owner.key:
            is_anothers = not is_former_owner(known, owner, range_name)
        if known is not None and not self.reservation_store.can_acquire(known, owner, range_name):
            taken = describe_holder(known, self.carrier_of(known.name))
        elif first != owner.key:
            taken = describe_conflicting_owner(first, address)
        reason = blocker_of(refused) if refused is not None else None
        return AddressFacts(refused=reason, taken=taken, is_anothers=is_anothers)

    def _age(self, key: tuple[str, str]) -> tuple[datetime, tuple[str, str]]:
        found = self.cache.floating_ips.get(*key)
        return (found.meta.created if found is not None else EPOCH), key


def _build_owner(floating_ip: FloatingIP, binding: GuestBinding, held: tuple[Reservation, ...]) -> Owner:
    """Return the owner to write; what was known of the guest cluster stays known while Rancher takes it apart."""
    cluster = binding.cluster
    if cluster is None and held:
        return replace(held[0].owner, uid=floating_ip.uid)
    return Owner(
        namespace=floating_ip.namespace,
        name=floating_ip.name,
        uid=floating_ip.uid,
        cluster=cluster.name if cluster is not None else "",
        imported=cluster.lives_on if cluster is not None else False,
    )


def _inherit(held: tuple[Reservation, ...], floating_ip: FloatingIP) -> tuple[Reservation, ...]:
    """Return what is held as the floating IP of today sees it.

    An address that only a deleted object of its name asked for by name counts as chosen. One that fipop chose stays
    chosen though the spec names it: fipop wrote it there, and a restored backup brings it back.
    """
    named = read_addresses(floating_ip.ipaddress.split(","))
    return tuple(
        replace(each, requested=Requested.DYNAMIC)
        if each.owner.uid != floating_ip.uid and address_of(each) not in named
        else each
        for each in held
    )
