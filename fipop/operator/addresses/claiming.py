"""Carry out the claims of a plan, one address after the other, and undo what was begun where all were needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fipop.api.models import EPOCH, FloatingIP, Owner, Requested, Reservation
from fipop.errors import ApiError, FipopError, IpamError
from fipop.ipam.addresses import Address, Family, format_address
from fipop.operator.addresses.allocation import Blocker, DesiredAddress, Plan, address_of, blocker_of
from fipop.operator.addresses.ownership import read_addresses, space_named
from fipop.operator.addresses.request import Request
from fipop.operator.addresses.reservations import Denied, Granted, ReservationStore
from fipop.state.cache import BY_FORMER_OWNER, BY_OWNER_NAMESPACE, ClusterCache
from fipop.state.claims import Claim

logger = logging.getLogger(__name__)

MAX_CANDIDATES = 8
"""How many candidates that turn out to be taken are tried in one round; the next round goes on from there."""


@dataclass(slots=True)
class Outcome:
    """What a floating IP holds after a round, and what stands in the way of the rest; `space` is where it asked."""

    space: str
    held: dict[Family, Reservation] = field(default_factory=dict)
    blockers: list[Blocker] = field(default_factory=list)
    fresh: list[Reservation] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    created: set[str] = field(default_factory=set)
    undone: bool = False
    """What was begun for several families is given back, as one of them cannot be had."""
    stands_still: bool = False
    """What is held stays, whatever is wished for: the wish cannot be read, or no range be found for it."""
    is_to_go_on: bool = False
    """The wish was not looked at: what came of an address that vanished is told first."""

    def keep(self, reservations: Iterable[Reservation]) -> None:
        """Count reservations as held."""
        for reservation in reservations:
            self.held[address_of(reservation).family] = reservation

    def enter(self, answer: Granted | Blocker) -> None:
        """Take in what came of one address."""
        if isinstance(answer, Blocker):
            self.blockers.append(answer)
            return
        self.keep([answer.reservation])
        if answer.is_written:
            self.written.add(answer.reservation.name)
        if answer.is_created:
            self.created.add(answer.reservation.name)
        if answer.is_new:
            self.fresh.append(answer.reservation)

    def be_of_one_space(self, floating_ip: FloatingIP) -> None:
        """Leave out, to be given back, what is of another space than the rest: a status names but one.

        The rest is what the status names already, else what is where it asked, else any. Two operators of which one has
        not heard of a range's new space may have begun in both.
        """

        def rank(reservation: Reservation) -> tuple[bool, bool]:
            return not is_named(floating_ip, reservation), reservation.space != self.space

        if self.held:
            home = min(self.held.values(), key=rank).space
            self.held = {family: each for family, each in self.held.items() if each.space == home}

    def is_short_of(self, request: Request) -> bool:
        """Whether the spec says what is not done yet: what is held then is not what it asks for.

        That of a second family comes after a move to another space. And an address that was asked for by name, and no
        more, would look like a wish again once it is written back.
        """
        serious = any(not each.tolerable for each in self.blockers)
        was_named = any(each.requested is Requested.STATIC for each in self.held.values())
        is_to_come = not request.static.keys() <= self.held.keys()
        return is_to_come or bool(self.blockers and request.static) or (serious and was_named)


class ContendedError(FipopError):
    """Others were first, at every candidate of a round or at what it began; the next one decides on what is left."""

    def __init__(self, *, range_name: str) -> None:
        self.range_name = range_name
        super().__init__(f'others were first at the addresses of range "{range_name}"')


class Claimer:
    """Turns wants into reservations through the reservation store.

    `carrier_of` says who still carries an address in quarantine, by the name of its reservation.
    """

    def __init__(
        self,
        *,
        cache: ClusterCache,
        reservation_store: ReservationStore,
        carrier_of: Callable[[str], str | None],
    ) -> None:
        self._cache = cache
        self._reservation_store = reservation_store
        self._carrier_of = carrier_of

    async def restore(
        self, lost: Iterable[DesiredAddress], *, floating_ip: FloatingIP, owner: Owner
    ) -> Outcome:
        """Claim again what the status names where the status says it was, whatever is wished for by now.

        Until that is done the guest carries an address that would be free as soon as the status names it no more.
        """
        status = floating_ip.status
        outcome = Outcome(space=space_named(status))
        for desired in lost:
            outcome.enter(
                await self._claim(
                    desired,
                    owner=owner,
                    space=outcome.space,
                    range_name=status.range or "",
                )
            )
        return outcome

    async def carry_out(
        self, plan: Plan, *, floating_ip: FloatingIP, owner: Owner, space: str, range_name: str
    ) -> Outcome:
        """Claim what the plan wants; ApiError where a write failed (what was begun is found at the next round)."""
        outcome = Outcome(space=space, blockers=list(plan.blockers))
        for reservation in plan.keep:
            outcome.enter(await self._refresh(reservation, owner))
        if plan.all_or_nothing:
            outcome.blockers += self._preflight(plan, owner=owner, space=space, range_name=range_name)
        # What was its own before is not for the rest to decide on: no wish that is not to be had takes it away.
        for desired in sorted(plan.claim, key=lambda desired: not desired.confirms):
            if plan.all_or_nothing and outcome.blockers and not desired.confirms:
                break
            answer = await self._claim(desired, owner=owner, space=space, range_name=range_name)
            if isinstance(answer, Blocker) and plan.content_with_one and desired.is_extra:
                answer = replace(answer, tolerable=True)
            outcome.enter(answer)
        # A claim that is still open was made for a wish that is no more.
        self._cache.allocations.abandon(owner.key)
        if outcome.blockers and plan.all_or_nothing:
            await self._undo(outcome, plan, floating_ip)
        if outcome.blockers:
            # What stays is for its owner as he is now, too: he may have been created again under his name.
            for reservation in _staying(plan, outcome):
                outcome.enter(await self._refresh(reservation, owner))
        outcome.be_of_one_space(floating_ip)
        await self._confirm(outcome, floating_ip)
        return outcome

    async def _confirm(self, outcome: Outcome, floating_ip: FloatingIP) -> None:
        """Have a write of this round behind every address that the status is to name and does not name yet.

        Else another operator, which knows the reservation and has seen that nothing names it, might be giving it back.
        """
        for reservation in list(outcome.held.values()):
            if reservation.name not in outcome.written and not is_named(floating_ip, reservation):
                outcome.keep([await self._reservation_store.confirm(reservation)])

    def _preflight(self, plan: Plan, *, owner: Owner, space: str, range_name: str) -> list[Blocker]:
        """Tell what would block the plan by all that is known, so that nothing is claimed that would have to be undone.

        What is begun and undone wakes all who wait for an address: first of all who began it, without end.
        """
        blockers = []
        for desired in plan.claim:
            if desired.confirms:
                continue
            try:
                address = desired.address or self._candidate(desired.family, owner, range_name)
            except IpamError as error:
                blockers.append(blocker_of(error))
                continue
            claim = Claim(
                space=space, address=address, range=range_name, owner=owner, requested=desired.requested
            )
            known = self._cache.reservations.get("", claim.name)
            conflicting_owner = self._cache.allocations.named_by_another(space, address, owner.key)
            over = find_quota_excess(self._cache, claim)
            if over is not None:
                blockers.append(over)
            elif known is not None and not self._reservation_store.may_take(known, claim):
                blockers.append(self._describe(known))
            elif conflicting_owner is not None:
                blockers.append(describe_conflicting_owner(conflicting_owner, address))
        return blockers

    async def _refresh(self, reservation: Reservation, owner: Owner) -> Granted | Blocker:
        """Write the owner anew where it is another by now: created again under its name, or its guest became known."""
        if reservation.owner == owner:
            return Granted(reservation=reservation, is_new=False)
        claim = Claim(
            space=reservation.space,
            address=address_of(reservation),
            range=reservation.range,
            owner=owner,
            requested=reservation.requested,
        )
        answer = await self._reservation_store.claim(claim)
        if answer is None:
            raise ContendedError(range_name=reservation.range)
        return answer if isinstance(answer, Granted) else self._describe(answer.reservation)

    async def _claim(
        self, desired: DesiredAddress, *, owner: Owner, space: str, range_name: str
    ) -> Granted | Blocker:
        for _ in range(MAX_CANDIDATES):
            try:
                address = desired.address or self._candidate(desired.family, owner, range_name)
            except IpamError as error:
                return blocker_of(error)
            conflicting_owner = self._cache.allocations.named_by_another(space, address, owner.key)
            if conflicting_owner is not None:
                return describe_conflicting_owner(conflicting_owner, address)
            claim = Claim(
                space=space,
                address=address,
                range=range_name,
                owner=owner,
                requested=desired.requested,
                renames=desired.renames,
            )
            over = None if desired.confirms else find_quota_excess(self._cache, claim)
            if over is not None:
                return over
            self._cache.allocations.expect(claim)
            try:
                answer = await self._reservation_store.claim(claim)
            except FipopError as error:
                if not (isinstance(error, ApiError) and error.outcome_unknown):
                    self._cache.allocations.settle(claim)
                raise
            self._cache.allocations.settle(claim)
            if isinstance(answer, Granted):
                logger.info(
                    "address reserved",
                    extra={"address": format_address(address), "range": range_name, "floating_ip": owner.key},
                )
                return answer
            if isinstance(answer, Denied) and desired.address is not None:
                if not desired.is_preference:
                    return self._describe(answer.reservation)
                desired = replace(desired, address=None)
        raise ContendedError(range_name=range_name)

    def _candidate(self, family: Family, owner: Owner, range_name: str) -> Address:
        """Give what an unsettled claim asked for, else the address held before, else the next free one."""
        allocations = self._cache.allocations
        unsettled = allocations.unsettled(owner.key, range_name, family)
        if unsettled is not None:
            return unsettled
        if owner.cluster:
            former = self._cache.reservations.by_index(
                BY_FORMER_OWNER, (owner.cluster, owner.name, range_name)
            )
            # Of several it had the one that was released last.
            for reservation in sorted(former, key=lambda each: each.quarantined_until or EPOCH, reverse=True):
                address = address_of(reservation)
                claim = Claim(
                    space=reservation.space,
                    address=address,
                    range=range_name,
                    owner=owner,
                    requested=Requested.DYNAMIC,
                )
                is_here = address.family is family and reservation.space == allocations.space_of(range_name)
                if (
                    is_here
                    and allocations.why_refused(range_name, address) is None
                    and self._reservation_store.may_take(reservation, claim)
                ):
                    return address
        return allocations.next_free(range_name, family, owner.key)

    def _describe(self, reservation: Reservation) -> Blocker:
        return describe_holder(reservation, self._carrier_of(reservation.name))

    async def _undo(self, outcome: Outcome, plan: Plan, floating_ip: FloatingIP) -> None:
        """Give back, in reverse, what serves nobody without the rest; what the floating IP had before stays.

        What this round did not make goes the way of all that is held in excess.
        """
        confirmed = {desired.address for desired in plan.claim if desired.confirms}
        for reservation in reversed(list(outcome.held.values())):
            address = address_of(reservation)
            if is_named(floating_ip, reservation) or address in confirmed:
                continue
            # Free at once is only what this round made: what it took out of a quarantine a guest may carry.
            if reservation.name in outcome.created:
                if not await self._reservation_store.free(reservation):
                    # Another operator relies on it: what is to become of it is decided anew, for both families.
                    raise ContendedError(range_name=reservation.range)
            elif reservation in outcome.fresh:
                seconds = self._cache.quarantine_seconds(reservation.range)
                await self._reservation_store.quarantine(reservation, seconds=seconds)
            del outcome.held[address.family]
        outcome.fresh.clear()
        outcome.undone = True


def is_named(floating_ip: FloatingIP, reservation: Reservation) -> bool:
    """Whether the status of a floating IP names what is reserved."""
    status = floating_ip.status
    is_there = space_named(status) == reservation.space
    return is_there and address_of(reservation) in read_addresses(status.addresses)


def _staying(plan: Plan, outcome: Outcome) -> list[Reservation]:
    """Give the old reservations that stay: their replacement, or all that takes their place, was not to be had."""
    replaced = [desired.replaces for desired in plan.claim if desired.replaces is not None]
    serious = any(not blocker.tolerable for blocker in outcome.blockers)
    old = [*replaced, *(plan.surplus if serious else ())]
    return [each for each in old if address_of(each).family not in outcome.held]


def find_quota_excess(cache: ClusterCache, claim: Claim) -> Blocker | None:
    """Say that a guest has all addresses that the range allows one guest; None where it may have this one.

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
    asked_for = cache.allocations.open_claims(namespace, claim.range)
    if claim.name in had or len(had | (asked_for - {claim.name})) < limit:
        return None
    message = (
        f'range "{claim.range}" gives a guest at most {limit} addresses (maxPerGuest); '
        f"{namespace} has {len(had)}, those in quarantine included"
    )
    return Blocker(reason="QuotaExceeded", message=message)


def describe_holder(reservation: Reservation, carrier: str | None = None) -> Blocker:
    """Say who stands in the way of a claim; `carrier` (a sentence) keeps the address in quarantine beyond its time."""
    address = address_of(reservation)
    holder = f"{reservation.owner.namespace}/{reservation.owner.name}".rstrip("/")
    cluster = f' of cluster "{reservation.owner.cluster}"' if reservation.owner.cluster else ""
    if reservation.quarantined_until is None:
        message = f"address {format_address(address)} is held by floating IP {holder}{cluster}"
        return Blocker(reason="AddressInUse", message=message)
    until = reservation.quarantined_until.strftime("%Y-%m-%d %H:%M:%S UTC")
    message = f"address {format_address(address)} is in quarantine until {until}"
    message += f" and as long as {carrier}" if carrier else f" or later, after {holder}{cluster}"
    return Blocker(reason="AddressQuarantined", message=message)


def describe_conflicting_owner(holder: tuple[str, str], address: Address) -> Blocker:
    """Say that another floating IP had the address before: its reservation is missing, and will be made again."""
    message = f"address {format_address(address)} is held by floating IP {'/'.join(holder)}"
    return Blocker(reason="AddressInUse", message=message)
