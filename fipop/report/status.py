"""The state of an installation: ranges, floating IPs, guests, the operator, a rollout, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fipop.api import names
from fipop.api.conditions import Verdict
from fipop.report.addresses import find_namespaces
from fipop.report.findings import BIND_VIEWER, Finding, Severity, Subject, judge, point
from fipop.report.fleet import FloatingIPReport, GuestSummary, report_floating_ips, report_guests
from fipop.report.ranges import RangeReport, report_ranges
from fipop.report.snapshot import SCHEMA_REVISIONS, ClusterSnapshot, Kind

Counts = Mapping[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """All of an installation at one moment; `problems` is what is not as it should be, the worst first."""

    snapshot: ClusterSnapshot
    ranges: tuple[RangeReport, ...]
    floating_ips: tuple[FloatingIPReport, ...]
    guests: tuple[GuestSummary, ...]
    problems: tuple[Finding, ...]
    only: frozenset[str] | None = None
    """The guests that `problems` are about; None for all."""

    @property
    def healthy(self) -> bool | None:
        """Whether nothing should be done; None if nothing wrong is known, and not everything could be read."""
        if any(each.is_wrong for each in self.problems):
            return False
        return None if self.snapshot.unread else True

    def count_floating_ips(self) -> Counts:
        """Count floating IPs by the status of their condition Ready; None for what could not be read."""
        found = Counter(each.ready.status for each in self.floating_ips)
        parts = {"ready": Verdict.TRUE, "notReady": Verdict.FALSE, "unknown": Verdict.UNKNOWN}
        counts = {"inAll": len(self.floating_ips), **{name: found[each] for name, each in parts.items()}}
        return counts if self.snapshot.is_read(Kind.FLOATING_IPS) else dict.fromkeys(counts)

    def count_guests(self) -> Counts:
        """Count guests by whether they can be reached; None for what could not be read."""
        found = Counter(each.reachable for each in self.guests)
        parts = {"reachable": True, "unreachable": False, "unknown": None}
        counts = {"inAll": len(self.guests), **{name: found[each] for name, each in parts.items()}}
        is_read = self.snapshot.is_read(Kind.FLOATING_IPS, Kind.CLUSTERS)
        return counts if is_read else dict.fromkeys(counts)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields of the JSON."""
        return {
            "time": self.snapshot.now,
            "healthy": self.healthy,
            "operator": _render_operator(self.snapshot),
            "ranges": self.ranges,
            "floatingIps": self.count_floating_ips(),
            "guests": self.count_guests(),
            "rollout": self._render_rollout(),
            "problems": self.problems,
            "unread": self.snapshot.unread,
        }

    def _render_rollout(self) -> dict[str, Any] | None:
        state = self.snapshot.installation.rollout
        if state is None:
            return None
        return {
            "target": state.target.name,
            "charts": {role.value: chart.version for role, chart in state.target.charts.items()},
            "stable": state.stable.name if state.stable is not None else "",
            "phase": state.phase,
            "paused": self.snapshot.installation.rollout_paused,
            "guests": self.snapshot.installation.rollout_guests,
            "reason": state.reason,
        }


def report_status(snapshot: ClusterSnapshot, namespace: str | None = None) -> StatusReport:
    """Report the whole; of one guest, by its id or cluster, only what is wrong there."""
    ranges, floating_ips = report_ranges(snapshot), report_floating_ips(snapshot)
    guests = report_guests(snapshot, floating_ips)
    only = frozenset(find_namespaces(snapshot, namespace)) if namespace is not None else None
    problems = [
        each
        for each in judge(snapshot, ranges, guests)
        if each.severity is not Severity.OK and (only is None or only & each.subject.guests)
    ]
    if namespace is not None and not only:
        problems = [_judge_missing(snapshot, namespace)]
    order = list(Severity)
    problems.sort(key=lambda each: (order.index(each.severity), each.subject.kind, each.subject.name))
    return StatusReport(
        snapshot=snapshot,
        ranges=ranges,
        floating_ips=floating_ips,
        guests=guests,
        problems=tuple(problems),
        only=only,
    )


def _judge_missing(snapshot: ClusterSnapshot, name: str) -> Finding:
    subject = Subject(section=f"guest {name}", kind="Guest", name=name)
    if not snapshot.is_read(Kind.CLUSTERS, Kind.FLOATING_IPS):
        message = "the guest cluster is not known: not all clusters and floating IPs could be read"
        return point(subject, Severity.INFO, "Unknown", message, BIND_VIEWER)
    message = "no guest cluster has this id or name"
    return point(subject, Severity.WARNING, "NotFound", message, "kubectl get fip --all-namespaces")


def _render_operator(snapshot: ClusterSnapshot) -> dict[str, Any]:
    found, now = snapshot.installation, snapshot.now
    lease, workload = found.leadership, found.workload
    is_predecessor_read = not any(each.what == names.PREDECESSOR_DEPLOYMENT for each in snapshot.unread)
    are_options_read = found.has_settings is not None
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
        "badOptions": found.bad_options if are_options_read else None,
        "unwiseOptions": found.unwise_options if are_options_read else None,
    }
