"""Which address of each family a floating IP should hold: what it keeps, what it claims, and what it cannot have.

Facts in, holdings out. What is lost is restored before the request is read. What is held already comes first. A new
address is claimed before the old one is given up; if the new one cannot be had, the old one stays, and the reason is
stated. Whatever is held and not kept is released.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fipop.api.models import Requested, Reservation
from fipop.errors import RangeDrainingError
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.operator.addresses.values import (
    Blocker,
    Facts,
    RangeFacts,
    Request,
    address_of,
    blocker_of,
    is_made_by_us,
    is_named,
    needs_every_family,
    space_named,
    wanted_families,
)
from fipop.state.claims import Claim, read_addresses, reservation_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Claim an address."""

    claim: Claim
    is_own: bool
    """The floating IP had this very address before."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep what is held, if anything is."""

    held: Reservation | None
    why: Blocker | None = None
    """Why the wanted address cannot be had; None also if that is so because of the other family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a floating IP should hold."""

    by_family: Mapping[Family, Keep | Acquire]
    """In the order in which addresses are claimed and reasons are shown."""
    standstill: tuple[Blocker, ...] = ()
    """Why the request as a whole cannot be followed: it cannot be read, say, or no range serves it."""
    names_spec: bool = True
    """The spec can be brought in line."""
    awaits_guest: bool = False
    """Before the guest cluster is known, no range is found, or it is unknown whether the range serves it."""

    @property
    def claims(self) -> tuple[Acquire, ...]:
        """What must be claimed, in this order."""
        return tuple(each for each in self.by_family.values() if isinstance(each, Acquire))

    @property
    def held(self) -> dict[Family, Reservation]:
        """What is held and stays."""
        kept = ((family, self.by_family[family]) for family in sorted(self.by_family))
        return {family: each.held for family, each in kept if isinstance(each, Keep) and each.held}

    @property
    def blockers(self) -> tuple[Blocker, ...]:
        """Why the floating IP does not get all that it asks for."""
        unmet = (each.why for each in self.by_family.values() if isinstance(each, Keep))
        return (*self.standstill, *(each for each in unmet if each is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Desired:
    """One address to claim: a certain one, or the next free one (`address` is None).

    `replaces` is the reservation that is given up once this one is held, `else_keep` the one that stays otherwise.
    `confirms`: the floating IP had this very address before, so that no rule of the range stands in its way. `renames`:
    an address that was chosen for it is asked for by name now.
    """

    family: Family
    address: Address | None
    requested: Requested = Requested.DYNAMIC
    replaces: Reservation | None = None
    else_keep: Reservation | None = None
    confirms: bool = False
    renames: bool = False
    refused: Blocker | None = None
    """Why the range does not assign it, in use or not."""

    @property
    def is_preference(self) -> bool:
        """Whether another address will do if this one turns out to be another's."""
        return self.requested is Requested.DYNAMIC and not self.confirms

    @property
    def is_extra(self) -> bool:
        """Whether it is a second family that a floating IP with PreferDualStack can do without."""
        return self.address is None and self.replaces is None


def plan(facts: Facts) -> Holdings:
    """Decide what to hold; the module's text has the order of thought."""
    found = _find_lost(facts)
    own = {family: each for family, each in found.items() if isinstance(each, Acquire)}
    if own:
        return Holdings(by_family=own)
    taken = [each for each in found.values() if isinstance(each, Blocker)]
    if taken:  # another has it: the status says so before anything else is asked for
        return _keep_current(facts, *taken, names_spec=False)
    if isinstance(facts.request, Blocker):
        return _keep_current(facts, facts.request, names_spec=False)
    if isinstance(facts.range, Blocker):
        return _keep_current(facts, facts.range, awaits_guest=not facts.is_guest_known)
    return _follow(facts, facts.request, facts.range)


def _find_lost(facts: Facts) -> dict[Family, Acquire | Blocker]:
    """Find the addresses that the status names and no reservation holds: they are claimed again, as the guest has them.

    An address in quarantine is not lost if another one of its family is held: the floating IP moved there, and the
    status that says so is on its way. If the status names no range, they are counted in the range that serves.
    """
    floating_ip, status = facts.floating_ip, facts.floating_ip.status
    space, range_name = space_named(status), status.range or ""
    if status.range is None and isinstance(facts.range, RangeFacts):
        space, range_name = facts.range.space, facts.range.name
    here = [each for each in facts.own if each.space == space]
    there = {address_of(each) for each in here}
    held = {address_of(each).family for each in here if each.is_held}
    found: dict[Family, Acquire | Blocker] = {}
    for address in sorted(read_addresses(status.addresses)):
        if address.family in found or (address.family in held and address in there):
            continue
        # Of families in which the spec names an address, another writer asked for it; in others fipop chose it.
        is_chosen = isinstance(facts.request, Request) and address.family not in facts.request.static
        claim = Claim(
            space=space,
            address=address,
            range=range_name,
            owner=facts.owner,
            requested=Requested.DYNAMIC if is_chosen or is_made_by_us(floating_ip) else Requested.STATIC,
            insists=True,
        )
        found[address.family] = facts.addresses[claim.name].denied or Acquire(claim=claim, is_own=True)
    return found


def _keep_current(facts: Facts, *blockers: Blocker, **known: bool) -> Holdings:
    """Keep, of several addresses of a family, the one that the status names, while the request cannot be followed."""
    space = space_named(facts.floating_ip.status)
    kept = {family: Keep(mine[0]) for family, mine in _by_family(facts, space).items()}
    return Holdings(by_family=_of_one_space(facts, kept, space), standstill=blockers, **known)


def _follow(facts: Facts, request: Request, where: RangeFacts) -> Holdings:
    """Follow the request, as far as all that is known allows."""
    wish = _Wish(facts=facts, request=request, where=where)
    held = _by_family(facts, where.space, where.name, request.static.values())
    families = wanted_families(request, where.families, frozenset(held))
    needs_all = needs_every_family(request)
    # A status names addresses of one space: both families move to another space, or the one that is left.
    relocates = len(families) > 1 and any(
        held[family][0].space != where.space for family in families if family in held
    )
    if relocates and not needs_all:
        # What is held moves first; a family that comes on top is asked for once that is done.
        families = tuple(family for family in families if family in held)
    wanted = {family: wish.decide(family, held.get(family, [])) for family in sorted(families)}
    found = wish.acquire(wanted, held, all_or_nothing=needs_all or relocates)
    if any(not each.tolerable for each in Holdings(by_family=found).blockers):
        # A family that is wanted no more stays until the other is there.
        found |= {family: Keep(held[family][0]) for family in held.keys() - found.keys()}
    is_refused = any(isinstance(each, _Desired) and each.refused for each in wanted.values())
    return Holdings(
        by_family=_of_one_space(facts, found, where.space),
        awaits_guest=is_refused and where.restricted is not None and not facts.is_guest_known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A request that can be read, and the range that serves it."""

    facts: Facts
    request: Request
    where: RangeFacts

    def is_there(self, reservation: Reservation) -> bool:
        """Return whether it is counted in the range that serves."""
        return (reservation.space, reservation.range) == (self.where.space, self.where.name)

    def decide(self, family: Family, mine: Sequence[Reservation]) -> Keep | _Desired:
        """Decide on one family of which `mine` is held, the best first."""
        found = self._desire(family, self.request.static.get(family), mine)
        if isinstance(found, Keep):
            return found
        return replace(found, refused=self._refusal(found), else_keep=self._in_status(mine) or found.replaces)

    def _desire(self, family: Family, static: Address | None, mine: Sequence[Reservation]) -> Keep | _Desired:
        if not mine:
            is_inherited = static is not None and self.facts.is_inherited
            is_chosen = static is None or (is_inherited and is_made_by_us(self.facts.floating_ip))
            requested = Requested.DYNAMIC if is_chosen else Requested.STATIC
            return _Desired(family=family, address=static, requested=requested, confirms=is_inherited)
        held, address = mine[0], address_of(mine[0])
        if static is not None and static != address:
            return _Desired(family=family, address=static, requested=Requested.STATIC, replaces=held)
        if self.is_there(held):
            if static is not None and self._is_asked_for_again(held, mine):
                return _Desired(
                    family=family, address=static, requested=Requested.STATIC, confirms=True, renames=True
                )
            return Keep(held)
        begun = [each for each in mine if self.is_there(each)]
        # The range, or its space, is another now: the same address if it is to be had there, else a new one;
        # but an address that is asked for by name is never changed for another, while the spec still names it.
        there = self.facts.addresses[reservation_name(self.where.space, address)]
        stays = there.refused is None and not there.is_held_by_other
        if stays or (held.requested is Requested.STATIC and static is not None):
            same = next((each for each in begun if address_of(each) == address), None)
            moved = _Desired(family=family, address=address, requested=held.requested, replaces=held)
            return Keep(same) if same is not None else moved
        named = self._in_status(mine)
        if static is not None and named is not None and named is not held:
            # The spec is written before the status: a spec that names what was left by now asks for it by name.
            return _Desired(family=family, address=static, requested=Requested.STATIC, replaces=named)
        # A move that was cut short has its new address already.
        return Keep(begun[0]) if begun else _Desired(family=family, address=None, replaces=held)

    def _is_had(self, reservation: Reservation) -> bool:
        return _is_had(self.facts, reservation, self.where.space)

    def _in_status(self, mine: Sequence[Reservation]) -> Reservation | None:
        """Return what the status names."""
        return next((each for each in mine if self._is_had(each)), None)

    def _is_asked_for_again(self, held: Reservation, mine: Sequence[Reservation]) -> bool:
        """Return whether the spec moved back by name to an address that was chosen once, before it was released.

        The status names another one of the same range: only a user moves a floating IP within a range.
        """
        named = (each for each in mine if each is not held and self._is_had(each))
        elsewhere = ((each.space, each.range) == (held.space, held.range) for each in named)
        return held.requested is Requested.DYNAMIC and not self._is_had(held) and any(elsewhere)

    def _refusal(self, desired: _Desired) -> Blocker | None:
        if desired.confirms:
            return None
        if self.where.restricted is not None:
            return self.where.restricted
        if desired.address is not None:
            refused = self.facts.addresses[reservation_name(self.where.space, desired.address)].refused
            if refused is not None:
                return refused
        is_relabel = desired.replaces is not None and address_of(desired.replaces) == desired.address
        if self.where.draining and not is_relabel:
            return blocker_of(RangeDrainingError(range_name=self.where.name))
        return None

    def acquire(
        self,
        wanted: Mapping[Family, Keep | _Desired],
        held: Mapping[Family, Sequence[Reservation]],
        *,
        all_or_nothing: bool,
    ) -> dict[Family, Keep | Acquire]:
        """Decide which of the wanted addresses can be claimed.

        `all_or_nothing`: both families are required, or both move to another space.
        """

        def order(family: Family) -> tuple[bool, bool]:
            # What was its own before is not for the rest to decide on: a request that cannot be met takes nothing away.
            each = wanted[family]
            return isinstance(each, _Desired) and not each.refused, isinstance(
                each, _Desired
            ) and not each.confirms

        found: dict[Family, Keep | Acquire] = {}
        for family in sorted(wanted, key=order):
            desired = wanted[family]
            if isinstance(desired, Keep):
                found[family] = desired
            else:
                beside = [each.claim for each in found.values() if isinstance(each, Acquire)]
                found[family] = self._try(desired, beside, is_foreseen=all_or_nothing)
        if not all_or_nothing or not Holdings(by_family=found).blockers:
            return found
        for family, desired in wanted.items():
            if isinstance(desired, _Desired):
                if isinstance(found[family], Acquire) and not desired.confirms:
                    found[family] = Keep(desired.else_keep)
            elif desired.held and not self._is_had(desired.held):
                found[family] = Keep(self._in_status(held[family]))
        return found

    def _try(self, desired: _Desired, beside: Collection[Claim], *, is_foreseen: bool) -> Acquire | Keep:
        """Return the claim for a desired address, beside those of the other family, or why it cannot be had."""
        found = desired.refused or self._find(desired, beside, is_foreseen=is_foreseen)
        if isinstance(found, Acquire):
            return found
        content_with_one = self.request.policy is FamilyPolicy.PREFER_DUAL_STACK
        why = replace(found, tolerable=content_with_one and desired.is_extra)
        return Keep(desired.else_keep, why)

    def _find(self, desired: _Desired, beside: Collection[Claim], *, is_foreseen: bool) -> Acquire | Blocker:
        """Return the claim, or what speaks against it.

        That another has an address is believed if the API server said so, or in advance (`is_foreseen`).
        """
        if desired.address is not None:
            found = self._claim(desired, desired.address, beside)
            known = self.facts.addresses[reservation_name(self.where.space, desired.address)]
            denied = known.denied or (
                known.known_unavailable if is_foreseen and not desired.confirms else None
            )
            if isinstance(found, Blocker) or denied is None:
                return found
            if not desired.is_preference:
                return denied
        free = self.where.free[desired.family]
        return free if isinstance(free, Blocker) else self._claim(desired, free, beside)

    def _claim(self, desired: _Desired, address: Address, beside: Collection[Claim]) -> Acquire | Blocker:
        claim = Claim(
            space=self.where.space,
            address=address,
            range=self.where.name,
            owner=self.facts.owner,
            requested=desired.requested,
            renames=desired.renames,
            insists=desired.address is not None and not desired.is_preference,
        )
        refusal = None if desired.confirms else self._exceeds_quota(claim, beside)
        return refusal or Acquire(claim=claim, is_own=desired.confirms)

    def _exceeds_quota(self, claim: Claim, beside: Collection[Claim]) -> Blocker | None:
        """Return why a guest cluster gets no more addresses of the range; None if it gets this one.

        It has what is claimed `beside` it as well: of two families neither is claimed that would be released at once.
        """
        quota = self.where.quota
        if quota is None or claim.name in quota.reserved:
            return None
        others = quota.reserved | quota.claimed | {each.name for each in beside}
        if len(others - {claim.name}) < quota.limit:
            return None
        message = (
            f'Range "{claim.range}" assigns at most {quota.limit} addresses to a guest cluster (maxPerGuest): '
            f"{claim.owner.namespace} has {len(quota.reserved)}, addresses in quarantine included. Delete unused "
            "FloatingIPs or choose another range."
        )
        return Blocker(reason="QuotaExceeded", message=message)


def _is_had(facts: Facts, reservation: Reservation, space: str) -> bool:
    """Return whether the status names what is reserved, or the predecessor assigned it, which knew no spaces."""
    if is_named(facts.floating_ip, reservation):
        return True
    if not facts.is_inherited or isinstance(facts.request, Blocker) or reservation.space != space:
        return False
    return address_of(reservation) in facts.request.static.values()


def _by_family(
    facts: Facts, space: str, range_name: str = "", static: Collection[Address] = ()
) -> dict[Family, list[Reservation]]:
    """Sort what is held by family; a crash or a second operator may have left several reservations of one family.

    The order is the same for every observer: what the spec names (`static`), what the status names, what is of the
    space and the range that serve, then the oldest, then by name.
    """

    def rank(reservation: Reservation) -> tuple[object, ...]:
        return (
            address_of(reservation) not in static,
            not _is_had(facts, reservation, space),
            reservation.space != space,
            reservation.range != range_name,
            reservation.since,
            reservation.name,
        )

    found: dict[Family, list[Reservation]] = {}
    for reservation in sorted(facts.held, key=rank):
        found.setdefault(address_of(reservation).family, []).append(reservation)
    return found


def _of_one_space(
    facts: Facts, found: Mapping[Family, Keep | Acquire], space: str
) -> Mapping[Family, Keep | Acquire]:
    """Leave out, to be released, what is of another space than the rest: a status names addresses of one space.

    The rest are those that the status names, else those of `space`, else any. Two operators, one of which has not
    heard of the range that is named by now, may have begun in two spaces.
    """
    kept = Holdings(by_family=found).held.values()
    home = min(
        kept, key=lambda each: (not is_named(facts.floating_ip, each), each.space != space), default=None
    )
    return {
        family: replace(each, held=None)
        if isinstance(each, Keep) and home and each.held and each.held.space != home.space
        else each
        for family, each in found.items()
    }
