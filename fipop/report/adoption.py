"""What fipop will do with the objects of kube-fip-operator, from a dry run of its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fipop.addresses.claims import read_addresses
from fipop.addresses.inventory import Inventory
from fipop.api.conditions import ConditionType, find_condition
from fipop.api.objects import FloatingIP
from fipop.ipam.addresses import Address, format_address
from fipop.report.guests import GuestReport
from fipop.report.ranges import report_ranges
from fipop.report.snapshot import Snapshot, Unread

CLUSTER_MISMATCH = "ClusterMismatch"
"""The reason for which the operator writes to no guest cluster: the floating IP names another one."""


class AdoptionResult(StrEnum):
    """What becomes of a floating IP."""

    ADOPTED = "adopted"
    """It keeps the address that it names."""
    OUT_OF_RANGE = "out-of-range"
    """It keeps its address, though its range does not assign that one."""
    DUPLICATE = "duplicate"
    """Another, older one has its address."""
    REFUSED = "refused"
    """It does not get what it names, for another reason."""
    NEW = "new-address"
    """It named no address, and gets one."""
    WAITING = "waiting"
    """It has no address, and gets none for now."""
    CREATED = "created"
    """It is made for a guest cluster that had none."""


_WELL = (AdoptionResult.ADOPTED, AdoptionResult.NEW, AdoptionResult.CREATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPAdoption:
    """What becomes of one floating IP."""

    namespace: str
    name: str
    cluster: str
    fate: AdoptionResult
    before: tuple[str, ...]
    """What its spec named, or what it held if that is empty."""
    after: tuple[str, ...]
    """What it holds."""
    range: str
    reason: str
    message: str
    refusal: str
    """Why the operator does not write to its guest cluster; "" if it does."""

    @property
    def problem(self) -> str:
        """What to check before the switch; "" for nothing."""
        return self.refusal if self.fate in _WELL else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProblem:
    """A range that cannot be read, or that assigns less than it shows because of an older range."""

    range: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAdoption:
    """What a guest cluster shows."""

    guest: str
    cluster: str
    problem: str
    surplus: tuple[str, ...]
    """The addresses of its ConfigMap that the operator will not assign to it."""
    missing: tuple[str, ...]
    """Those that it will get."""
    releases: tuple[str, ...]
    """The releases that run kube-vip or its cloud provider there, and are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionReport:
    """The whole of it."""

    time: datetime
    asked_guests: bool
    """Whether the guest clusters were read."""
    counts: dict[str, int]
    floating_ips: tuple[FloatingIPAdoption, ...]
    overlaps: tuple[RangeProblem, ...]
    broken_ranges: tuple[RangeProblem, ...]
    guests: tuple[GuestAdoption, ...]
    unread: tuple[Unread, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether something should be checked before the switch."""
        return bool(
            self.overlaps
            or self.broken_ranges
            or any(each.fate not in _WELL or each.refusal for each in self.floating_ips)
            or any(each.problem or each.surplus for each in self.guests)
        )


def report_adoption(
    before: Snapshot, after: Inventory, asked: Sequence[GuestReport], *, asked_guests: bool
) -> AdoptionReport:
    """Compare what is with the inventory of the dry run."""
    snapshot = replace(before, inventory=after)
    results = tuple(
        _report(snapshot, before.inventory.floating_ips.get(*each.key), each)
        for each in after.floating_ips.all()
    )
    ranges = report_ranges(snapshot)
    counts = Counter(each.fate for each in results)
    broken = (each for each in ranges if not each.ready.is_true and not each.range.spec.draining)
    return AdoptionReport(
        time=before.now,
        asked_guests=asked_guests,
        counts={each.value: counts[each] for each in AdoptionResult},
        floating_ips=results,
        overlaps=tuple(
            RangeProblem(range=each.range.name, message=each.conflict) for each in ranges if each.conflict
        ),
        broken_ranges=tuple(
            RangeProblem(range=each.range.name, message=each.ready.message) for each in broken
        ),
        guests=tuple(_report_guest(snapshot, each) for each in asked),
        unread=before.unread,
    )


def _report(snapshot: Snapshot, before: FloatingIP | None, after: FloatingIP) -> FloatingIPAdoption:
    texts = (before.spec.ipaddress.split(","), before.status.addresses) if before is not None else ()
    named = next(filter(None, map(read_addresses, texts)), frozenset())
    held = read_addresses(after.status.addresses)
    allocated = find_condition(after.status.conditions, ConditionType.ALLOCATED)
    reason = allocated.reason if allocated is not None else ""
    return FloatingIPAdoption(
        namespace=after.namespace,
        name=after.name,
        cluster=snapshot.cluster_of(after.namespace, after.cluster or ""),
        fate=_judge(snapshot, after, named, held, reason) if before is not None else AdoptionResult.CREATED,
        before=_format(named),
        after=_format(held),
        range=after.current_range,
        reason=reason,
        message=allocated.message if allocated is not None else "",
        refusal=_find_refusal(after),
    )


def _judge(
    snapshot: Snapshot, after: FloatingIP, named: frozenset[Address], held: frozenset[Address], reason: str
) -> AdoptionResult:
    """Judge what becomes of a floating IP that exists; `reason` is that of its condition Allocated."""
    if named and named <= held:
        found = snapshot.inventory.pools.get(after.status.range or "")
        is_inside = found is not None and all(each in found.pool for each in held)
        return AdoptionResult.ADOPTED if is_inside else AdoptionResult.OUT_OF_RANGE
    if named:
        is_taken = reason in {"AddressInUse", "AddressQuarantined"}
        return AdoptionResult.DUPLICATE if is_taken else AdoptionResult.REFUSED
    return AdoptionResult.NEW if held else AdoptionResult.WAITING


def _find_refusal(found: FloatingIP) -> str:
    configured = find_condition(found.status.conditions, ConditionType.GUEST_CONFIGURED)
    return configured.message if configured is not None and configured.reason == CLUSTER_MISMATCH else ""


def _report_guest(snapshot: Snapshot, asked: GuestReport) -> GuestAdoption:
    own = {
        address
        for each in snapshot.inventory.floating_ips_of(asked.guest)
        if not _find_refusal(each)
        for address in read_addresses(each.status.addresses)
    }
    named = asked.addresses()
    releases = {
        f"{each.namespace}/{each.release} ({'kube-vip' if each.runs_kube_vip else 'kube-vip-cloud-provider'})"
        for each in asked.workloads
        if each.release
    }
    return GuestAdoption(
        guest=asked.guest,
        cluster=snapshot.cluster_of(asked.guest),
        problem=asked.problem,
        surplus=_format(named - own),
        missing=() if asked.problem else _format(own - named),
        releases=tuple(sorted(releases)),
    )


def _format(addresses: frozenset[Address] | set[Address]) -> tuple[str, ...]:
    return tuple(format_address(each) for each in sorted(addresses))
