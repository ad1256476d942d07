"""The state of an installation: ranges, floating IPs, guests, the operator, a rollout, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fipop.api import names
from fipop.api.conditions import Verdict
from fipop.report.addresses import find_namespaces
from fipop.report.findings import BIND_VIEWER, Finding, Severity, Subject, by_section, judge, point
from fipop.report.fleet import FloatingIPReport, GuestSummary, report_floating_ips, report_guests
from fipop.report.ranges import RangeReport, report_ranges
from fipop.report.snapshot import SCHEMA_REVISIONS, Kind, Snapshot

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
    message = "no guest cluster has this id or name"
    return point(subject, Severity.WARNING, "NotFound", message, "Run fipop status -o wide to see all")


def _render_operator(snapshot: Snapshot) -> dict[str, Any]:
    found, now = snapshot.installation, snapshot.now
    lease, workload = found.leadership, found.workload
    is_predecessor_read = not any(each.what == names.PREDECESSOR_DEPLOYMENT for each in snapshot.unread)
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
        "predecessorRuns": found.predecessor_runs if is_predecessor_read else None,
        "badOptions": found.bad_options if found.has_settings is not None else None,
        "unwiseOptions": found.unwise_options if found.has_settings is not None else None,
    }
