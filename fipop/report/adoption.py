"""What fipop will do with the objects of kube-fip-operator, from a rehearsal of its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from fipop.api.conditions import Condition, ConditionType
from fipop.api.objects import FloatingIP
from fipop.ipam.addresses import Address, format_address
from fipop.report.guests import GuestReport
from fipop.report.ranges import report_ranges
from fipop.report.snapshot import ClusterSnapshot, Unread
from fipop.state.cache import ClusterCache
from fipop.state.claims import read_addresses

CLUSTER_MISMATCH = "ClusterMismatch"
"""The reason by which the operator writes no guest: the floating IP names another cluster than its namespace's."""


class AdoptionResult(StrEnum):
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
class FloatingIPAdoption:
    """What becomes of one floating IP: `before` is what its spec named, `after` what it holds.

    `refusal` is why the operator does not write its guest, "" if it does.
    """

    namespace: str
    name: str
    cluster: str
    fate: AdoptionResult
    before: tuple[str, ...]
    after: tuple[str, ...]
    range: str
    reason: str
    message: str
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProblem:
    """A range that cannot be read, or that gives less than it says because of an older range."""

    range: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestAdoption:
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
    """The whole of it; `asked_guests` says whether the guests were asked."""

    time: datetime
    asked_guests: bool
    counts: dict[str, int]
    floating_ips: tuple[FloatingIPAdoption, ...]
    overlaps: tuple[RangeProblem, ...]
    broken_ranges: tuple[RangeProblem, ...]
    guests: tuple[GuestAdoption, ...]
    unread: tuple[Unread, ...]

    @property
    def needs_attention(self) -> bool:
        """Whether something should be checked before the switch."""
        results = AdoptionResult
        troubled = (results.DUPLICATE, results.REFUSED, results.OUT_OF_RANGE, results.WAITING)
        return bool(
            self.overlaps
            or self.broken_ranges
            or any(self.counts.get(each.value) for each in troubled)
            or any(each.refusal for each in self.floating_ips)
            or any(each.problem or each.surplus for each in self.guests)
        )


def report_adoption(
    before: ClusterSnapshot, after: ClusterCache, asked: Sequence[GuestReport], *, asked_guests: bool
) -> AdoptionReport:
    """Compare what is with what would be: the cache of the dry run."""
    snapshot = replace(before, cache=after)
    results = tuple(
        _report(snapshot, before.cache.floating_ips.get(*each.key), each) for each in after.floating_ips.all()
    )
    ranges = report_ranges(snapshot)
    counts = Counter(each.fate for each in results)
    return AdoptionReport(
        time=before.now,
        asked_guests=asked_guests,
        counts={each.value: counts[each] for each in AdoptionResult},
        floating_ips=results,
        overlaps=tuple(
            RangeProblem(range=each.name, message=each.conflict) for each in ranges if each.conflict
        ),
        broken_ranges=tuple(
            RangeProblem(range=each.name, message=each.message)
            for each in ranges
            if not each.ready and not each.draining
        ),
        guests=tuple(_report_guest(snapshot, each) for each in asked),
        unread=before.unread,
    )


def _report(snapshot: ClusterSnapshot, before: FloatingIP | None, after: FloatingIP) -> FloatingIPAdoption:
    texts = before.status.addresses or before.spec.ipaddress.split(",") if before is not None else ()
    named = read_addresses(texts)
    held = read_addresses(after.status.addresses)
    allocated = _find_condition(after, ConditionType.ALLOCATED)
    reason = allocated.reason if allocated is not None else ""
    mismatch = _find_mismatch(after)
    return FloatingIPAdoption(
        namespace=after.namespace,
        name=after.name,
        cluster=snapshot.cluster_of(after.namespace, after.cluster or ""),
        fate=_judge(snapshot, before, after, named, held, reason),
        before=tuple(format_address(each) for each in sorted(named)),
        after=tuple(format_address(each) for each in sorted(held)),
        range=after.status.range or after.range or "",
        reason=reason,
        message=allocated.message if allocated is not None else "",
        refusal=mismatch.message if mismatch is not None else "",
    )


def _judge(
    snapshot: ClusterSnapshot,
    before: FloatingIP | None,
    after: FloatingIP,
    named: frozenset[Address],
    held: frozenset[Address],
    reason: str,
) -> AdoptionResult:
    if before is None:
        return AdoptionResult.CREATED
    if named and named <= held:
        found = snapshot.cache.ledger.ranges.get(after.status.range or "")
        inside = found is not None and all(each in found.pool for each in held)
        return AdoptionResult.ADOPTED if inside else AdoptionResult.OUT_OF_RANGE
    if named:
        return (
            AdoptionResult.DUPLICATE
            if reason in {"AddressInUse", "AddressQuarantined"}
            else AdoptionResult.REFUSED
        )
    return AdoptionResult.NEW if held else AdoptionResult.WAITING


def _find_condition(found: FloatingIP, kind: ConditionType) -> Condition | None:
    return next((each for each in found.status.conditions if each.type == kind), None)


def _find_mismatch(found: FloatingIP) -> Condition | None:
    """Return the condition by which the operator refuses to write the guest of a floating IP."""
    configured = _find_condition(found, ConditionType.GUEST_CONFIGURED)
    return configured if configured is not None and configured.reason == CLUSTER_MISMATCH else None


def _report_guest(snapshot: ClusterSnapshot, asked: GuestReport) -> GuestAdoption:
    own = {
        address
        for each in snapshot.cache.floating_ips_of(asked.guest)
        if _find_mismatch(each) is None
        for address in read_addresses(each.status.addresses)
    }
    carried = set(asked.addresses())
    releases = {
        f"{each.namespace}/{each.release} ({'kube-vip' if each.runs_kube_vip else 'kube-vip-cloud-provider'})"
        for each in asked.workloads
        if each.release
    }
    return GuestAdoption(
        guest=asked.guest,
        cluster=snapshot.cluster_of(asked.guest),
        problem=asked.problem,
        surplus=tuple(format_address(each) for each in sorted(carried - own)),
        missing=() if asked.problem else tuple(format_address(each) for each in sorted(own - carried)),
        releases=tuple(sorted(releases)),
    )
