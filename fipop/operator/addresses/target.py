"""What a floating IP is to hold in the end, and what it has to claim for that, by all that is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fipop.api.models import Owner, Reservation
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, Family
from fipop.operator.addresses.allocation import (
    AllocationView,
    DesiredAddress,
    RangeView,
    find_lost,
    keep_best,
    plan_allocation,
)
from fipop.operator.addresses.blockers import Blocker, blocker_of
from fipop.operator.addresses.ownership import (
    address_of,
    build_owner,
    inherit,
    is_made_by_us,
    is_named,
    read_addresses,
    space_named,
)
from fipop.operator.addresses.request import Request
from fipop.operator.addresses.view import View
from fipop.state.claims import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetClaim:
    """A claim to make; `is_own`: of what the floating IP had before."""

    claim: Claim
    is_own: bool


@dataclass(slots=True, kw_only=True)
class Target:
    """What a floating IP is to hold in the end, what it still has to claim for that, and what stands in the way.

    `held_now` is what it holds, `owner` how it is named as an owner. `is_standstill`: what is held stays, whatever is
    wished for. `names_spec`: the spec may be brought in line. `awaits_guest`: before the guest is known no
    range can be found, or it cannot be told whether the range serves that guest.
    """

    owner: Owner
    held_now: tuple[Reservation, ...]
    held: dict[Family, Reservation] = field(default_factory=dict)
    claims: list[TargetClaim] = field(default_factory=list)
    blockers: list[Blocker] = field(default_factory=list)
    is_standstill: bool = False
    names_spec: bool = True
    awaits_guest: bool = False


def find_target(view: View) -> Target:
    """Decide what to hold; what is lost is restored before the wish is looked at."""
    return _Case(view).find_target()


class _Case:
    """One view, and what follows from it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._floating_ip = view.floating_ip
        self._space = space_named(view.floating_ip.status)
        self._named = read_addresses(view.floating_ip.status.addresses)
        self._held = inherit(tuple(each for each in view.own if each.is_held), view.floating_ip)
        self._owner = build_owner(view.floating_ip, view.binding, self._held)

    def find_target(self) -> Target:
        view, status = self._view, self._floating_ip.status
        resolved = [self._resolve(each, self._space, status.range or "") for each in self._find_lost()]
        claims = [each for each in resolved if isinstance(each, TargetClaim)]
        if claims:
            return self._target(claims=claims)
        if resolved:  # another has it: the status says so before anything else is asked for
            taken = [each for each in resolved if isinstance(each, Blocker)]
            return self._stand_still(taken, names_spec=False)
        if isinstance(view.request, Blocker):
            return self._stand_still([view.request], names_spec=False)
        if isinstance(view.range, Blocker):
            return self._stand_still([view.range], awaits_guest=not view.is_guest_known)
        return self._follow(view.request, view.range)

    def _target(self, **known: Any) -> Target:
        return Target(owner=self._owner, held_now=self._held, **known)

    def _find_lost(self) -> tuple[DesiredAddress, ...]:
        """Find the lost addresses of a status that tells their range.

        Without a range in the status they are found with the rest, and counted in the range that serves; but where no
        range serves, they are found here as well.
        """
        view = self._view
        is_readable = isinstance(view.request, Request)
        if self._floating_ip.status.range is None and is_readable and isinstance(view.range, RangeView):
            return ()
        asked_for = tuple(view.request.static) if isinstance(view.request, Request) else tuple(Family)
        if is_made_by_us(self._floating_ip):
            asked_for = ()
        return find_lost(view.own, self._named, space=self._space, asked_for=asked_for)

    def _stand_still(self, blockers: list[Blocker], **known: bool) -> Target:
        """Keep what is held while the wish cannot be followed: it cannot be read, say, or no range be found for it."""
        target = self._target(blockers=blockers, is_standstill=True, **known)
        _keep(target, keep_best(self._held, self._named, space=self._space))
        return self._of_one_space(target, self._space)

    def _follow(self, request: Request, where: RangeView) -> Target:
        """Follow the wish, as far as all that is known allows."""
        facts = AllocationView(
            range=where,
            held=self._held,
            had=self._named.union(request.static.values() if self._view.is_inherited else ()),
            had_in=self._floating_ip.status.address_space or where.space,
            made_by_us=is_made_by_us(self._floating_ip),
        )
        plan = plan_allocation(request, facts)
        awaits_guest = bool(plan.blockers) and where.restricted is not None and not self._view.is_guest_known
        target = self._target(blockers=list(plan.blockers), awaits_guest=awaits_guest)
        _keep(target, plan.keep)
        # What was its own before is not for the rest to decide on: no wish that is not to be had takes it away.
        for desired in sorted(plan.claim, key=lambda desired: not desired.confirms):
            beside = [each.claim for each in target.claims]
            found = self._resolve(
                desired, where.space, where.name, beside=beside, is_foreseen=plan.all_or_nothing
            )
            if isinstance(found, TargetClaim):
                target.claims.append(found)
            else:
                is_tolerable = plan.content_with_one and desired.is_extra
                target.blockers.append(replace(found, tolerable=found.tolerable or is_tolerable))
        if target.blockers and plan.all_or_nothing:
            target.claims = [each for each in target.claims if each.is_own]
            target.held = {family: each for family, each in target.held.items() if facts.is_had(each)}
        if target.blockers:
            replaced = [each.replaces for each in plan.claim if each.replaces is not None]
            is_serious = any(not each.tolerable for each in target.blockers)
            old = [*replaced, *(plan.surplus if is_serious else ())]
            _keep(target, [each for each in old if address_of(each).family not in target.held])
        return self._of_one_space(target, where.space)

    def _of_one_space(self, target: Target, space: str) -> Target:
        """Leave out, to be released, what is of another space than the rest: a status names addresses of one space.

        The rest are those that the status names, else those of `space`, else any. Two operators, one of which has not
        heard of the range that is named by now, may have begun in two spaces.
        """

        def rank(each: Reservation) -> tuple[bool, bool]:
            return not is_named(self._floating_ip, each), each.space != space

        if target.held:
            home = min(target.held.values(), key=rank).space
            target.held = {family: each for family, each in target.held.items() if each.space == home}
        return target

    def _resolve(
        self,
        desired: DesiredAddress,
        space: str,
        range_name: str,
        *,
        beside: Collection[Claim] = (),
        is_foreseen: bool = False,
    ) -> TargetClaim | Blocker:
        """Give the claim for a desired address, or what speaks against it.

        That another has an address is believed where the API server said so, or in advance (`is_foreseen`).
        """
        holders = self._view.holders
        if desired.address is not None:
            found = self._claim(desired, desired.address, space, range_name)
            refusal = holders.refusal(found, is_own=desired.confirms, beside=beside)
            denied = self._view.denied.get(found.name)
            if denied is None and is_foreseen and not desired.confirms:
                denied = holders.holder(found)
            if refusal is not None or denied is None:
                return refusal or TargetClaim(claim=found, is_own=desired.confirms)
            if not desired.is_preference:
                return holders.describe(denied)
        try:
            address = holders.choose(desired.family, self._owner, range_name)
        except IpamError as error:
            return blocker_of(error)
        found = self._claim(desired, address, space, range_name)
        return holders.refusal(found, is_own=False, beside=beside) or TargetClaim(claim=found, is_own=False)

    def _claim(self, desired: DesiredAddress, address: Address, space: str, range_name: str) -> Claim:
        return Claim(
            space=space,
            address=address,
            range=range_name,
            owner=self._owner,
            requested=desired.requested,
            renames=desired.renames,
            insists=desired.address is not None and not desired.is_preference,
        )


def _keep(target: Target, reservations: Iterable[Reservation]) -> None:
    for each in reservations:
        target.held[address_of(each).family] = each
