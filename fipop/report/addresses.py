"""What an address is: who has, asks for and had it. `classify` is the one rule of who, free, maps and web UI."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice

from fipop.addresses.claims import names_address, read_addresses
from fipop.addresses.inventory import OwnerKey
from fipop.api.conditions import Condition, ConditionType, find_condition
from fipop.api.objects import (
    EPOCH,
    FloatingIP,
    FloatingIPRange,
    FloatingIPReservation,
    Requested,
    ServicesStatus,
)
from fipop.ipam.addresses import Address, Family, format_address
from fipop.ipam.errors import IpamError
from fipop.ipam.intervals import AddressSet
from fipop.ipam.ranges import AddressCounts, Range, RangeUsage
from fipop.rancher.objects import show_name
from fipop.report.rendering import moment
from fipop.report.snapshot import Kind, Snapshot, Unread, read_address


class AddressState(StrEnum):
    """What an address of a space is."""

    HELD = "held"
    QUARANTINED = "quarantined"
    NAMED = "named"
    """A floating IP names it, and no reservation has it for that floating IP."""
    REPORTED = "reported"
    """A guest cluster uses it, and no floating IP has it."""
    FREE = "free"
    WITHHELD = "withheld"
    """In a range that does not assign it: excluded, an end of a CIDR, of an older range, or the range is draining."""
    UNKNOWN = "unknown"
    """In no range, or what takes addresses could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A floating IP that has an address, had it or asks for it; `since` and `until` are None if not known."""

    namespace: str
    name: str
    cluster: str
    since: datetime | None = None
    until: datetime | None = None
    display_name: str = ""
    """What people call the cluster, if that is not its name."""

    @property
    def shown(self) -> str:
        """The name of the cluster, with what people call it; "" if it is not known."""
        return show_name(self.cluster, self.display_name) if self.cluster else ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}".strip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressReport:
    """One address of one space."""

    address: str
    space: str
    range: str
    """Where it counts; "" for none."""
    state: AddressState
    owner: Ownership | None = None
    static: bool = False
    quarantined_until: datetime | None = None
    out_of_range: bool = False
    """Held, though its range does not assign it (any more)."""
    contenders: tuple[Ownership, ...] = ()
    """Other floating IPs whose status names it, and guest clusters that use it."""
    requested_by: tuple[Ownership, ...] = ()
    """Floating IPs whose spec asks for it, and that do not have it."""
    past_owners: tuple[Ownership, ...] = ()
    services: tuple[str, ...] = ()
    """Services in the guest cluster of the owner that use its floating IP, as its status names them."""
    service_count: int = 0
    """How many these are; the status names some of them."""
    announced: Condition | None = None
    """Whether it is announced on the network, as its floating IP says."""
    remark: str = ""
    """What the fields do not say."""

    @property
    def how(self) -> str:
        """Whether the address was asked for by name or chosen; "" if no reservation has it."""
        is_reserved = self.state in (AddressState.HELD, AddressState.QUARANTINED)
        return ("static" if self.static else "chosen") if is_reserved else ""


def classify(snapshot: Snapshot, space: str, address: Address) -> AddressReport:
    """Report what one address of a space is."""
    inventory = snapshot.inventory
    named_by, reservation = inventory.named_by(space, address), inventory.reservation(space, address)
    if reservation is not None:
        found = _find_reserved(snapshot, reservation, named_by)
    elif named_by:
        found = _find_named(snapshot, named_by)
    else:
        found = _find_unowned(snapshot, space, address)
    state, range_name, remark, owners = found
    having = owners if state in (AddressState.HELD, AddressState.NAMED) else owners[1:]
    keys = [(each.namespace, each.name) for each in having]
    asking = (each for each in snapshot.requests_for(space, address) if each.key not in keys)
    holder = inventory.floating_ips.get(*keys[0]) if having is owners else None
    services = (holder.status.services if holder is not None else None) or ServicesStatus()
    unused = holder.status.unused if holder is not None else None
    remark = " ".join(filter(None, (remark, str(unused or ""))))
    spec = reservation.spec if reservation is not None else None
    is_lost = state is AddressState.HELD and not _is_assigned(snapshot, space, range_name, address)
    return AddressReport(
        address=format_address(address),
        space=space,
        range=range_name,
        state=state,
        owner=next(iter(owners), None),
        static=spec is not None and spec.requested is Requested.STATIC,
        quarantined_until=spec.quarantined_until if spec is not None else None,
        out_of_range=is_lost and snapshot.is_read(Kind.RANGES),
        contenders=tuple(owners[1:]),
        requested_by=tuple(_ownership(snapshot, each) for each in asking),
        past_owners=tuple(owners_of(reservation)[1:]) if reservation is not None else (),
        services=services.names,
        service_count=services.count,
        announced=find_condition(holder.status.conditions, ConditionType.ANNOUNCED)
        if holder is not None
        else None,
        remark=remark,
    )


def search(snapshot: Snapshot, asked: str) -> tuple[AddressReport, ...]:
    """Report an address, else every address of the guest clusters, of the Service or of the range of a name."""
    address = read_address(asked)
    if address is not None:
        return report_address(snapshot, address)
    namespaces = find_namespaces(snapshot, asked)
    if namespaces:
        return report_holdings(snapshot, namespaces)
    return report_service(snapshot, asked) or tuple(report_all(snapshot, asked))


def report_service(snapshot: Snapshot, name: str) -> tuple[AddressReport, ...]:
    """Report the addresses of the floating IPs that Services `namespace/name` use, in all guest clusters."""
    found = {
        (snapshot.inventory.space_of(each), address)
        for each in snapshot.inventory.floating_ips.all()
        if each.status.services is not None and name in each.status.services.names
        for address in read_addresses(each.status.addresses)
    }
    return tuple(classify(snapshot, space, address) for space, address in sorted(found))


def report_address(snapshot: Snapshot, address: Address) -> tuple[AddressReport, ...]:
    """Report an address in every space that knows it; in one space as unknown if none does."""
    reports = [classify(snapshot, space, address) for space in snapshot.spaces()]
    known = tuple(each for each in reports if each.state is not AddressState.UNKNOWN)
    return known or tuple(reports[:1])


def report_holdings(snapshot: Snapshot, namespaces: Collection[str]) -> tuple[AddressReport, ...]:
    """Report once every address that floating IPs of guest clusters have, had or ask for, and what else these use."""
    found: set[tuple[str, Address]] = set()
    for read in snapshot.inventory.pools.all():
        reported = snapshot.inventory.find_reported(read.name).items()
        found |= {(read.space, one) for one, users in reported if not users.isdisjoint(namespaces)}
    for each in snapshot.inventory.reservations.all():
        address = read_address(each.spec.address)
        if address is not None and any(owner.namespace in namespaces for owner in owners_of(each)):
            found.add((each.spec.space, address))
    for floating_ip in snapshot.inventory.floating_ips.all():
        if floating_ip.namespace in namespaces:
            texts = (*floating_ip.status.addresses, *floating_ip.spec.ipaddress.split(","))
            found |= {(snapshot.inventory.space_of(floating_ip), one) for one in read_addresses(texts)}
    return tuple(classify(snapshot, space, address) for space, address in sorted(found))


def report_all(snapshot: Snapshot, range_name: str = "") -> Iterator[AddressReport]:
    """Report every address in use, by space and address; of one range or of all."""
    for use in sorted(snapshot.inventory.uses()):
        report = classify(snapshot, use.space, use.address)
        if range_name in ("", report.range):
            yield report


def describe_services(found: AddressReport) -> str:
    """Return the Services that use an address in a cell of a table."""
    more = found.service_count - len(found.services)
    return ",".join([*found.services, *([f"{more} more"] if more > 0 else [])])


def find_having(snapshot: Snapshot, space: str, address: Address) -> set[OwnerKey]:
    """Return the floating IPs that have an address, by a reservation or by their status."""
    named_by, reservation = (
        snapshot.inventory.named_by(space, address),
        snapshot.inventory.reservation(space, address),
    )
    found = {each.key for each in named_by if names_address(each, space, address)}
    return found | {reservation.spec.owner.key} if reservation is not None and reservation.is_held else found


def find_nearest(snapshot: Snapshot, asked: str) -> str:
    """Return the name of an object or Service that is most like one that was not found; "" if none is like it."""
    inventory, floating_ips = snapshot.inventory, snapshot.inventory.floating_ips.all()
    services = (each.status.services or ServicesStatus() for each in floating_ips)
    names = [each.name for each in (*inventory.ranges.all(), *floating_ips)]
    names += snapshot.list_cluster_names()
    names += (name for each in services for name in each.names)
    return next(iter(get_close_matches(asked, dict.fromkeys(names), 1)), "")


def find_namespaces(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    """Find guest clusters by id, cluster, `workspace/cluster`, display name, floating IP or its `namespace/name`.

    What a tenant writes into an annotation counts for nothing. A guest cluster that is gone is found by its past, as
    long as a reservation remembers it.
    """
    found = {each.cluster_name for each in snapshot.find_clusters(name)} - {""}
    found |= {
        each.namespace
        for each in snapshot.inventory.floating_ips.all()
        if name in (each.namespace, each.name, f"{each.namespace}/{each.name}")
        or (each.status.guest is not None and each.status.guest.cluster == name)
    }
    found |= {
        entry.guest
        for each in snapshot.inventory.ranges.all()
        for entry in each.status.reported
        if entry.guest == name
    }
    if not found:
        found = {
            owner.namespace
            for each in snapshot.inventory.reservations.all()
            for owner in owners_of(each)
            if name in (owner.namespace, owner.cluster, owner.display_name, owner.name, str(owner)) and name
        }
    return tuple(sorted(found))


def owners_of(found: FloatingIPReservation) -> list[Ownership]:
    """Return who has and had an address, the latest first."""
    spec = found.spec
    last = None if found.is_held else spec.history[0].released_at if spec.history else spec.since
    first = Ownership(
        namespace=spec.owner.namespace,
        name=spec.owner.name,
        cluster=spec.owner.cluster,
        display_name=spec.owner.display_name,
        since=spec.since if spec.since != EPOCH else None,
        until=last,
    )
    # Once its time has ended, the last owner is also the latest of the history.
    past = spec.history[0 if found.is_held else 1 :]
    return [
        first,
        *(
            Ownership(namespace=each.namespace, name=each.name, cluster=each.cluster, until=each.released_at)
            for each in past
        ),
    ]


def build_log_query(snapshot: Snapshot, asked: str) -> str:
    """Return the query for the operator's log, which alone knows owners whose quarantine has ended."""
    address = read_address(asked)
    if address is not None:
        what = f'address="{format_address(address)}"'
    else:
        found = {snapshot.cluster_of(each, asked) for each in find_namespaces(snapshot, asked)}
        what = " or ".join(f'cluster="{each}"' for each in sorted(found or {asked}))
    place = f'{{namespace="{snapshot.installation.namespace}", container="operator"}}'
    return f'{place} | json | event=~"assigned|released" | {what}'


_Found = tuple[AddressState, str, str, list[Ownership]]
"""The state of an address, its range, a remark, and who has or had it, the owner first."""


def _find_reserved(
    snapshot: Snapshot, found: FloatingIPReservation, named_by: Sequence[FloatingIP]
) -> _Found:
    spec, owner = found.spec, owners_of(found)[0]
    remarks = []
    if snapshot.is_read(Kind.RANGES) and snapshot.inventory.ranges.get("", spec.range) is None:
        remarks.append(f'range "{spec.range}" does not exist')
    if spec.guest_gone_since is not None:
        gone = f"The guest cluster was found gone from Rancher at {moment(spec.guest_gone_since)}"
        remarks.append(f"{gone}. It may run on, so the address waits 24 h longer")
    owner = replace(
        owner,
        cluster=snapshot.cluster_of(owner.namespace, owner.cluster),
        display_name=snapshot.display_name_of(owner.namespace) or owner.display_name,
    )
    if spec.quarantined_until is not None and spec.quarantined_until <= snapshot.now:
        guest = owner.shown or owner.namespace
        until = f"until it can read guest cluster {guest} and does not find the address there"
        remarks.append(f"This time is over: fipop waits {until}")
    others = (_ownership(snapshot, each) for each in named_by if each.key != spec.owner.key)
    state = AddressState.HELD if found.is_held else AddressState.QUARANTINED
    return state, spec.range, ". ".join(filter(None, remarks)), [owner, *others]


def _is_assigned(snapshot: Snapshot, space: str, range_name: str, address: Address) -> bool:
    found = snapshot.inventory.pools.get(range_name)
    return (
        found is not None
        and found.space == space
        and address in snapshot.inventory.pools.assigned(range_name)
    )


def _find_named(snapshot: Snapshot, named_by: Sequence[FloatingIP]) -> _Found:
    remark = "named by a FloatingIP, without a reservation"
    if not snapshot.is_read(Kind.RESERVATIONS):
        remark = "named by a FloatingIP, and the reservations could not be read"
    range_name = named_by[0].current_range
    return AddressState.NAMED, range_name, remark, [_ownership(snapshot, each) for each in named_by]


def _find_unowned(snapshot: Snapshot, space: str, address: Address) -> _Found:
    """Find an address that no floating IP has: in the range that assigns it, else in the oldest that has it."""
    if not (snapshot.is_counted and snapshot.is_read(Kind.RANGES)):
        return AddressState.UNKNOWN, "", "its state is not known: not all objects could be read", []
    withheld: _Found = AddressState.UNKNOWN, "", "in no range", []
    for found in snapshot.inventory.pools.all():
        if found.space != space:
            continue
        users = sorted(snapshot.inventory.find_reported(found.name).get(address, ()))
        if users:
            guests = [_own(snapshot, each) for each in users]
            remark = "used in a guest cluster, and no FloatingIP has it"
            return AddressState.REPORTED, found.name, remark, guests
        refusal = snapshot.inventory.pools.refusal(found.name, address)
        if refusal is None:
            return AddressState.FREE, found.name, "", []
        if address in found.pool.written and withheld[0] is AddressState.UNKNOWN:
            withheld = AddressState.WITHHELD, found.name, str(refusal), []
    return withheld


def _ownership(snapshot: Snapshot, found: FloatingIP) -> Ownership:
    return _own(snapshot, found.namespace, found.name)


def _own(snapshot: Snapshot, namespace: str, name: str = "") -> Ownership:
    cluster, display_name = snapshot.cluster_of(namespace), snapshot.display_name_of(namespace)
    return Ownership(namespace=namespace, name=name, cluster=cluster, display_name=display_name)


# Free addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeReport:
    """The next addresses that a range assigns, in its order. Counts are None if not everything could be read."""

    range: str
    space: str
    addresses: tuple[str, ...]
    family: str
    free: int | None
    used: int | None
    quarantined: int | None
    withheld: dict[str, int]
    """The addresses of the range's text that it does not assign, by the reason."""
    other: dict[str, AddressCounts]
    """The usage of the other family, if the range has one."""
    problem: str
    """Why a new guest cluster gets no address; "" if it gets one."""
    unread: tuple[Unread, ...]


def report_free(snapshot: Snapshot, found: FloatingIPRange, family: Family | None, count: int) -> FreeReport:
    """Report the next `count` free addresses of a range; without a family, of IPv4 if the range has any."""
    inventory, name = snapshot.inventory, found.name
    read, counted = inventory.pools.get(name), inventory.count().get(name, RangeUsage())
    chosen = family or min(read.pool.families if read is not None else (), default=Family.IPV4)
    problem, addresses = str(inventory.problems.get(name, "")), list[str]()
    usages = {Family.IPV4: counted.ipv4, Family.IPV6: counted.ipv6}
    if found.spec.draining or found.is_deleting:
        usages = {family: each._replace(free=0) for family, each in usages.items()}
    if not snapshot.is_counted:
        usages, problem = {}, problem or "the free addresses are not known: not all objects could be read"
    elif read is not None:
        following = inventory.next_free(name, chosen)
        problem = str(following) if isinstance(following, IpamError) else ""
        free = inventory.free_addresses(name, chosen) if not problem else ()
        addresses = [format_address(each) for each in islice(free, count)]
    usage = usages.pop(chosen, None)
    return FreeReport(
        range=name,
        space=found.spec.address_space,
        addresses=tuple(addresses),
        family=chosen.label,
        free=usage.free if usage is not None else None,
        used=usage.used if usage is not None else None,
        quarantined=usage.quarantined if usage is not None else None,
        withheld=_count_withheld(read, inventory.pools.assigned(name), chosen) if read is not None else {},
        other={family.label: each for family, each in usages.items() if any(each)},
        problem=problem,
        unread=snapshot.unread,
    )


def _count_withheld(found: Range, assigned: AddressSet, family: Family) -> dict[str, int]:
    pool = found.pool
    addresses = pool.addresses.of(family).count
    counts = {
        "excluded": (pool.written & pool.excluded).of(family).count,
        "at an end of a CIDR, .0 or .255": (pool.written - pool.excluded).of(family).count - addresses,
        "of an older range": addresses - assigned.of(family).count,
    }
    return {why: number for why, number in counts.items() if number}
