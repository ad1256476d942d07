"""Which address of each family a floating IP is to hold: what it keeps, what it claims, what it has beyond that.

Values in, values out. What is held already comes first. A new address is claimed before the old one is given up; where
the new one cannot be had, the old one stays, and the blocker says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fipop.api.models import Requested, Reservation
from fipop.errors import IpamError, RangeDrainingError
from fipop.ipam.addresses import Address, Family, FamilyPolicy
from fipop.operator.addresses.blockers import Blocker, blocker_of
from fipop.operator.addresses.ownership import address_of
from fipop.operator.addresses.request import Request, needs_every_family, wanted_families


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeView:
    """The range to serve from, as the decision sees it.

    `refuses` says why the range would not give out an address that somebody asks for by name; None where it would.
    `is_anothers` tells whether another floating IP has an address there. A range that is `draining` gives out nothing
    new, one that is `restricted` nothing to this guest.
    """

    name: str
    space: str
    families: frozenset[Family]
    draining: bool
    restricted: Blocker | None = None
    refuses: Callable[[Address], IpamError | None]
    is_anothers: Callable[[Address], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredAddress:
    """One address to hold: a certain one, or the next free one (`address` is None).

    `replaces` is the reservation that is given back once this one is held; `confirms` tells that the floating IP
    had this very address before, so that no rule of the range stands in its way; `renames` that an address which was
    chosen for it is asked for by name now.
    """

    family: Family
    address: Address | None
    requested: Requested
    replaces: Reservation | None = None
    confirms: bool = False
    renames: bool = False

    @property
    def is_preference(self) -> bool:
        """Whether another address will do, where this one turns out to be another's."""
        return self.requested is Requested.DYNAMIC and not self.confirms

    @property
    def is_extra(self) -> bool:
        """Whether it is a second family that a floating IP with PreferDualStack can do without."""
        return self.address is None and self.replaces is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`keep` as it is, `claim` in this order, and the `blockers` that keep the rest from being claimed.

    `surplus` are reservations to release once nothing blocks their successors: of a family that is not wanted any more;
    an address that the status names while a move that was cut short holds another; what a blocked address was to
    replace. `all_or_nothing`: both families are asked for, or both move to another space, as a status names one space.
    """

    keep: tuple[Reservation, ...]
    claim: tuple[DesiredAddress, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    surplus: tuple[Reservation, ...] = ()
    all_or_nothing: bool = False
    content_with_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationView:
    """What the plan is made of, besides the request.

    `held` are the reservations that the floating IP holds; `had` the addresses that its status names or that it
    brought from the predecessor, in the space `had_in`: they are its own even where a reservation is missing.
    `made_by_us` tells that the address in its spec was chosen, not asked for.
    """

    range: RangeView
    held: Sequence[Reservation]
    had: frozenset[Address]
    had_in: str
    made_by_us: bool

    def is_had(self, reservation: Reservation) -> bool:
        """Whether the status names what is reserved: the same address of another space is another one."""
        return reservation.space == self.had_in and address_of(reservation) in self.had


def plan_allocation(request: Request, view: AllocationView) -> Plan:
    """Decide for every family that is wanted. See the module's text for the order of thought."""
    held = _by_family(view.held, _rank(request, view))
    content_with_one = request.policy is FamilyPolicy.PREFER_DUAL_STACK
    families = wanted_families(request, view.range.families, frozenset(held))
    needs_all = needs_every_family(request)
    relocates = _relocates(families, held, view.range)
    if relocates and not needs_all:
        # What is held moves first; a family that comes on top is asked for once that is done.
        families = tuple(family for family in families if family in held)
    keep: list[Reservation] = []
    claim: list[DesiredAddress] = []
    blockers: list[Blocker] = []
    surplus = {family: mine[0] for family, mine in held.items() if family not in families}
    for family in sorted(families):
        mine = held.get(family, [])
        decision = _decide(family, request.static.get(family), mine, view)
        left = _left_by(decision, mine, view)
        if left is not None:
            surplus[family] = left
        if isinstance(decision, DesiredAddress):
            blocker = _find_blocker(decision, view)
            if blocker is None:
                claim.append(decision)
                continue
            blockers.append(replace(blocker, tolerable=content_with_one and decision.is_extra))
            if decision.replaces is not None:
                surplus.setdefault(family, decision.replaces)
        else:
            keep.append(decision)
    return Plan(
        keep=tuple(keep),
        claim=tuple(claim),
        blockers=tuple(blockers),
        surplus=tuple(surplus[family] for family in sorted(surplus)),
        all_or_nothing=needs_all or relocates,
        content_with_one=content_with_one,
    )


def keep_best(own: Sequence[Reservation], had: Collection[Address], *, space: str) -> tuple[Reservation, ...]:
    """Keep, while nothing can be decided, of several addresses of a family the one that the status names in `space`."""
    found = _by_family(
        [each for each in own if each.is_held],
        lambda each: (each.space != space, address_of(each) not in had, each.since, each.name),
    )
    return tuple(found[family][0] for family in sorted(found))


def find_lost(
    own: Sequence[Reservation], had: frozenset[Address], *, space: str, asked_for: Collection[Family]
) -> tuple[DesiredAddress, ...]:
    """Find the addresses that the status names and no reservation holds: they are claimed again, as the guest has them.

    An address in quarantine is not lost where another one of its family is held: the floating IP moved there, and the
    status that says so is on its way. Of the families in `asked_for` somebody names an address in the spec; in the
    others fipop chose it.
    """
    here = [each for each in own if each.space == space]
    there = {address_of(each) for each in here}
    held = {address_of(each).family for each in here if each.is_held}
    lost = {
        address.family: address
        for address in sorted(had, reverse=True)
        if address.family not in held or address not in there
    }
    return tuple(_confirm(lost[family], made_by_us=family not in asked_for) for family in sorted(lost))


def _by_family(
    held: Sequence[Reservation], rank: Callable[[Reservation], tuple[Any, ...]]
) -> Mapping[Family, list[Reservation]]:
    """Sort the reservations by family; a crash or a second operator may have left several of one family."""
    found: dict[Family, list[Reservation]] = {}
    for reservation in sorted(held, key=rank):
        found.setdefault(address_of(reservation).family, []).append(reservation)
    return found


def _relocates(
    families: Collection[Family], held: Mapping[Family, Sequence[Reservation]], to: RangeView
) -> bool:
    """Whether both families, or one that is left, move to another address space: a status names addresses of one."""
    found = [held[family][0] for family in families if family in held]
    return len(families) > 1 and any(each.space != to.space for each in found)


def _rank(request: Request, view: AllocationView) -> Callable[[Reservation], tuple[Any, ...]]:
    """Rank the same for every observer: what the spec names, what the status names, the oldest, then by name."""

    def rank(reservation: Reservation) -> tuple[Any, ...]:
        address = address_of(reservation)
        return (
            address != request.static.get(address.family),
            not view.is_had(reservation),
            reservation.space != view.range.space,
            reservation.range != view.range.name,
            reservation.since,
            reservation.name,
        )

    return rank


def _decide(
    family: Family, static: Address | None, mine: Sequence[Reservation], view: AllocationView
) -> Reservation | DesiredAddress:
    if not mine:
        return _decide_anew(family, static, view)
    wanted_range, held = view.range, mine[0]
    address = address_of(held)
    if static is not None and static != address:
        return DesiredAddress(family=family, address=static, requested=Requested.STATIC, replaces=held)
    if held.space == wanted_range.space and held.range == wanted_range.name:
        if static is not None and _is_asked_for_again(held, mine, view):
            return DesiredAddress(
                family=family, address=static, requested=Requested.STATIC, confirms=True, renames=True
            )
        return held
    begun = [each for each in mine if (each.space, each.range) == (wanted_range.space, wanted_range.name)]
    # The range, or its space, is another now: the same address where it is to be had there, else a new one;
    # but an address that somebody asks for by name is never changed for another, while the spec still names it.
    stays = wanted_range.refuses(address) is None and not wanted_range.is_anothers(address)
    if stays or (held.requested is Requested.STATIC and static is not None):
        there = next((each for each in begun if address_of(each) == address), None)
        return there or DesiredAddress(
            family=family, address=address, requested=held.requested, replaces=held
        )
    told = next((each for each in mine if view.is_had(each)), None)
    if static is not None and told is not None and told is not held:
        # The spec is written before the status: who names what was left by now asks for it by name.
        return DesiredAddress(family=family, address=static, requested=Requested.STATIC, replaces=told)
    # A move that was cut short has its new address already.
    new = DesiredAddress(family=family, address=None, requested=Requested.DYNAMIC, replaces=held)
    return next(iter(begun), new)


def _decide_anew(family: Family, static: Address | None, view: AllocationView) -> DesiredAddress:
    """Decide on a family of which nothing is held."""
    had = min((address for address in view.had if address.family is family), default=None)
    if static is None:
        # A reservation that vanished is made again, also where the spec was emptied meanwhile.
        return DesiredAddress(
            family=family, address=had, requested=Requested.DYNAMIC, confirms=had is not None
        )
    if had is not None:
        # Also where another address is wanted by now: the move comes after that, and may be refused.
        return _confirm(static if static in view.had else had, made_by_us=view.made_by_us)
    return DesiredAddress(family=family, address=static, requested=Requested.STATIC)


def _is_asked_for_again(held: Reservation, mine: Sequence[Reservation], view: AllocationView) -> bool:
    """Whether somebody moved back by name to an address that was chosen once, before it was given back.

    The status names another one of the same range: nobody but people moves a floating IP within a range.
    """
    elsewhere = (
        view.is_had(each) and (each.space, each.range) == (held.space, held.range)
        for each in mine
        if each is not held
    )
    return held.requested is Requested.DYNAMIC and not view.is_had(held) and any(elsewhere)


def _left_by(
    decision: Reservation | DesiredAddress, mine: Sequence[Reservation], view: AllocationView
) -> Reservation | None:
    """Give what the status names and the decision is not about."""
    chosen = decision.replaces if isinstance(decision, DesiredAddress) else decision
    return next((each for each in mine if each is not chosen and view.is_had(each)), None)


def _confirm(address: Address, *, made_by_us: bool) -> DesiredAddress:
    """Want an address again that the floating IP had before its reservation vanished."""
    requested = Requested.DYNAMIC if made_by_us else Requested.STATIC
    return DesiredAddress(family=address.family, address=address, requested=requested, confirms=True)


def _find_blocker(desired: DesiredAddress, view: AllocationView) -> Blocker | None:
    if desired.confirms:
        return None
    if view.range.restricted is not None:
        return view.range.restricted
    if desired.address is not None:
        refusal = view.range.refuses(desired.address)
        if refusal is not None:
            return blocker_of(refusal)
    is_relabel = desired.replaces is not None and address_of(desired.replaces) == desired.address
    if view.range.draining and not is_relabel:
        return blocker_of(RangeDrainingError(range_name=view.range.name))
    return None
