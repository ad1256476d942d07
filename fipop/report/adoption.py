"""What fipop will do with the objects of kube-fip-operator, from a rehearsal of its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fipop.api.conditions import Condition, ConditionType
from fipop.api.models import FloatingIP
from fipop.ipam.addresses import Address, format_address
from fipop.operator.addresses.ownership import read_addresses
from fipop.operator.rehearsal import Rehearsed
from fipop.report.facts import Facts
from fipop.report.guest_words import GuestWords
from fipop.report.picture import Picture
from fipop.report.ranges import report_ranges


class Fate(StrEnum):
    """What becomes of a floating IP."""

    ADOPTED = "adopted"
    """It keeps the address that it names."""
    OUT_OF_RANGE = "out-of-range"
    """It keeps its address, though its range does not give that one out."""
    DUPLICATE = "duplicate"
    """Another, older one has its address."""
    REFUSED = "refused"
    """It does not get what it names, for another reason."""
    NEW = "new-address"
    """It named no address, and gets one."""
    WAITING = "waiting"
    """It has no address, and gets none for now."""
    CREATED = "created"
    """It is made for a guest that had none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPFate:
    """What becomes of one floating IP: `before` is what its spec named, `after` what it holds."""

    namespace: str
    name: str
    cluster: str
    fate: Fate
    before: tuple[str, ...]
    after: tuple[str, ...]
    range: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """A range that gives out less than it says, as an older one has some of its addresses."""

    range: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestFate:
    """What a guest says: the addresses of its ConfigMap that are not (`surplus`) or not yet (`missing`) its own.

    `releases` are those that run kube-vip or its cloud provider there, and are kept.
    """

    guest: str
    cluster: str
    problem: str
    surplus: tuple[str, ...]
    missing: tuple[str, ...]
    releases: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionReport:
    """The whole of it; `asked_guests` tells whether the guests were asked."""

    time: datetime
    asked_guests: bool
    counts: dict[str, int]
    floating_ips: tuple[FloatingIPFate, ...]
    overlaps: tuple[Overlap, ...]
    broken_ranges: tuple[Overlap, ...]
    guests: tuple[GuestFate, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether somebody should look before the switch."""
        troubled = {Fate.DUPLICATE.value, Fate.REFUSED.value, Fate.OUT_OF_RANGE.value}
        return bool(
            self.overlaps
            or self.broken_ranges
            or any(self.counts.get(each) for each in troubled)
            or any(each.problem or each.surplus for each in self.guests)
        )


def report_adoption(
    before: Facts, after: Rehearsed, words: Sequence[GuestWords], *, asked_guests: bool
) -> AdoptionReport:
    """Compare what is with what would be."""
    picture = Picture(
        Facts(
            now=before.now,
            ranges=after.ranges,
            floating_ips=after.floating_ips,
            reservations=after.reservations,
            clusters=before.clusters,
        )
    )
    earlier = {each.meta.key: each for each in before.floating_ips}
    fates = tuple(
        _fate(picture, earlier.get(each.meta.key), each)
        for each in sorted(after.floating_ips, key=lambda each: each.meta.key)
    )
    ranges = report_ranges(picture)
    counts = Counter(each.fate.value for each in fates)
    return AdoptionReport(
        time=before.now,
        asked_guests=asked_guests,
        counts={fate.value: counts[fate.value] for fate in Fate},
        floating_ips=fates,
        overlaps=tuple(Overlap(range=each.name, message=each.conflict) for each in ranges if each.conflict),
        broken_ranges=tuple(
            Overlap(range=each.name, message=each.message)
            for each in ranges
            if not each.ready and not each.draining
        ),
        guests=tuple(_guest(picture, after.floating_ips, each) for each in words),
    )


def _fate(picture: Picture, before: FloatingIP | None, after: FloatingIP) -> FloatingIPFate:
    named = read_addresses(before.ipaddress.split(",")) if before is not None else frozenset()
    if before is not None and before.status.addresses:
        named = read_addresses(before.status.addresses)
    held = read_addresses(after.status.addresses)
    told = _allocated(after.status.conditions)
    reason = told.reason if told is not None else ""
    return FloatingIPFate(
        namespace=after.namespace,
        name=after.name,
        cluster=picture.cluster_of(after.namespace, after.cluster or ""),
        fate=_judge(picture, before, after, named, held, reason),
        before=tuple(format_address(each) for each in sorted(named)),
        after=tuple(format_address(each) for each in sorted(held)),
        range=after.status.range or after.range or "",
        reason=reason,
        message=told.message if told is not None else "",
    )


def _judge(
    picture: Picture,
    before: FloatingIP | None,
    after: FloatingIP,
    named: frozenset[Address],
    held: frozenset[Address],
    reason: str,
) -> Fate:
    if before is None:
        return Fate.CREATED
    if named and named <= held:
        range_name = after.status.range or ""
        ranges = picture.allocations.ranges
        inside = range_name in picture.ranges and all(ranges.has(range_name, each) for each in held)
        return Fate.ADOPTED if inside else Fate.OUT_OF_RANGE
    if named:
        return Fate.DUPLICATE if reason in {"AddressInUse", "AddressQuarantined"} else Fate.REFUSED
    return Fate.NEW if held else Fate.WAITING


def _allocated(conditions: Iterable[Condition]) -> Condition | None:
    return next((each for each in conditions if each.type is ConditionType.ALLOCATED), None)


def _guest(picture: Picture, floating_ips: Iterable[FloatingIP], words: GuestWords) -> GuestFate:
    own = {
        address
        for each in floating_ips
        if each.namespace == words.guest
        for address in read_addresses(each.status.addresses)
    }
    carried = set(words.addresses())
    releases = {
        f"{'/'.join(each.release)} ({', '.join(sorted(role.value for role in each.roles))})"
        for each in words.workloads
        if each.release is not None
    }
    return GuestFate(
        guest=words.guest,
        cluster=picture.cluster_of(words.guest),
        problem=words.problem,
        surplus=tuple(format_address(each) for each in sorted(carried - own)),
        missing=() if words.problem else tuple(format_address(each) for each in sorted(own - carried)),
        releases=tuple(sorted(releases)),
    )
