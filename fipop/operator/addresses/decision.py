"""What is to be done next for one floating IP: a pure function of what is known.

`decide` goes through its rules in this order; the first that wants a step has it:

1. A floating IP that was deleted and created again inherits what the former object of its name held: read first which
   of the two the API server has.
2. Nothing is given out while the gate is closed, but what somebody had before.
3. Claim what is missing: first what the status names without a reservation, then what the floating IP had otherwise,
   then what is new. Nothing is begun that is known not to be had.
4. Write the owner of what is held as it is now.
5. Confirm what the status is about to name, where this process did not write the reservation just now.
6. Write the addresses into the spec; 7. into the status.
8. Release what is held beyond that.
9. Wait: for a change, or until a release is safe.

The protocol of two writers. Two operators may work at once, each with a view that lags behind. The API server decides
who gets an address (names of reservations are unique, swaps are tested on the version). What is left is one operator
that names an address while another gives it back. So a status newly names an address only within NAMING_SECONDS of this
process's own write of its reservation, and a reservation that another process wrote is released only UNDER_WAY_SECONDS
after: by then no status that relies on that write can be under way. The release is tested on the reservation's version,
so it fails where somebody confirmed it meanwhile, and is decided on the live floating IP.

Both families or neither: what was begun before the second family turned out to be taken is released like everything
that is held in excess. It waits in quarantine, and its owner gets it back from there at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from fipop.api.models import Requested
from fipop.ipam.addresses import Address, Family, format_address
from fipop.operator.addresses.blockers import Blocker
from fipop.operator.addresses.ownership import address_of, is_made_by_us, is_named, read_addresses
from fipop.operator.addresses.request import Request, in_order
from fipop.operator.addresses.status import build_status
from fipop.operator.addresses.steps import (
    Confirm,
    MakeClaim,
    ReadAgain,
    Release,
    Step,
    Wait,
    WriteSpec,
    WriteStatus,
)
from fipop.operator.addresses.target import Target, find_target
from fipop.operator.addresses.view import View
from fipop.state.claims import Claim

CLOSED_GATE_SECONDS = 5.0

MAX_WRITE_BACKS = 2
"""How often a spec.ipaddress that was changed back is written again before it is left to whoever changes it."""

SPEC_REVERTED = "SpecReverted"
SPEC_REVERTED_MESSAGE = (
    "Another writer sets spec.ipaddress back. metadata.managedFields names that writer. In its manifest, leave the "
    "field out, or name all of status.addresses."
)


def decide(view: View) -> Step:
    """Return the next step; the module's text has the rules."""
    if _inherits(view) and not view.is_live:
        return ReadAgain()
    target = find_target(view)
    return (
        _wait_for_gate(view, target)
        or _claim(target)
        or _rewrite_owner(target)
        or _confirm(view, target)
        or _write_spec(view, target)
        or _write_status(view, target)
        or _release(view, target)
        or Wait(blockers=tuple(target.blockers))
    )


def _inherits(view: View) -> bool:
    return any(each.is_held and each.owner.uid != view.floating_ip.uid for each in view.own)


def _wait_for_gate(view: View, target: Target) -> Wait | None:
    """Leave the status as it was while the gate is closed: a restart writes nothing.

    What was told stays also until the guest is known, and until it was looked who carries what was in quarantine.
    """
    is_early = not target.claims[0].is_own if target.claims else target.awaits_guest
    awaits_look = any(each.checked_at and each.checked_at <= view.now for each in target.blockers)
    is_told = view.floating_ip.status.observed_generation == view.floating_ip.meta.generation
    stays = is_told and not target.claims and (target.awaits_guest or awaits_look)
    if not stays and (view.is_gate_open or not is_early):
        return None
    return Wait(seconds=CLOSED_GATE_SECONDS, is_settled=False)


def _claim(target: Target) -> MakeClaim | None:
    return MakeClaim(target.claims[0].claim) if target.claims else None


def _rewrite_owner(target: Target) -> MakeClaim | None:
    """Write the owner anew where the floating IP was created again under its name, or its guest became known."""
    for each in target.held.values():
        if each.owner != target.owner:
            claim = Claim(
                space=each.space,
                address=address_of(each),
                range=each.range,
                owner=target.owner,
                requested=each.requested,
            )
            return MakeClaim(claim)
    return None


def _confirm(view: View, target: Target) -> Confirm | None:
    for each in target.held.values():
        if each.name not in view.fresh and not is_named(view.floating_ip, each):
            return Confirm(each)
    return None


def _write_spec(view: View, target: Target) -> WriteSpec | None:
    """Write the addresses that the spec does not name; a spec that somebody empties again and again is left alone."""
    request, floating_ip = view.request, view.floating_ip
    if not target.names_spec or isinstance(request, Blocker):
        return None
    addresses = _spec_addresses(view, target, request)
    if not addresses or dict(request.static) == addresses:
        return None
    # The status comes after the spec: who changes the spec back at once does so before the status names anything.
    is_write_back = not (
        set(addresses.values()) - view.written - read_addresses(floating_ip.status.addresses)
    )
    if is_write_back and not _may_write_back(view):
        target.blockers.append(Blocker(reason=SPEC_REVERTED, message=SPEC_REVERTED_MESSAGE))
        return None
    is_range_chosen = floating_ip.range is None and is_made_by_us(floating_ip)
    return WriteSpec(
        ipaddress=",".join(format_address(each) for each in in_order(request, addresses)),
        range=next(iter(target.held.values())).range if is_range_chosen else None,
        is_write_back=is_write_back,
    )


def _spec_addresses(view: View, target: Target, request: Request) -> Mapping[Family, Address]:
    """Return the addresses that the spec should name: those that are held, but no wish is written over.

    While the wish for one family is open, fipop may have changed the address of the other family, which it chose: that
    one is brought up to date. The spec is written before the status, so an address in the spec that the status does not
    name was written by people.
    """
    if not _is_short(target, request):
        return {family: address_of(each) for family, each in target.held.items()}
    if target.is_standstill:
        return request.static
    news = {
        family: address_of(each)
        for family, each in target.held.items()
        if not is_named(view.floating_ip, each)
    }
    chosen = {address_of(each) for each in target.held_now if each.requested is Requested.DYNAMIC}
    return {
        family: news.get(family, address) if address in chosen else address
        for family, address in request.static.items()
    }


def _is_short(target: Target, request: Request) -> bool:
    """Whether the spec asks for something that is not held yet, so that writing it would destroy the wish.

    A second family is claimed after a move to another space. And where somebody took a static address out of the spec,
    writing it back would make it a wish again.
    """
    is_serious = any(not each.tolerable for each in target.blockers)
    was_named = any(each.requested is Requested.STATIC for each in target.held.values())
    is_to_come = not request.static.keys() <= target.held.keys()
    return is_to_come or bool(target.blockers and request.static) or (is_serious and was_named)


def _may_write_back(view: View) -> bool:
    # Beside another blocker the message alone tells, also after a restart.
    is_stopped = any(SPEC_REVERTED_MESSAGE in each.message for each in view.floating_ip.status.conditions)
    return not is_stopped and view.write_backs < MAX_WRITE_BACKS


def _write_status(view: View, target: Target) -> WriteStatus | None:
    wanted = build_status(
        view.floating_ip,
        held=target.held,
        blockers=target.blockers,
        binding=view.binding,
        observation=view.observation,
        removal=view.removal,
        now=view.now,
    )
    return WriteStatus(wanted) if wanted != view.floating_ip.status else None


def _release(view: View, target: Target) -> ReadAgain | Release | Wait | None:
    """Release what is held beyond the target, now that the status names none of it."""
    kept = {each.name for each in target.held.values()}
    surplus = [each for each in target.held_now if each.name not in kept]
    if not surplus:
        return None
    if not view.is_live:
        return ReadAgain()
    first = min(surplus, key=lambda each: view.unsafe_for[each.name])
    seconds = view.unsafe_for[first.name]
    return Release(first) if seconds <= 0 else Wait(blockers=tuple(target.blockers), seconds=seconds)
