"""Which address of each family a floating IP should hold: what it keeps, what it claims, and what it cannot have.

Facts in, holdings out. What is lost is restored before the request is read. What is held already comes first. A new
address is claimed before the old one is given up; if the new one cannot be had, the old one stays, and the reason is
stated. Whatever is held and not kept is released.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from fipop.api.models import Requested, Reservation
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.operator.addresses.values import (
    Blocker,
    Facts,
    RangeFacts,
    Request,
    address_of,
    is_made_by_us,
    is_named,
    needs_every_family,
    space_named,
    wanted_families,
)
from fipop.state.claims import Claim, read_addresses, reservation_name


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep what is held, if anything is."""

    held: Reservation | None
    why: Blocker | None = None
    """Why the wanted address cannot be had; None also if that is so because of the other family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What a floating IP should hold."""

    by_family: Mapping[Family, Keep | Claim]
    """In the order in which addresses are claimed and reasons are shown."""
    standstill: tuple[Blocker, ...] = ()
    """Why the request as a whole cannot be followed: it cannot be read, say, or no range serves it."""
    restores: bool = False
    """What is claimed is what the floating IP had before."""
    names_spec: bool = True
    """The spec can be brought in line."""
    awaits_guest: bool = False
    """Before the guest cluster is known, no range is found, or it is unknown whether the range serves it."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What must be claimed, in this order."""
        return tuple(each for each in self.by_family.values() if isinstance(each, Claim))

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


def plan(facts: Facts) -> Holdings:
    """Decide what to hold; the module's text has the order of thought."""
    found = _find_lost(facts)
    claims = {family: each for family, each in found.items() if isinstance(each, Claim)}
    if claims:
        return Holdings(by_family=claims, restores=True)
    taken = [each for each in found.values() if isinstance(each, Blocker)]
    if taken:  # another has it: the status says so before anything else is asked for
        return _keep_current(facts, *taken, names_spec=False)
    if isinstance(facts.request, Blocker):
        return _keep_current(facts, facts.request, names_spec=False)
    if isinstance(facts.range, Blocker):
        return _keep_current(facts, facts.range, awaits_guest=not facts.is_guest_known)
    return _follow(facts, facts.request, facts.range)


def _find_lost(facts: Facts) -> dict[Family, Claim | Blocker]:
    """Find the addresses that it had and no reservation holds: they are claimed again, as the guest has them.

    It had those that its status names, or its spec if the predecessor assigned them. If the status names no range, they
    are counted in the range that serves. An address in quarantine is not lost if another one of its family is held: the
    floating IP moved there, and the status that says so is on its way.
    """
    floating_ip, status = facts.floating_ip, facts.floating_ip.status
    space, range_name = space_named(status), status.range or ""
    if status.range is None and isinstance(facts.range, RangeFacts):
        space, range_name = facts.range.space, facts.range.name
    static = facts.request.static if isinstance(facts.request, Request) else {}
    had: Collection[Address] = read_addresses(status.addresses)
    if facts.is_inherited:
        had = static.values() if isinstance(facts.range, RangeFacts) else ()
    here = [each for each in facts.own if each.space == space]
    there = {address_of(each) for each in here}
    held = {address_of(each).family for each in here if each.is_held}
    found: dict[Family, Claim | Blocker] = {}
    for address in sorted(had):
        if address.family in found or (address.family in held and address in there):
            continue
        # Of families in which the spec names an address, another writer asked for it; in others fipop chose it.
        is_chosen = isinstance(facts.request, Request) and address.family not in static
        claim = Claim(
            space=space,
            address=address,
            range=range_name,
            owner=facts.owner,
            requested=Requested.DYNAMIC if is_chosen or is_made_by_us(floating_ip) else Requested.STATIC,
        )
        found[address.family] = facts.addresses[claim.name].taken or claim
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
    found: dict[Family, Keep | Claim] = {}
    for family in sorted(families):
        beside = [each for each in found.values() if isinstance(each, Claim)]
        found[family] = wish.decide(family, held.get(family, []), beside)
    blockers = Holdings(by_family=found).blockers
    if blockers and (needs_all or relocates):
        found = {family: wish.stay(each, held.get(family, [])) for family, each in found.items()}
    if any(not each.tolerable for each in blockers):
        # A family that is wanted no more stays until the other is there.
        found |= {family: Keep(held[family][0]) for family in held.keys() - found.keys()}
    return Holdings(
        by_family=_of_one_space(facts, found, where.space),
        awaits_guest=bool(blockers) and where.restricted is not None and not facts.is_guest_known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """A request that can be read, and the range that serves it."""

    facts: Facts
    request: Request
    where: RangeFacts

    def decide(self, family: Family, mine: Sequence[Reservation], beside: Collection[Claim]) -> Keep | Claim:
        """Decide on one family of which `mine` is held, the best first, and `beside` is claimed of the other."""
        static, held = self.request.static.get(family), next(iter(mine), None)
        asked, requested = static, Requested.STATIC if static is not None else Requested.DYNAMIC
        if held is not None and static in {None, address_of(held)}:
            there = [each for each in mine if (each.space, each.range) == (self.where.space, self.where.name)]
            named = self._in_status(mine)
            if held not in there:
                asked, requested = self._move(held, static, named)
                # A move that was cut short has its new address already.
                begun = next((each for each in there if asked in {None, address_of(each)}), None)
                if begun is not None:
                    return Keep(begun)
            elif static is None or held.requested is Requested.STATIC or named in {None, held}:
                return Keep(held)
            elif (named.space, named.range) != (held.space, held.range):
                return Keep(held)  # only a user moves a floating IP within a range
        found = self._ask(family, asked, requested, beside)
        if isinstance(found, Claim):
            return found
        content_with_one = self.request.policy is FamilyPolicy.PREFER_DUAL_STACK
        why = replace(found, tolerable=content_with_one and static is None and held is None)
        return Keep(self._in_status(mine) or held, why)

    def stay(self, decided: Keep | Claim, mine: Sequence[Reservation]) -> Keep:
        """Return what is kept of a family if another one that belongs to it cannot be had."""
        if isinstance(decided, Claim):
            return Keep(self._in_status(mine) or next(iter(mine), None))
        if decided.held is None or decided.why is not None or self._in_status([decided.held]):
            return decided
        return Keep(self._in_status(mine))

    def _move(
        self, held: Reservation, static: Address | None, named: Reservation | None
    ) -> tuple[Address | None, Requested]:
        """Return what to ask for, as the range or its space is another now; `named` is what the status names.

        The same address if it is to be had there, else a new one. But an address that is asked for by name is never
        changed for another while the spec still names it. Nor is one that was left and that the spec names again: the
        spec is written before the status.
        """
        address = address_of(held)
        known = self.facts.addresses[reservation_name(self.where.space, address)]
        was_left = named is not None and named is not held
        if static is not None and (was_left or held.requested is Requested.STATIC):
            return address, Requested.STATIC
        is_chosen = held.requested is Requested.DYNAMIC
        if known.refused is None and known.taken is None and not (is_chosen and known.is_anothers):
            return address, held.requested
        return None, Requested.DYNAMIC

    def _in_status(self, mine: Sequence[Reservation]) -> Reservation | None:
        """Return what the status names."""
        return next((each for each in mine if _is_had(self.facts, each, self.where.space)), None)

    def _ask(
        self, family: Family, asked: Address | None, requested: Requested, beside: Collection[Claim]
    ) -> Claim | Blocker:
        """Return the claim of an address, or of the next free one (`asked` is None), or why it cannot be had."""
        if self.where.restricted is not None:
            return self.where.restricted
        address = self.where.free[family] if asked is None else asked
        if isinstance(address, Blocker):
            return address
        claim = Claim(
            space=self.where.space,
            address=address,
            range=self.where.name,
            owner=self.facts.owner,
            requested=requested,
        )
        known = self.facts.addresses[claim.name]
        return known.refused or self._exceeds_quota(claim, beside) or known.taken or claim

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
    facts: Facts, found: Mapping[Family, Keep | Claim], space: str
) -> Mapping[Family, Keep | Claim]:
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
