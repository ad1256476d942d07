"""Who has an address, who had it, and which a range would give out next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fipop.api.models import EPOCH, FloatingIP, PastOwner, Requested, Reservation
from fipop.ipam.addresses import Address, format_address
from fipop.report.history import tenures
from fipop.report.picture import Picture, read_address


class AddressState(StrEnum):
    """What an address of a space is."""

    HELD = "held"
    QUARANTINED = "quarantined"
    NAMED = "named"
    """A floating IP names it, and no reservation says that it holds it."""
    FREE = "free"
    WITHHELD = "withheld"
    """Of a range, and not given out: excluded, an end of a CIDR, or of an older range."""
    UNKNOWN = "unknown"
    """Of no range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Somebody who has an address, or had it; `since` and `until` are None where they are not known."""

    namespace: str
    name: str
    cluster: str
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressReport:
    """One address of one space.

    `range` is where it counts; "" for none. `out_of_range`: held, though its range would not give it out (any more).
    `contenders` are other floating IPs that name it. `remark` says in words what is not in the fields.
    """

    address: str
    space: str
    range: str
    state: AddressState
    owner: Ownership | None = None
    static: bool = False
    quarantined_until: datetime | None = None
    out_of_range: bool = False
    contenders: tuple[Ownership, ...] = ()
    past_owners: tuple[Ownership, ...] = ()
    remark: str = ""


def report_address(picture: Picture, address: Address) -> tuple[AddressReport, ...]:
    """Report an address in every space that knows it; in all spaces as unknown where none does."""
    reports = [report_one(picture, space, address) for space in picture.spaces()]
    known = tuple(each for each in reports if each.state is not AddressState.UNKNOWN)
    return known or tuple(reports[:1])


def report_holdings(picture: Picture, namespace: str) -> tuple[AddressReport, ...]:
    """Report every address that floating IPs of a namespace have, had last, or name."""
    found: set[tuple[str, Address]] = set()
    for each in picture.facts.reservations:
        address = read_address(each.address)
        if address is not None and each.owner.namespace == namespace:
            found.add((each.space, address))
    for floating_ip in picture.facts.floating_ips:
        if floating_ip.namespace == namespace:
            space = floating_ip.status.address_space or _space_of(picture, floating_ip)
            named = (*floating_ip.status.addresses, *floating_ip.ipaddress.split(","))
            found |= {(space, address) for text in named if (address := read_address(text)) is not None}
    return tuple(report_one(picture, space, address) for space, address in sorted(found))


def report_all(picture: Picture) -> Iterator[AddressReport]:
    """Report every address that somebody has, had last, or names, by space and address."""
    for space in picture.spaces():
        for address in sorted(picture.allocations.ranges.space(space).entries):
            yield report_one(picture, space, address)


def report_contended(picture: Picture) -> Iterator[AddressReport]:
    """Report every address that somebody names who does not hold it."""
    for space in picture.spaces():
        for address, entry in sorted(picture.allocations.ranges.space(space).entries.items()):
            if entry.named_by and entry.named_by.keys() != {entry.holder.owner}:
                yield report_one(picture, space, address)


def find_namespaces(picture: Picture, name: str) -> tuple[str, ...]:
    """Find the guests that somebody may mean: by id, cluster, `workspace/cluster`, floating IP or its `namespace/name`.

    A guest that is gone is found by its past, as long as a reservation remembers it.
    """
    by_cluster = {
        each.cluster_name
        for each in picture.facts.clusters
        if each.cluster_name and name in (each.name, f"{each.namespace}/{each.name}", each.cluster_name)
    }
    by_floating_ip = {
        each.namespace
        for each in picture.facts.floating_ips
        if name in (each.namespace, each.name, f"{each.namespace}/{each.name}", each.cluster)
        or (each.status.guest is not None and each.status.guest.cluster == name)
    }
    if by_cluster or by_floating_ip:
        return tuple(sorted(by_cluster | by_floating_ip))
    former = {
        tenure.namespace
        for each in picture.facts.reservations
        for tenure in tenures(each)
        if name in (tenure.namespace, tenure.cluster, tenure.name, f"{tenure.namespace}/{tenure.name}")
    }
    return tuple(sorted(former))


def report_one(picture: Picture, space: str, address: Address) -> AddressReport:
    """Report an address of one space."""
    text = format_address(address)
    found = picture.by_address.get((space, address))
    claimants = list(picture.claimants(space, address))
    if found is not None:
        return _report_reservation(picture, found, claimants, text)
    if claimants:
        first, *others = claimants
        return AddressReport(
            address=text,
            space=space,
            range=first.status.range or first.range or "",
            state=AddressState.NAMED,
            owner=_ownership(picture, first),
            contenders=tuple(_ownership(picture, each) for each in others),
            remark="named by a floating IP, without a reservation",
        )
    return _report_unowned(picture, space, address, text)


def _report_reservation(
    picture: Picture, found: Reservation, claimants: list[FloatingIP], text: str
) -> AddressReport:
    owner = found.owner
    allocations = picture.allocations.ranges
    address = read_address(text)
    assert address is not None
    is_in_range = found.range in picture.ranges and allocations.has(found.range, address)
    last = None if found.is_held or not found.history else found.history[0].released_at
    return AddressReport(
        address=text,
        space=found.space,
        range=found.range,
        state=AddressState.HELD if found.is_held else AddressState.QUARANTINED,
        owner=Ownership(
            namespace=owner.namespace,
            name=owner.name,
            cluster=picture.cluster_of(owner.namespace, owner.cluster),
            since=found.since if found.since != EPOCH else None,
            until=last,
        ),
        static=found.requested is Requested.STATIC,
        quarantined_until=found.quarantined_until,
        out_of_range=found.is_held and not is_in_range,
        contenders=tuple(_ownership(picture, each) for each in claimants if each.meta.key != owner.key),
        past_owners=tuple(_past(each) for each in (found.history if found.is_held else found.history[1:])),
        remark="" if is_in_range or found.range in picture.ranges else f'there is no range "{found.range}"',
    )


def _report_unowned(picture: Picture, space: str, address: Address, text: str) -> AddressReport:
    """Report an address that nobody has: of the oldest range that has it."""
    withheld: tuple[str, str] | None = None
    for found in sorted(picture.ranges.values(), key=lambda each: (each.meta.created, each.name)):
        if found.address_space != space or picture.allocations.ranges.problem_of(found.name) is not None:
            continue
        refusal = picture.allocations.ranges.why_refused(found.name, address)
        if refusal is None:
            return AddressReport(address=text, space=space, range=found.name, state=AddressState.FREE)
        pool = picture.allocations.ranges.ledger_of(found.name).range(found.name).pool
        if withheld is None and address in pool.written:
            withheld = found.name, str(refusal)
    if withheld is None:
        return AddressReport(
            address=text, space=space, range="", state=AddressState.UNKNOWN, remark="of no range"
        )
    return AddressReport(
        address=text, space=space, range=withheld[0], state=AddressState.WITHHELD, remark=withheld[1]
    )


def _ownership(picture: Picture, floating_ip: FloatingIP) -> Ownership:
    return Ownership(
        namespace=floating_ip.namespace,
        name=floating_ip.name,
        cluster=picture.cluster_of(floating_ip.namespace, floating_ip.cluster or ""),
    )


def _past(each: PastOwner) -> Ownership:
    return Ownership(namespace=each.namespace, name=each.name, cluster=each.cluster, until=each.released_at)


def _space_of(picture: Picture, floating_ip: FloatingIP) -> str:
    found = picture.ranges.get(floating_ip.status.range or floating_ip.range or "")
    return found.address_space if found is not None else "default"
