"""Floating IPs and guests as a list, and what is wrong with them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.models import EPOCH, FloatingIP, ReleaseStatus
from fipop.report.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatingIPReport:
    """One floating IP; `ready` is the status of its condition Ready, `since` when that changed last."""

    namespace: str
    name: str
    cluster: str
    addresses: tuple[str, ...]
    asked_for: str
    range: str
    space: str
    ready: str
    reason: str
    message: str
    since: datetime | None
    created: datetime
    paused: bool
    guest_reachable: bool | None
    conditions: tuple[Condition, ...]
    releases: tuple[ReleaseStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestReport:
    """One guest with what is known of it; `reachable` None: no floating IP of it says."""

    id: str
    cluster: str
    workspace: str
    opted_in: bool
    reachable: bool | None
    floating_ips: int
    addresses: tuple[str, ...]
    ready: str
    reason: str
    message: str
    releases: tuple[ReleaseStatus, ...]


def report_floating_ips(picture: Picture) -> tuple[FloatingIPReport, ...]:
    """Report all floating IPs, by namespace and name."""
    return tuple(
        _report(picture, each) for each in sorted(picture.facts.floating_ips, key=lambda each: each.meta.key)
    )


def report_guests(
    picture: Picture, floating_ips: tuple[FloatingIPReport, ...] | None = None
) -> tuple[GuestReport, ...]:
    """Report all guests that have floating IPs or are opted in, by cluster and id.

    `floating_ips` is what `report_floating_ips` gave, where the caller has it.
    """
    clusters = {each.cluster_name: each for each in picture.facts.clusters if each.cluster_name}
    by_namespace: dict[str, list[FloatingIPReport]] = defaultdict(list)
    for each in floating_ips if floating_ips is not None else report_floating_ips(picture):
        by_namespace[each.namespace].append(each)
    ids = set(by_namespace) | {guest for guest, each in clusters.items() if each.opted_in}
    reports = []
    for guest in ids:
        cluster, own = clusters.get(guest), by_namespace.get(guest, [])
        worst = max(own, key=lambda each: _WORSE[each.ready], default=None)
        told = [each.guest_reachable for each in own if each.guest_reachable is not None]
        reports.append(
            GuestReport(
                id=guest,
                cluster=cluster.name if cluster is not None else picture.cluster_of(guest),
                workspace=cluster.namespace if cluster is not None else "",
                opted_in=cluster.opted_in if cluster is not None else False,
                reachable=all(told) if told else None,
                floating_ips=len(own),
                addresses=tuple(address for each in own for address in each.addresses),
                ready=worst.ready if worst is not None else Verdict.UNKNOWN.value,
                reason=worst.reason if worst is not None else "NoFloatingIP",
                message=worst.message if worst is not None else "it has no floating IP",
                releases=next((each.releases for each in own if each.releases), ()),
            )
        )
    return tuple(sorted(reports, key=lambda each: (each.cluster, each.id)))


_WORSE = {Verdict.TRUE.value: 0, Verdict.UNKNOWN.value: 1, Verdict.FALSE.value: 2}


def _report(picture: Picture, found: FloatingIP) -> FloatingIPReport:
    status = found.status
    ready = next((each for each in status.conditions if each.type is ConditionType.READY), None)
    return FloatingIPReport(
        namespace=found.namespace,
        name=found.name,
        cluster=picture.cluster_of(found.namespace, found.cluster or ""),
        addresses=status.addresses,
        asked_for=found.ipaddress,
        range=status.range or found.range or "",
        space=status.address_space or "",
        ready=ready.verdict.value if ready is not None else Verdict.UNKNOWN.value,
        reason=ready.reason if ready is not None else "NoStatus",
        message=ready.message if ready is not None else "the operator has not looked at it yet",
        since=ready.since if ready is not None else None,
        created=found.meta.created if found.meta.created != EPOCH else picture.facts.now,
        paused=found.paused,
        guest_reachable=status.guest.reachable if status.guest is not None else None,
        conditions=status.conditions,
        releases=status.guest.releases if status.guest is not None else (),
    )


# What is wrong


class Severity(StrEnum):
    """How much something matters; what is INFO is told, and wrong with nobody."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it should be: with what, in a word, in a sentence, and what to do."""

    severity: Severity
    kind: str
    name: str
    reason: str
    message: str
    advice: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether somebody should do something about it."""
        return self.severity is not Severity.INFO
