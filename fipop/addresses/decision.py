"""Which addresses a floating IP should hold: all that it asks for, or else exactly what it has.

`decide` reads the inventory and changes nothing, so the decision is the same whoever makes it, and however often. It
knows no gate: whoever carries a decision out asks the gate about `Decision.new_ranges`, and `keep`s what there is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from fipop.addresses.claims import Claim, address_of, read_addresses
from fipop.addresses.holders import can_take, find_holder
from fipop.addresses.inventory import Inventory
from fipop.addresses.range_selection import find_range, find_restriction
from fipop.addresses.request import (
    AddressRequest,
    Blocker,
    blocker_of,
    describe_invalid,
    describe_problem,
    describe_reporter,
    describe_stranger,
    is_made_by_us,
    read_request,
)
from fipop.addresses.stores import BY_FORMER_OWNER
from fipop.api import names
from fipop.api.names import DEFAULT_ADDRESS_SPACE
from fipop.api.objects import EPOCH, FloatingIP, FloatingIPRange, FloatingIPReservation, Owner, Requested
from fipop.ipam.addresses import Address, Family
from fipop.ipam.errors import IpamError
from fipop.rancher.objects import ProvisioningCluster

_MAY_PASS = frozenset({"RangeFull", "QuotaExceeded"})
"""Reasons that may be over in a moment, if others only claim what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """What decisions rest on."""

    inventory: Inventory
    ours_since: datetime | None = None
    """When fipop came to this cluster: floating IPs that are older were made for kube-fip-operator. None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a floating IP should hold."""

    holds: tuple[Claim, ...]
    """Of one address space, IPv4 first."""
    had: tuple[Claim, ...] = ()
    """What it has now: that is reserved before anything else happens, in case a reservation is missing."""
    reserved: frozenset[str] = frozenset()
    """The names of the reservations that it holds."""
    blockers: tuple[Blocker, ...] = ()
    """Why that is not all that it asks for."""
    is_final: bool = True
    """Whether spec and status can say so. Not while others claim what is missing, or while it is held back."""

    @property
    def is_fulfilled(self) -> bool:
        """Whether the floating IP gets what it asks for."""
        return bool(self.holds) and all(each.is_tolerable for each in self.blockers)

    @property
    def new_ranges(self) -> frozenset[str]:
        """The ranges of addresses that it does not have yet, and that no reservation holds for it."""
        return frozenset(
            each.range for each in self.holds if each not in self.had and each.name not in self.reserved
        )

    def keep(self) -> Decision:
        """Return the decision to keep what there is until more is known."""
        return replace(self, holds=self.had, blockers=(), is_final=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestBinding:
    """The provisioning Cluster that a floating IP's namespace belongs to; None, with the reason, if there is none."""

    cluster: ProvisioningCluster | None
    blocker: Blocker | None = None


def bind_guest(inventory: Inventory, floating_ip: FloatingIP) -> GuestBinding:
    """Find the guest cluster by the namespace alone; the annotation `clustername` can only object, never steer."""
    namespace = floating_ip.namespace
    cluster = inventory.cluster_of(namespace)
    if cluster is None:
        return GuestBinding(cluster=None, blocker=describe_stranger(floating_ip, inventory.clusters.all()))
    if floating_ip.cluster is not None and floating_ip.cluster != cluster.name:
        message = (
            f'Annotation {names.ANNOTATION_CLUSTER} must be "{cluster.name}", the cluster of namespace {namespace}: it '
            f'is "{floating_ip.cluster[:253]}", so fipop writes no guest cluster. Correct or remove it.'
        )
        return GuestBinding(cluster=cluster, blocker=Blocker(reason="ClusterMismatch", message=message))
    if floating_ip.problem:
        return GuestBinding(cluster=cluster, blocker=describe_invalid(floating_ip.problem))
    return GuestBinding(cluster=cluster)


def decide(view: DecisionView, floating_ip: FloatingIP) -> Decision:
    """Decide what a floating IP should hold."""
    inventory = view.inventory
    held = [each for each in inventory.reservations_of(floating_ip.key) if each.is_held]
    owner = _build_owner(inventory, floating_ip, held)
    request = read_request(floating_ip)
    found = _find_range(inventory, floating_ip, held, owner, request)
    current = _find_current(view, floating_ip, held, owner, request, found)
    if isinstance(found, Blocker):
        decision = Decision(holds=_in_order(current), blockers=(found,))
    else:
        assert isinstance(request, AddressRequest), "no range serves what cannot be read"
        decision = _Allocation(
            inventory=inventory,
            floating_ip=floating_ip,
            owner=owner,
            request=request,
            range=found,
            current=current,
            held=held,
        ).allocate()
    reserved = frozenset(each.name for each in held)
    decision = replace(decision, had=_in_order(current), reserved=reserved)
    is_undecided = any(each.reason in _MAY_PASS for each in decision.blockers) and (
        isinstance(found, FloatingIPRange) and inventory.has_claims(found.name, but=owner)
    )
    return decision.keep() if is_undecided else decision


def is_inherited(view: DecisionView, floating_ip: FloatingIP) -> bool:
    """Return whether kube-fip-operator assigned what the spec names: it is older than fipop, and has no status yet."""
    since = view.ours_since
    return since is not None and floating_ip.created < since and not floating_ip.status.observed_generation


def _build_owner(inventory: Inventory, floating_ip: FloatingIP, held: list[FloatingIPReservation]) -> Owner:
    """Build the owner to write; what was known of the guest cluster stays known while Rancher takes it apart."""
    cluster = bind_guest(inventory, floating_ip).cluster
    known = [each.spec.owner for each in held or inventory.reservations_of(floating_ip.key)]
    if cluster is None and known:
        return replace(known[0], uid=floating_ip.uid)
    called = ""
    if cluster is not None and cluster.is_named_by_id:
        # The management Cluster has the display name, and Rancher removes it before the provisioning one.
        former = next((each.display_name for each in known if each.cluster == cluster.name), "")
        called = inventory.display_name(cluster) or former
    return Owner(
        namespace=floating_ip.namespace,
        name=floating_ip.name,
        uid=floating_ip.uid,
        cluster=cluster.name if cluster is not None else "",
        workspace=cluster.namespace if cluster is not None else "",
        imported=cluster.lives_on if cluster is not None else False,
        display_name=called,
    )


def _find_range(
    inventory: Inventory,
    floating_ip: FloatingIP,
    held: list[FloatingIPReservation],
    owner: Owner,
    request: AddressRequest | Blocker,
) -> FloatingIPRange | Blocker:
    """Return the range that serves; or why none does, be it that the request cannot be read."""
    if isinstance(request, Blocker):
        return request
    guest_id = floating_ip.namespace
    guest = inventory.known(guest_id) if inventory.is_resolved(guest_id) else None
    had_from = {each.spec.range for each in _find_former(inventory, owner)}
    found = find_range(inventory, floating_ip, held, guest, request, had_from)
    if isinstance(found, FloatingIPRange) and found.name in inventory.problems:
        return describe_problem(found.name, inventory.problems[found.name], "RangeInvalid")
    return found


def _find_former(inventory: Inventory, owner: Owner) -> list[FloatingIPReservation]:
    """Return what the floating IP, or one that it replaces, had and can take out of quarantine, the last first."""
    of_name = inventory.reservations.by_index(BY_FORMER_OWNER, owner.lineage) if owner.cluster else ()
    found = {
        each.name: each
        for each in (*inventory.reservations_of(owner.key), *of_name)
        if not each.is_held and can_take(inventory, each, _claim_of(each, owner))
    }
    return sorted(found.values(), key=lambda each: each.spec.quarantined_until or EPOCH, reverse=True)


def _find_current(
    view: DecisionView,
    floating_ip: FloatingIP,
    held: list[FloatingIPReservation],
    owner: Owner,
    request: AddressRequest | Blocker,
    found: FloatingIPRange | Blocker,
) -> dict[Family, Claim]:
    """Return what a floating IP has, and no other has by now.

    That is what its status names, or its spec if kube-fip-operator assigned it; if there is neither, what is held.
    """
    static = request.static if isinstance(request, AddressRequest) else {}
    status = floating_ip.status
    space, range_name = status.address_space or DEFAULT_ADDRESS_SPACE, status.range or ""
    named: Collection[Address] = read_addresses(status.addresses)
    if is_inherited(view, floating_ip):
        named = static.values()
        range_name = floating_ip.range or range_name
        if isinstance(found, FloatingIPRange):
            space, range_name = found.spec.address_space, found.name
    is_chosen = is_made_by_us(floating_ip)
    current: dict[Family, Claim] = {}
    for address in sorted(named):
        known = view.inventory.reservation(space, address)
        is_static = address in static.values() and not is_chosen
        claim = Claim(
            space=space,
            address=address,
            range=known.spec.range if known is not None else range_name,
            owner=owner,
            requested=known.spec.requested if known else Requested.STATIC if is_static else Requested.DYNAMIC,
        )
        if find_holder(view.inventory, claim) is None:
            current[address.family] = claim
    if named:
        return current
    # A crash may have left more of a family than one. What the spec names comes first, then the oldest.
    by_age = sorted(
        held, key=lambda each: (address_of(each) not in static.values(), each.spec.since, each.name)
    )
    for each in by_age:
        if each.spec.space == by_age[0].spec.space:
            current.setdefault(address_of(each).family, _claim_of(each, owner))
    return current


def _claim_of(reservation: FloatingIPReservation, owner: Owner) -> Claim:
    return Claim(
        space=reservation.spec.space,
        address=address_of(reservation),
        range=reservation.spec.range,
        owner=owner,
        requested=reservation.spec.requested,
    )


def _in_order(claims: dict[Family, Claim]) -> tuple[Claim, ...]:
    return tuple(claims[family] for family in sorted(claims))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Allocation:
    """A request that can be read, and the range that serves it."""

    inventory: Inventory
    floating_ip: FloatingIP
    owner: Owner
    request: AddressRequest
    range: FloatingIPRange
    current: dict[Family, Claim]
    held: list[FloatingIPReservation]

    def allocate(self) -> Decision:
        """Return all that is asked for, or what the floating IP has and why it gets no more."""
        current, read = _in_order(self.current), self.inventory.pools.get(self.range.name)
        families = frozenset(read.pool.families if read is not None else ())
        held_here = frozenset(family for family, each in self.current.items() if self._is_here(each))
        found: dict[Family, Claim] = {}
        missing: list[Blocker] = []
        for family in self.request.wanted(families, held_here):
            choice = self._choose(family, found.values())
            if isinstance(choice, Claim):
                found[family] = choice
            elif self._can_do_without(family, families):
                missing.append(choice)
            else:
                return Decision(holds=current, blockers=(choice,))
        if not found:
            return Decision(holds=current, blockers=tuple(missing))
        blockers = tuple(replace(each, is_tolerable=True) for each in missing)
        return Decision(holds=_in_order(found), blockers=blockers)

    def _can_do_without(self, family: Family, available: frozenset[Family]) -> bool:
        """Return whether one family is enough; what the floating IP has it keeps, if the range has that family."""
        is_had = family in self.current and family in available
        return self.request.is_flexible and not is_had

    def _find_asked(self, family: Family) -> Address | None:
        """Return the address that the spec names, unless fipop chose it and wrote it there."""
        mine, asked = self.current.get(family), self.request.static.get(family)
        if mine is not None and mine.requested is Requested.DYNAMIC and asked == mine.address:
            return None
        return asked

    def _choose(self, family: Family, beside: Collection[Claim]) -> Claim | Blocker:
        """Choose the address of one family, beside those that are chosen already."""
        mine, asked = self.current.get(family), self._find_asked(family)
        if mine is not None and self._is_here(mine) and asked in {None, mine.address}:
            return mine
        restriction = find_restriction(self.range, self.inventory.known(self.owner.namespace))
        if restriction is not None:
            return restriction
        if asked is not None:
            chosen = any(
                each.spec.requested is Requested.DYNAMIC and self._is_of(each, asked) for each in self.held
            )
            claim = self._claim(asked, Requested.DYNAMIC if chosen else Requested.STATIC)
            return self._find_blocker(claim, beside) or claim
        for address in self._find_own(family):
            is_same = mine is not None and mine.address == address
            claim = self._claim(address, mine.requested if mine and is_same else Requested.DYNAMIC)
            if self._find_blocker(claim, beside) is None:
                return claim
        free = self.inventory.next_free(self.range.name, family)
        if isinstance(free, IpamError):
            return blocker_of(free)
        claim = self._claim(free, Requested.DYNAMIC)
        return self._find_blocker(claim, beside) or claim

    def _find_own(self, family: Family) -> Iterator[Address]:
        """Yield what it has, also in another range, what a move that was cut short reserved, and what it had.

        Then what the key of fipop in its own guest cluster names, as after a restored backup.
        """
        mine, here = self.current.get(family), (self.range.spec.address_space, self.range.name)
        if mine is not None:
            yield mine.address
        for each in (*self.held, *_find_former(self.inventory, self.owner)):
            if (each.spec.space, each.spec.range) == here and address_of(each).family is family:
                yield address_of(each)
        for address in self.inventory.reports.find_ours(self.owner.namespace):
            if address.family is family:
                yield address

    def _find_blocker(self, claim: Claim, beside: Collection[Claim]) -> Blocker | None:
        """Return why an address cannot be claimed; None if it can."""
        refusal = self.inventory.pools.refusal(claim.range, claim.address)
        if refusal is not None:
            return blocker_of(refusal)
        holder = self._exceeds_quota(claim, beside) or find_holder(self.inventory, claim)
        if holder is not None or self._had(claim):
            return holder
        rivals = self.inventory.find_rivals(self.floating_ip, claim.space, claim.address)
        return describe_reporter(self.inventory.show_guest(min(rivals)), claim.address) if rivals else None

    def _exceeds_quota(self, claim: Claim, beside: Collection[Claim]) -> Blocker | None:
        """Return why a guest cluster gets no more addresses of the range."""
        limit = self.range.spec.max_per_guest
        shares = self.inventory.shares(claim.owner.namespace, claim.range)
        if limit is None or claim.name in shares or len(shares | {each.name for each in beside}) < limit:
            return None
        noun = "address" if limit == 1 else "addresses"
        message = (
            f'Range "{claim.range}" assigns at most {limit} {noun} to a guest cluster (maxPerGuest): '
            f"{claim.owner.namespace} has {len(shares)}, addresses in quarantine included. Delete unused FloatingIPs, "
            "name one of these addresses in spec.ipaddress, or choose another range."
        )
        return Blocker(reason="QuotaExceeded", message=message)

    def _claim(self, address: Address, requested: Requested) -> Claim:
        return Claim(
            space=self.range.spec.address_space,
            address=address,
            range=self.range.name,
            owner=self.owner,
            requested=requested,
        )

    def _is_here(self, claim: Claim) -> bool:
        return (claim.space, claim.range) == (self.range.spec.address_space, self.range.name)

    def _is_of(self, reservation: FloatingIPReservation, address: Address) -> bool:
        return (reservation.spec.space, address_of(reservation)) == (self.range.spec.address_space, address)

    def _had(self, claim: Claim) -> bool:
        """Return whether it holds an address, or was the last to do so: no report takes it away."""
        known = self.inventory.reservation(claim.space, claim.address)
        return known is not None and known.spec.owner.key == claim.owner.key
