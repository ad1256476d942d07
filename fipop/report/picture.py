"""The allocation index of a report, made from one look at the management cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fipop.api.models import FloatingIP, FloatingIPRange, Reservation
from fipop.errors import IpamError
from fipop.ipam.addresses import Address, parse_address
from fipop.report.facts import Facts
from fipop.state.allocations import AllocationIndex

Key = tuple[str, str]


@dataclass(slots=True)
class Picture:
    """The facts, indexed; the ledgers in it are the report's own."""

    facts: Facts
    allocations: AllocationIndex = field(init=False)
    ranges: Mapping[str, FloatingIPRange] = field(init=False)
    floating_ips: Mapping[Key, FloatingIP] = field(init=False)
    by_address: Mapping[tuple[str, Address], Reservation] = field(init=False)
    by_owner: Mapping[Key, Sequence[Reservation]] = field(init=False)
    cluster_names: Mapping[str, str] = field(init=False)
    """The name of a guest's cluster by the guest's id."""

    def __post_init__(self) -> None:
        facts = self.facts
        self.allocations = AllocationIndex()
        for each in facts.ranges:
            self.allocations.range_changed(None, each)
        for reservation in facts.reservations:
            self.allocations.reservation_changed(None, reservation)
        for floating_ip in facts.floating_ips:
            self.allocations.floating_ip_changed(None, floating_ip)
        self.ranges = {each.name: each for each in facts.ranges}
        self.floating_ips = {each.meta.key: each for each in facts.floating_ips}
        by_owner: dict[Key, list[Reservation]] = defaultdict(list)
        by_address = {}
        for reservation in facts.reservations:
            by_owner[reservation.owner.key].append(reservation)
            address = read_address(reservation.address)
            if address is not None:
                by_address[reservation.space, address] = reservation
        self.by_owner, self.by_address = by_owner, by_address
        self.cluster_names = {
            each.cluster_name: each.name for each in facts.clusters if each.cluster_name
        } | {
            each.namespace: each.status.guest.cluster
            for each in facts.floating_ips
            if each.status.guest is not None and each.status.guest.cluster
        }

    def spaces(self) -> list[str]:
        """Give the names of all address spaces, in their order."""
        named = {each.address_space for each in self.facts.ranges}
        return sorted(named | {each.space for each in self.facts.reservations})

    def claimants(self, space: str, address: Address) -> Iterator[FloatingIP]:
        """Give the floating IPs whose status or, without one, spec names an address, by their names."""
        entry = self.allocations.ranges.space(space).entries.get(address)
        for key in sorted(entry.named_by) if entry is not None else ():
            found = self.floating_ips.get(key)
            if found is not None:
                yield found

    def cluster_of(self, namespace: str, fallback: str = "") -> str:
        """Give the name of the cluster whose guest has this namespace."""
        return self.cluster_names.get(namespace) or fallback


def read_address(text: str) -> Address | None:
    """Read an address; None where it is none."""
    try:
        return parse_address(text)
    except IpamError:
        return None
