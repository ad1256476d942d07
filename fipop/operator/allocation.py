"""What to do for one floating IP: which of its reservations to keep, what to claim, what to give back.

Values in, values out: the decision knows no API. Its order of thought is that of a careful admin. What is held
already comes first; a new address is claimed before an old one is given up; where the new one cannot be had, the
old one stays and the obstacle is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fipop.api.models import IPFamilyPolicy, Requested, Reservation
from fipop.errors import IpamError, RangeDrainingError
from fipop.ipam.addresses import Address, Family, parse_address
from fipop.operator.request import Request, needs_every_family, wanted_families


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeView:
    """The range to serve from, as the decision sees it.

    `refuses` says why the range would not give out an address that somebody asks for by name; None where it would.
    A range that is `draining` gives out nothing new.
    """

    name: str
    space: str
    families: frozenset[Family]
    draining: bool
    refuses: Callable[[Address], IpamError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a floating IP has not all that it asks for; `reason` is that of its condition.

    One that is `tolerable` leaves the wish fulfilled as long as there is an address: one family is enough.
    """

    reason: str
    message: str
    tolerable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`keep` as it is, `claim` in this order, and `obstacles` that need a change of the world first.

    `spare` are the reservations of families that are wanted no more, and those that the status names where another is
    held already, by a move that was cut short: they go once nothing stands in the way of what takes their place.
    """

    keep: tuple[Reservation, ...]
    claim: tuple[Want, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    spare: tuple[Reservation, ...] = ()
    all_or_nothing: bool = False
    content_with_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the plan is made of, besides the request.

    `held` are the reservations that the floating IP holds; `had` the addresses that its status names or that it
    brought from the predecessor: they are its own even where a reservation is missing. `made_by_us` tells that the
    address in its spec was chosen, not asked for.
    """

    range: RangeView
    held: Sequence[Reservation]
    had: frozenset[Address]
    made_by_us: bool


def plan_allocation(request: Request, facts: Circumstances) -> Plan:
    """Decide for every family that is wanted. See the module's text for the order of thought."""
    held = _by_family(facts.held, _rank(request, facts))
    content_with_one = request.policy is IPFamilyPolicy.PREFER_DUAL_STACK
    families = wanted_families(request, facts.range.families, frozenset(held))
    keep: list[Reservation] = []
    claim: list[Want] = []
    obstacles: list[Obstacle] = []
    spare = {family: mine[0] for family, mine in held.items() if family not in families}
    for family in sorted(families):
        mine = held.get(family, [])
        decision = _decide(family, request.static.get(family), mine, facts)
        left = _left_by(decision, mine, facts)
        if left is not None:
            spare[family] = left
        if isinstance(decision, Want):
            obstacle = _obstacle_to(decision, facts)
            if obstacle is None:
                claim.append(decision)
                continue
            obstacles.append(replace(obstacle, tolerable=content_with_one and decision.address is None))
            if decision.replaces is not None:
                keep.append(decision.replaces)
        else:
            keep.append(decision)
    return Plan(
        keep=tuple(keep),
        claim=tuple(claim),
        obstacles=tuple(obstacles),
        spare=tuple(spare[family] for family in sorted(spare)),
        all_or_nothing=needs_every_family(request),
        content_with_one=content_with_one,
    )


def plan_standstill(
    held: Sequence[Reservation], had: frozenset[Address], *obstacles: Obstacle, made_by_us: bool
) -> Plan:
    """Keep what is held while nothing can be decided: of several addresses of a family the one that is known."""
    found = _by_family(held, lambda each: (address_of(each) not in had, each.since, each.name))
    return Plan(
        keep=tuple(found[family][0] for family in sorted(found)),
        claim=find_lost(held, had, asked_for=() if made_by_us else tuple(Family)),
        obstacles=obstacles,
    )


def find_lost(
    held: Sequence[Reservation], had: frozenset[Address], *, asked_for: Collection[Family]
) -> tuple[Want, ...]:
    """Want again what the status names, of the families of which nothing is held: its reservation vanished.

    `asked_for` are the families of which somebody names an address; of the others it was chosen.
    """
    found = {address_of(each).family for each in held}
    lost = {address.family: address for address in sorted(had, reverse=True) if address.family not in found}
    return tuple(_confirm(lost[family], made_by_us=family not in asked_for) for family in sorted(lost))


def obstacle_of(error: IpamError) -> Obstacle:
    """Give the obstacle that an error of the core is: its class tells the reason."""
    return Obstacle(reason=type(error).__name__.removesuffix("Error"), message=str(error))


def address_of(reservation: Reservation) -> Address:
    """Give the address of a reservation."""
    return parse_address(reservation.address)


def _by_family(
    held: Sequence[Reservation], rank: Callable[[Reservation], tuple[Any, ...]]
) -> Mapping[Family, list[Reservation]]:
    """Sort the reservations of each family, several where a crash or a second operator left them behind."""
    found: dict[Family, list[Reservation]] = {}
    for reservation in sorted(held, key=rank):
        found.setdefault(address_of(reservation).family, []).append(reservation)
    return found


def _rank(request: Request, facts: Circumstances) -> Callable[[Reservation], tuple[Any, ...]]:
    """Rank the same for every observer: what the spec names, what the status names, the oldest, then by name."""

    def rank(reservation: Reservation) -> tuple[Any, ...]:
        address = address_of(reservation)
        return (
            address != request.static.get(address.family),
            address not in facts.had,
            reservation.space != facts.range.space,
            reservation.range != facts.range.name,
            reservation.since,
            reservation.name,
        )

    return rank


def _decide(
    family: Family, static: Address | None, mine: Sequence[Reservation], facts: Circumstances
) -> Reservation | Want:
    wanted_range = facts.range
    if not mine:
        had = min((address for address in facts.had if address.family is family), default=None)
        if static is None:
            # A reservation that vanished is made again, also where the spec was emptied meanwhile.
            return Want(family=family, address=had, requested=Requested.DYNAMIC, confirms=had is not None)
        if had is not None:
            # Also where another address is wanted by now: the move comes after that, and may be refused.
            return _confirm(static if static in facts.had else had, made_by_us=facts.made_by_us)
        return Want(family=family, address=static, requested=Requested.STATIC)
    held = mine[0]
    address = address_of(held)
    if static is not None and static != address:
        return Want(family=family, address=static, requested=Requested.STATIC, replaces=held)
    if held.space == wanted_range.space and held.range == wanted_range.name:
        if static is not None and _is_asked_for_again(held, mine, facts):
            return Want(
                family=family, address=static, requested=Requested.STATIC, confirms=True, renames=True
            )
        return held
    # The range, or its space, is another now: the same address where that range gives it out, else a new one;
    # but an address that somebody asks for by name is never changed for another, while the spec still names it.
    stays = wanted_range.refuses(address) is None
    if stays or (held.requested is Requested.STATIC and static is not None):
        return Want(family=family, address=address, requested=held.requested, replaces=held)
    # A move that was cut short has its new address already.
    begun = (each for each in mine if (each.space, each.range) == (wanted_range.space, wanted_range.name))
    new = Want(family=family, address=None, requested=Requested.DYNAMIC, replaces=held)
    return next(begun, new)


def _is_asked_for_again(held: Reservation, mine: Sequence[Reservation], facts: Circumstances) -> bool:
    """Whether somebody moved back by name to an address that was chosen once, before it was given back.

    The status names another one of the same range: nobody but people moves a floating IP within a range.
    """
    elsewhere = (
        address_of(each) in facts.had and (each.space, each.range) == (held.space, held.range)
        for each in mine
        if each is not held
    )
    return held.requested is Requested.DYNAMIC and address_of(held) not in facts.had and any(elsewhere)


def _left_by(
    decision: Reservation | Want, mine: Sequence[Reservation], facts: Circumstances
) -> Reservation | None:
    """Give what the status names and the decision is not about."""
    chosen = decision.replaces if isinstance(decision, Want) else decision
    return next((each for each in mine if each is not chosen and address_of(each) in facts.had), None)


def _confirm(address: Address, *, made_by_us: bool) -> Want:
    """Want an address again that the floating IP had before its reservation vanished."""
    requested = Requested.DYNAMIC if made_by_us else Requested.STATIC
    return Want(family=address.family, address=address, requested=requested, confirms=True)


def _obstacle_to(want: Want, facts: Circumstances) -> Obstacle | None:
    if want.confirms:
        return None
    if want.address is not None:
        refusal = facts.range.refuses(want.address)
        if refusal is not None:
            return obstacle_of(refusal)
    is_relabel = want.replaces is not None and address_of(want.replaces) == want.address
    if facts.range.draining and not is_relabel:
        return obstacle_of(RangeDrainingError(range_name=facts.range.name))
    return None
