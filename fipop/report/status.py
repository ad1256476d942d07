"""The state of an installation: ranges, floating IPs, guests, the operator, a rollout, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fipop.api.conditions import ConditionType, Verdict, find_condition
from fipop.api.objects import WaitingStatus
from fipop.report.addresses import find_namespaces
from fipop.report.findings import (
    BIND_VIEWER,
    Finding,
    Severity,
    Subject,
    by_section,
    judge,
    judge_floating_ip,
    judge_lack,
    judge_links,
    point,
)
from fipop.report.fleet import FloatingIPReport, GuestSummary, report_floating_ips, report_guests
from fipop.report.ranges import RangeReport, report_ranges
from fipop.report.rendering import moment
from fipop.report.snapshot import SCHEMA_REVISIONS, Kind, Snapshot
from fipop.texts import suggest

Counts = Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """All of an installation at one moment."""

    snapshot: Snapshot
    ranges: tuple[RangeReport, ...]
    floating_ips: tuple[FloatingIPReport, ...]
    guests: tuple[GuestSummary, ...]
    findings: tuple[Finding, ...]
    """Everything, by section."""
    only: frozenset[str] | None = None
    """The guest clusters that `findings` are about; None for all."""

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is not as it should be, the worst first, and of these what concerns the whole installation."""
        found = (each for each in self.findings if each.severity is not Severity.OK)
        return tuple(sorted(found, key=lambda each: list(Severity).index(each.severity)))

    @property
    def healthy(self) -> bool | None:
        """Whether no action is needed; None if nothing wrong is known, and not everything could be read."""
        if any(each.is_wrong for each in self.findings):
            return False
        return None if self.snapshot.unread else True

    def count_floating_ips(self) -> Counts:
        """Count floating IPs by the status of their condition Ready; None for what could not be read."""
        parts = {"ready": Verdict.TRUE, "notReady": Verdict.FALSE, "unknown": Verdict.UNKNOWN}
        found = (each.ready.status for each in self.floating_ips)
        return _count(found, parts, is_read=self.snapshot.is_read(Kind.FLOATING_IPS))

    def count_guests(self) -> Counts:
        """Count guests by whether they can be reached; None for what could not be read."""
        parts = {"reachable": True, "unreachable": False, "unknown": None}
        is_read = self.snapshot.is_read(Kind.FLOATING_IPS, Kind.CLUSTERS)
        return _count((each.reachable for each in self.guests), parts, is_read=is_read)

    def count_versions(self) -> Mapping[str, Mapping[str, int]]:
        """Count guest clusters by the chart versions that they run, for each chart."""
        releases = [one for guest in self.guests for one in guest.releases if one.status]
        roles = sorted({each.role for each in releases})
        return {
            role: Counter(sorted(each.version for each in releases if each.role == role)) for role in roles
        }

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the JSON."""
        return {
            "time": self.snapshot.now,
            "healthy": self.healthy,
            "operator": _render_operator(self.snapshot),
            "ranges": self.ranges,
            "floatingIps": self.count_floating_ips(),
            "guests": self.count_guests(),
            "rollout": self.snapshot.installation.render_rollout(),
            "versions": self.count_versions(),
            "problems": self.problems,
            "unread": self.snapshot.unread,
        }


def _count(found: Iterable[object], parts: Mapping[str, object], *, is_read: bool) -> Counts:
    numbers = Counter(found)
    counts = {"inAll": numbers.total(), **{name: numbers[each] for name, each in parts.items()}}
    return counts if is_read else dict.fromkeys(counts)


def report_status(snapshot: Snapshot, name: str | None = None) -> StatusReport:
    """Report the whole; of one guest cluster, by its id or name, only what concerns it."""
    ranges, floating_ips = report_ranges(snapshot), report_floating_ips(snapshot)
    guests = report_guests(snapshot, floating_ips)
    only = frozenset(find_namespaces(snapshot, name)) if name is not None else None
    found = [each for each in judge(snapshot, ranges, guests) if only is None or only & each.subject.guests]
    if name is not None and not only:
        found = [_judge_missing(snapshot, name)]
    return StatusReport(
        snapshot=snapshot,
        ranges=ranges,
        floating_ips=floating_ips,
        guests=guests,
        findings=tuple(by_section(found)),
        only=only,
    )


def _judge_missing(snapshot: Snapshot, name: str) -> Finding:
    subject = Subject(section=f"guest {name}", kind="Guest", name=name)
    if not snapshot.is_read(Kind.CLUSTERS, Kind.FLOATING_IPS):
        message = "the guest cluster is not known: not all clusters and floating IPs could be read"
        return point(subject, Severity.INFO, "Unknown", message, BIND_VIEWER)
    like = suggest(name, snapshot.list_cluster_names())
    message = f"no guest cluster has this id or name{like}"
    return point(subject, Severity.WARNING, "NotFound", message, "Run fipop status -o wide to see all")


# What waits


def find_waits(snapshot: Snapshot, asked: str) -> tuple[Finding, ...]:
    """Return what waits for an address in the guest clusters that a name stands for, or as the Service of this name."""
    namespaces, floating_ips = find_namespaces(snapshot, asked), report_floating_ips(snapshot)
    found: list[Finding] = []
    for each in floating_ips:
        is_asked = each.floating_ip.namespace in namespaces
        if is_asked and each.blocker is not None:
            found.append(judge_floating_ip(each, each.blocker, snapshot.now))
        services = _find_waiting_services(snapshot, each)
        found += (one for one in services if is_asked or one.subject.name == asked)
    guests = report_guests(snapshot, floating_ips)
    for guest in guests:
        if guest.id in namespaces and not guest.floating_ips and snapshot.is_read(Kind.FLOATING_IPS):
            found.append(judge_lack(snapshot, guest))
    others = set(namespaces) - {each.id for each in guests}
    for cluster in snapshot.inventory.clusters.all():
        problem = judge_links(snapshot, cluster) if cluster.cluster_name in others else None
        found += [problem] if problem is not None else []
    return tuple(found)


def _find_waiting_services(snapshot: Snapshot, each: FloatingIPReport) -> Iterator[Finding]:
    """Yield the Services that wait, as the status of the oldest floating IP of their guest cluster shows them."""
    status = each.floating_ip.status
    unmet = find_condition(status.conditions, ConditionType.DEMAND_MET)
    if unmet is None or unmet.is_good:
        return
    found, waiting = judge_floating_ip(each, unmet, snapshot.now), status.waiting or WaitingStatus()
    for one in waiting.services:
        subject = replace(found.subject, kind="Service", name=one.name)
        yield replace(found, subject=subject, since=one.since or found.since)
    if len(waiting.services) < max(waiting.count, 1):
        name = f"of guest cluster {each.shown or each.floating_ip.namespace}"
        yield replace(found, subject=replace(found.subject, kind="Another Service", name=name))


def describe_wait(found: Finding) -> str:
    """Return since when and why something waits, as sentences."""
    since = f" since {moment(found.since)}" if found.since is not None else ""
    return f"{found.subject} waits{since}, because of {found.reason}: {found.message}"


def _render_operator(snapshot: Snapshot) -> dict[str, Any]:
    found, now = snapshot.installation, snapshot.now
    lease, workload = found.leadership, found.workload
    return {
        "namespace": found.namespace,
        "leader": lease.holder if lease is not None else "",
        "leading": lease.holds(now) if lease is not None else None,
        "renewed": lease.renewed if lease is not None else None,
        "image": workload.image if workload is not None else "",
        "podsWanted": workload.wanted if workload is not None else None,
        "podsReady": workload.ready if workload is not None else None,
        "schemas": found.schemas,
        "schemasKnown": SCHEMA_REVISIONS,
        "predecessorRuns": bool(found.running_predecessor) if snapshot.is_read(Kind.PREDECESSOR) else None,
        "badOptions": found.bad_options if found.has_settings is not None else None,
        "unwiseOptions": found.unwise_options if found.has_settings is not None else None,
    }
