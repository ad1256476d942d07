"""What must be done next for one floating IP: a pure function of the facts and of what it should hold.

`next_step` goes through its rules in this order; the first that wants a step has it:

1. A floating IP that was deleted and created again inherits what the former object of its name held: read first which
   of the two the API server has.
2. While the gate is closed, an owner gets only the addresses that it had before.
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
so it fails if it was confirmed meanwhile, and is decided on the live floating IP.

Both families or neither: what was begun before the second family turned out to be taken is released like everything
that is held in excess. It waits in quarantine, and its owner gets it back from there at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fipop.api.models import FloatingIPStatus, Requested, Reservation
from fipop.ipam.addresses import Address, Family, format_address
from fipop.operator.addresses.holdings import Holdings
from fipop.operator.addresses.status import build_status
from fipop.operator.addresses.values import (
    Blocker,
    Facts,
    Request,
    address_of,
    is_made_by_us,
    is_named,
    wanted_families,
)
from fipop.state.claims import Claim, read_addresses

CLOSED_GATE_SECONDS = 5.0

MAX_WRITE_BACKS = 2
"""How many times a spec.ipaddress that was changed back is written again before it is left to the other writer."""

SPEC_REVERTED = Blocker(
    reason="SpecReverted",
    message=(
        "Another writer sets spec.ipaddress back. metadata.managedFields names that writer. In its manifest, name all "
        "of status.addresses."
    ),
)


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read the floating IP: what comes next must not rest on an old view of it."""


@dataclass(frozen=True, slots=True)
class Confirm:
    """Write a reservation anew as it is: who meant to release it as it was fails."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class WriteSpec:
    """Name the addresses in the spec, and where `range` is not None that range in its annotation."""

    ipaddress: str
    range: str | None
    is_write_back: bool
    """The status named them already: another writer took them out of the spec."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Write the status."""

    status: FloatingIPStatus


@dataclass(frozen=True, slots=True)
class Release:
    """Put a reservation in quarantine."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be done now; check again after `seconds`, or when something changes.

    `is_settled`: spec and status say what is held.
    """

    blockers: tuple[Blocker, ...] = ()
    seconds: float | None = None
    is_settled: bool = True


Step = ReadAgain | Claim | Confirm | WriteSpec | WriteStatus | Release | Wait


def next_step(facts: Facts, holdings: Holdings) -> Step:
    """Return the next step; the module's text has the rules."""
    if (
        any(each.is_held and each.owner.uid != facts.floating_ip.uid for each in facts.own)
        and not facts.is_live
    ):
        return ReadAgain()
    spec = _find_spec(facts, holdings)
    is_stopped = spec is not None and spec.is_write_back and not _may_write_back(facts, spec)
    blockers = (*holdings.blockers, SPEC_REVERTED) if is_stopped else holdings.blockers
    return (
        _wait_for_gate(facts, holdings)
        or next(iter(holdings.claims), None)
        or _rewrite_owner(facts, holdings)
        or _confirm(facts, holdings)
        or (spec if not is_stopped else None)
        or _write_status(facts, holdings, blockers)
        or _release(facts, holdings, blockers)
        or Wait(blockers=blockers)
    )


def _wait_for_gate(facts: Facts, holdings: Holdings) -> Wait | None:
    """Leave the status as it was while the gate is closed: a restart writes nothing.

    It stays also until the guest cluster is known. The first status waits for that only if the spec names an address,
    which is kept from others meanwhile. What was shown stays until it was checked who carries what was in quarantine.
    """
    claims = holdings.claims
    is_early = not holdings.restores if claims else holdings.awaits_guest
    awaits_check = any(each.checked_at and each.checked_at <= facts.now for each in holdings.blockers)
    floating_ip = facts.floating_ip
    is_shown = floating_ip.status.observed_generation == floating_ip.meta.generation
    has_any = bool(floating_ip.ipaddress or floating_ip.status.addresses)
    awaits_guest = holdings.awaits_guest and (is_shown or has_any)
    stays = not claims and (awaits_guest or (is_shown and awaits_check))
    if not stays and (facts.is_gate_open or not is_early):
        return None
    return Wait(seconds=CLOSED_GATE_SECONDS, is_settled=False)


def _rewrite_owner(facts: Facts, holdings: Holdings) -> Claim | None:
    """Write the owner again if the floating IP was created again under its name, or its guest became known."""
    for each in holdings.held.values():
        if each.owner != facts.owner:
            return Claim(
                space=each.space,
                address=address_of(each),
                range=each.range,
                owner=facts.owner,
                requested=each.requested,
            )
    return None


def _confirm(facts: Facts, holdings: Holdings) -> Confirm | None:
    for each in holdings.held.values():
        if each.name not in facts.fresh and not is_named(facts.floating_ip, each):
            return Confirm(each)
    return None


def _find_spec(facts: Facts, holdings: Holdings) -> WriteSpec | None:
    """Return the write of the addresses that the spec does not name."""
    request, floating_ip, held = facts.request, facts.floating_ip, holdings.held
    if not holdings.names_spec or isinstance(request, Blocker):
        return None
    addresses = _spec_addresses(facts, holdings, request)
    if not addresses or dict(request.static) == addresses:
        return None
    first = request.families[0] if request.families else Family.IPV4
    in_order = sorted(addresses, key=lambda family: (family != first, family))
    is_range_chosen = floating_ip.range is None and is_made_by_us(floating_ip)
    ipaddress = ",".join(format_address(addresses[family]) for family in in_order)
    # The status comes after the spec: who changes the spec back at once does so before the status names anything.
    is_in_status = read_addresses(floating_ip.status.addresses).issuperset(addresses.values())
    return WriteSpec(
        ipaddress=ipaddress,
        range=next(iter(held.values())).range if is_range_chosen else None,
        is_write_back=is_in_status or ipaddress == facts.written,
    )


def _spec_addresses(facts: Facts, holdings: Holdings, request: Request) -> Mapping[Family, Address]:
    """Return the addresses that the spec should name: those that are held, but no wish is written over.

    While the wish for one family is open, fipop may have changed the address of the other family, which it chose: that
    one is brought up to date. The spec is written before the status, so an address in the spec that the status does not
    name was written by another writer.
    """
    held = {family: address_of(each) for family, each in holdings.held.items()}
    if not _is_short(holdings, request):
        return held
    if holdings.standstill:
        return request.static
    news = {
        family: held[family]
        for family, each in holdings.held.items()
        if not is_named(facts.floating_ip, each)
    }
    chosen = {address_of(each) for each in facts.held if each.requested is Requested.DYNAMIC}
    return {
        family: news.get(family, address) if address in chosen else address
        for family, address in request.static.items()
    }


def _is_short(holdings: Holdings, request: Request) -> bool:
    """Return whether the spec asks for what is not held yet, so that writing it would destroy the wish.

    A second family is claimed after a move to another space. If a static address was taken out of the spec, writing it
    back would make it a wish again. And an address of a family that the spec wants no more would make the spec invalid.
    """
    families = frozenset(holdings.held)
    is_contrary = not families.issubset(wanted_families(request, frozenset(), families))
    is_serious = any(not each.tolerable for each in holdings.blockers)
    was_named = any(each.requested is Requested.STATIC for each in holdings.held.values())
    is_to_come = not request.static.keys() <= holdings.held.keys()
    is_wish_open = bool(holdings.blockers and request.static) or (is_serious and was_named)
    return is_to_come or is_contrary or is_wish_open


def _may_write_back(facts: Facts, spec: WriteSpec) -> bool:
    """Return whether a spec that another writer changes back again and again is written once more."""
    # Beside another blocker the message alone tells, also after a restart.
    conditions = facts.floating_ip.status.conditions
    is_stopped = any(SPEC_REVERTED.message in each.message for each in conditions)
    is_other = spec.ipaddress != facts.written  # a new wish ends the quarrel
    return not is_stopped and (is_other or facts.write_backs < MAX_WRITE_BACKS)


def _write_status(facts: Facts, holdings: Holdings, blockers: tuple[Blocker, ...]) -> WriteStatus | None:
    wanted = build_status(facts, holdings.held, blockers)
    return WriteStatus(wanted) if wanted != facts.floating_ip.status else None


def _release(
    facts: Facts, holdings: Holdings, blockers: tuple[Blocker, ...]
) -> ReadAgain | Release | Wait | None:
    """Release what is held beyond the holdings, now that the status names none of it."""
    kept = {each.name for each in holdings.held.values()}
    surplus = [each for each in facts.held if each.name not in kept]
    if not surplus:
        return None
    if not facts.is_live:
        return ReadAgain()
    first = min(surplus, key=lambda each: facts.unsafe_for[each.name])
    seconds = facts.unsafe_for[first.name]
    return Release(first) if seconds <= 0 else Wait(blockers=blockers, seconds=seconds)
