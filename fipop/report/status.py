"""The state of an installation: ranges, floating IPs, guests, the operator; and all that is wrong, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from fipop.api import names
from fipop.api.conditions import Verdict
from fipop.operator.rollout.progress import Phase
from fipop.report.addresses import AddressState, report_contended
from fipop.report.facts import SCHEMA_REVISIONS, Facts, Installation, Unread
from fipop.report.fleet import (
    FloatingIPReport,
    GuestReport,
    Problem,
    Severity,
    report_floating_ips,
    report_guests,
)
from fipop.report.picture import Picture
from fipop.report.ranges import RangeReport, report_ranges
from fipop.report.rollout import RolloutReport, find_blocked, report_rollout
from fipop.settings.options import BadOption

NEARLY_FULL_PERCENT = 90.0
PENDING_GRACE = timedelta(minutes=5)
"""So long a floating IP may wait for its guest before that is called wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """The operator's own health; None where it could not be read."""

    namespace: str
    leader: str
    leading: bool | None
    renewed: datetime | None
    image: str
    pods_wanted: int | None
    pods_ready: int | None
    schemas: dict[str, int | None]
    schemas_known: dict[str, int]
    predecessor_runs: bool
    bad_options: tuple[BadOption, ...]
    unwise_options: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """All of an installation at one moment."""

    time: datetime
    healthy: bool
    operator: OperatorReport
    ranges: tuple[RangeReport, ...]
    floating_ips: dict[str, int]
    """How many there are `inAll`, and by the status of their condition Ready."""
    guests: dict[str, int]
    rollout: RolloutReport | None
    problems: tuple[Problem, ...]
    unread: tuple[Unread, ...]


def report_status(picture: Picture) -> StatusReport:
    """Report the whole."""
    facts, ranges, floating_ips = picture.facts, report_ranges(picture), report_floating_ips(picture)
    guests = report_guests(picture, floating_ips)
    problems = [
        *_about_operator(picture),
        *_about_ranges(ranges),
        *_about_addresses(picture),
        *_about_floating_ips(floating_ips, facts.now),
        *_about_guests(guests),
    ]
    problems.sort(key=lambda each: (_ORDER.index(each.severity), each.kind, each.name))
    ready = Counter(each.ready for each in floating_ips)
    reachable = Counter(each.reachable for each in guests)
    return StatusReport(
        time=facts.now,
        healthy=not any(each.is_wrong for each in problems),
        operator=_operator(facts),
        ranges=ranges,
        floating_ips={
            "inAll": len(floating_ips),
            "ready": ready[Verdict.TRUE.value],
            "notReady": ready[Verdict.FALSE.value],
            "unknown": ready[Verdict.UNKNOWN.value],
        },
        guests={
            "inAll": len(guests),
            "reachable": reachable[True],
            "unreachable": reachable[False],
            "unknown": reachable[None],
        },
        rollout=report_rollout(facts.installation.rollout),
        problems=tuple(problems),
        unread=facts.unread,
    )


_ORDER = list(Severity)


def _operator(facts: Facts) -> OperatorReport:
    found = facts.installation
    lease, workload = found.leadership, found.workload
    return OperatorReport(
        namespace=found.namespace,
        leader=lease.holder if lease is not None else "",
        leading=lease.holds(facts.now) if lease is not None else None,
        renewed=lease.renewed if lease is not None else None,
        image=workload.image if workload is not None else "",
        pods_wanted=workload.wanted if workload is not None else None,
        pods_ready=workload.ready if workload is not None else None,
        schemas=found.schemas,
        schemas_known=SCHEMA_REVISIONS,
        predecessor_runs=predecessor_runs(found),
        bad_options=found.bad_options,
        unwise_options=found.unwise_options,
    )


def predecessor_runs(found: Installation) -> bool:
    """Whether kube-fip-operator has replicas."""
    return found.predecessor is not None and bool(found.predecessor.wanted or found.predecessor.ready)


def _about_operator(picture: Picture) -> Iterator[Problem]:
    facts, found = picture.facts, picture.facts.installation
    where, unread = f"namespace {found.namespace}", {each.what for each in facts.unread}
    if found.leadership is None and "the operator's Lease" not in unread:
        yield _operator_problem(
            Severity.CRITICAL,
            "NoLeader",
            f"there is no Lease {names.LEASE_NAME} in {where}",
            "look at the operator's pods and logs; is it installed in another namespace (--operator-namespace)?",
        )
    elif found.leadership is not None and not found.leadership.holds(facts.now):
        yield _operator_problem(
            Severity.CRITICAL,
            "NoLeader",
            "nobody has renewed the operator's Lease in its time",
            f"kubectl -n {found.namespace} get pods; kubectl -n {found.namespace} logs deployment/fipop",
        )
    yield from _about_installation(found)
    for bad in found.bad_options:
        yield _operator_problem(
            Severity.WARNING,
            "BadOption",
            f"{bad.option}: {bad.value!r} {bad.reason}" if bad.value else f"{bad.option}: {bad.reason}",
            f"kubectl -n {found.namespace} edit configmap {names.SETTINGS_CONFIG_MAP}",
        )
    if found.rollout is not None and found.rollout.phase is Phase.STOPPED:
        yield _operator_problem(
            Severity.WARNING,
            "RolloutStopped",
            f"target {found.rollout.target}: {found.rollout.reason}",
            "docs/rollouts.md: correct chart or values, or retry",
        )
    if blocked := find_blocked(picture):
        yield _operator_problem(Severity.WARNING, "RolloutBlocked", blocked, "docs/air-gap.md")
    for unwise in found.unwise_options:
        yield _operator_problem(Severity.INFO, "UnwiseOption", unwise, "docs/options.md")


def _about_installation(found: Installation) -> Iterator[Problem]:
    if found.workload is not None and found.workload.ready < found.workload.wanted:
        yield _operator_problem(
            Severity.WARNING,
            "PodsNotReady",
            f"{found.workload.ready} of {found.workload.wanted} pods of the operator are ready",
            f"kubectl -n {found.namespace} describe pods",
        )
    for crd, needed in SCHEMA_REVISIONS.items():
        revision = found.schemas.get(crd, needed)
        if revision is None or revision < needed:
            message = (
                "is not there" if revision is None else f"has revision {revision}, this version has {needed}"
            )
            yield _operator_problem(
                Severity.CRITICAL,
                "OldSchema",
                f"CRD {crd} {message}",
                "kubectl apply -f crds/ of this version",
            )
    if predecessor_runs(found):
        yield _operator_problem(
            Severity.CRITICAL,
            "PredecessorRuns",
            "kube-fip-operator has replicas: fipop does nothing until it has none",
            f"kubectl -n {names.OPERATOR_NAMESPACE} scale deployment kube-fip-operator --replicas=0",
        )


def _operator_problem(severity: Severity, reason: str, message: str, advice: str) -> Problem:
    return Problem(
        severity=severity, kind="Operator", name="fipop", reason=reason, message=message, advice=advice
    )


def _about_ranges(ranges: tuple[RangeReport, ...]) -> Iterator[Problem]:
    if not ranges:
        yield Problem(
            severity=Severity.INFO,
            kind="FloatingIPRange",
            name="",
            reason="NoRange",
            message="there is no floating IP range",
            advice="kubectl apply -f examples/range.yaml",
        )
    for each in ranges:
        advice = f"kubectl describe floatingiprange {each.name}"
        if not each.ready and not each.draining:
            yield _range_problem(each, Severity.CRITICAL, each.reason, each.message, advice)
        elif each.percent >= NEARLY_FULL_PERCENT and not each.draining:
            is_full = each.whole.free == 0
            yield _range_problem(
                each,
                Severity.CRITICAL if is_full else Severity.WARNING,
                "Full" if is_full else "NearlyFull",
                f"{each.percent:g} % of {each.whole.total} addresses are given out or in quarantine",
                "widen spec.iprange, or add a range",
            )
        if each.conflict:
            yield _range_problem(each, Severity.WARNING, "Overlap", each.conflict, advice)
        if each.whole.out_of_range:
            yield _range_problem(
                each,
                Severity.WARNING,
                "OutOfRange",
                f"{each.whole.out_of_range} held addresses are none of its pool any more",
                f"fipop who {each.name}; docs/operating.md",
            )


def _range_problem(each: RangeReport, severity: Severity, reason: str, message: str, advice: str) -> Problem:
    return Problem(
        severity=severity,
        kind="FloatingIPRange",
        name=each.name,
        reason=reason,
        message=message,
        advice=advice,
    )


def _about_addresses(picture: Picture) -> Iterator[Problem]:
    for each in report_contended(picture):
        holders = [
            other for other in each.contenders if _has(picture, other.namespace, other.name, each.address)
        ]
        if each.state is AddressState.QUARANTINED or not holders:
            continue
        others = ", ".join(f"{other.namespace}/{other.name}" for other in holders)
        owner = f"{each.owner.namespace}/{each.owner.name}" if each.owner is not None else "nobody"
        yield Problem(
            severity=Severity.CRITICAL,
            kind="Address",
            name=each.address,
            reason="Duplicate",
            message=f"space {each.space}: {owner} has it, and {others} too",
            advice=f"fipop who {each.address}",
        )


def _has(picture: Picture, namespace: str, name: str, address: str) -> bool:
    found = picture.floating_ips.get((namespace, name))
    return found is not None and address in found.status.addresses


def _about_floating_ips(floating_ips: tuple[FloatingIPReport, ...], now: datetime) -> Iterator[Problem]:
    for each in floating_ips:
        if each.ready == Verdict.TRUE.value:
            continue
        is_new = now - (each.since or each.created) < PENDING_GRACE
        waits = each.paused or (each.ready == Verdict.UNKNOWN.value and is_new)
        yield Problem(
            severity=Severity.INFO if waits else Severity.WARNING,
            kind="FloatingIP",
            name=f"{each.namespace}/{each.name}",
            reason=each.reason,
            message=each.message,
            advice=f"kubectl -n {each.namespace} describe floatingip {each.name}",
        )


def _about_guests(guests: tuple[GuestReport, ...]) -> Iterator[Problem]:
    for each in guests:
        if each.reachable is False:
            yield Problem(
                severity=Severity.WARNING,
                kind="Guest",
                name=each.cluster or each.id,
                reason="Unreachable",
                message=f"guest {each.id} did not answer when it was asked last",
                advice=f"fipop check --guest {each.cluster or each.id}",
            )
