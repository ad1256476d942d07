"""What is right and wrong with an installation, point by point. Pure functions of a snapshot.

`fipop status` shows what is wrong, `fipop check` shows everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fipop.api import names
from fipop.api.conditions import ConditionType, Verdict
from fipop.api.objects import KubeObject
from fipop.guest.findings import IN_TRANSIT
from fipop.ipam.addresses import format_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, PROVISIONING_CLUSTERS, Resource
from fipop.operator.rollout.controller import describe_change
from fipop.operator.rollout.plan import Phase
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.addresses import find_having
from fipop.report.fleet import FloatingIPReport, GuestSummary
from fipop.report.ranges import RangeReport
from fipop.report.rendering import count_of
from fipop.report.snapshot import SCHEMA_REVISIONS, Installation, Kind, Snapshot
from fipop.report.values import find_unfitting
from fipop.texts import sentence

PENDING_GRACE = timedelta(minutes=5)
"""How long a floating IP may wait for the operator, and an opted-in guest cluster for its floating IP."""
MOST_ALIKE = 5
"""The most findings of one kind that are shown one by one."""
_AWAITED = IN_TRANSIT | {"Paused", "RolloutPending", "RolloutPaused"}
"""Reasons of floating IPs that need no action."""


class Severity(StrEnum):
    """How much something matters. INFO is shown, and needs no action."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"

    @property
    def verdict(self) -> str:
        """The word that `fipop check` has for it."""
        return {Severity.CRITICAL: "failed", Severity.OK: "ok"}.get(self, "warning")


class Section(StrEnum):
    """The parts of an installation, in the order in which `fipop check` shows them; then come the guests."""

    API = "kubernetes-api"
    OPERATOR = "operator"
    RANCHER = "rancher"
    RANGES = "ranges"
    ADDRESSES = "addresses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a finding is about; `guests` are the namespaces of the guest clusters that it concerns."""

    section: str
    kind: str
    name: str
    guests: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One point: how a subject is, why in a word and in a sentence, and what to do if it is not as it should be."""

    subject: Subject
    severity: Severity
    reason: str
    message: str = ""
    advice: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether something should be done about it."""
        return self.severity in (Severity.CRITICAL, Severity.WARNING)

    def to_fields(self) -> dict[str, str]:
        """Return the fields of the JSON of both commands."""
        return {
            "severity": self.severity.value,
            "verdict": self.severity.verdict,
            "section": self.subject.section,
            "kind": self.subject.kind,
            "name": self.subject.name,
            "reason": self.reason,
            "message": self.message,
            "advice": self.advice,
        }


def point(subject: Subject, severity: Severity, reason: str, message: str, advice: str = "") -> Finding:
    """Build a finding; what is as it should be needs no advice."""
    return Finding(
        subject=subject,
        severity=severity,
        reason=reason,
        message=sentence(message),
        advice="" if severity is Severity.OK else advice,
    )


def by_section(found: Iterable[Finding]) -> list[Finding]:
    """Order findings by section; guest clusters are the last."""
    order = {name: number for number, name in enumerate((*map(str, Section), ALL_GUESTS))}
    return sorted(found, key=lambda each: order.get(each.subject.section, len(order)))


def summarize(found: Iterable[Finding]) -> list[Finding]:
    """Replace more than MOST_ALIKE findings of guest clusters, of one severity, kind and reason, by one."""
    everything = list(found)
    alike = Counter(map(_kind_of, everything))
    shown: dict[object, Finding] = {}
    for number, each in enumerate(everything):
        is_many = bool(each.subject.guests) and alike[_kind_of(each)] > MOST_ALIKE
        shown.setdefault(
            _kind_of(each) if is_many else number, _count(each, alike[_kind_of(each)]) if is_many else each
        )
    return list(shown.values())


def _kind_of(each: Finding) -> tuple[str, ...]:
    return each.severity, each.subject.kind, each.reason


def _count(first: Finding, number: int) -> Finding:
    subject = first.subject
    kind = "guest clusters" if subject.kind == "Guest" else f"{subject.kind} objects"
    section = subject.section if subject.section in set(Section) else ALL_GUESTS
    name = f"{number} {kind}, such as {subject.name}"
    return replace(first, subject=replace(subject, section=section, kind="", name=name))


ALL_GUESTS = "guest clusters"
BIND_VIEWER = "Bind the ClusterRole fipop-viewer and the Role fipop-viewer to yourself"
STOP_ADVICE = "Correct the options, or repair the guest clusters and run fipop rollout retry"
_OPERATOR = Subject(section=Section.OPERATOR, kind="Operator", name="fipop")


def judge(
    snapshot: Snapshot, ranges: Iterable[RangeReport], guests: Iterable[GuestSummary]
) -> Iterator[Finding]:
    """Judge everything in a snapshot."""
    yield from _judge_schemas(snapshot.installation)
    yield from _judge_operator(snapshot)
    yield from _judge_options(snapshot.installation)
    yield from _judge_overrides(snapshot)
    yield from _judge_rollout(snapshot)
    yield from _judge_ranges(snapshot, tuple(ranges))
    yield from _judge_addresses(snapshot)
    yield from _judge_keys(snapshot)
    for each in guests:
        yield from _judge_guest(snapshot, each)


def _judge_schemas(found: Installation) -> Iterator[Finding]:
    for crd, revision in found.schemas.items():
        needed = SCHEMA_REVISIONS[crd]
        subject = Subject(section=Section.API, kind="CustomResourceDefinition", name=crd)
        if revision is not None and revision >= needed:
            yield point(subject, Severity.OK, "SchemaKnown", f"the CRD has schema revision {revision}")
            continue
        message, advice = (
            "the CRD does not exist",
            "Install fipop, or kubectl apply -f crds/ if it is installed",
        )
        if revision is not None:
            message = f"the CRD has schema revision {revision}: fipop needs {needed}"
            advice = "Install fipop, or restart it: it updates its CRDs"
        yield point(subject, Severity.CRITICAL, "OldSchema", message, advice)


def _judge_operator(snapshot: Snapshot) -> Iterator[Finding]:
    found, namespace = snapshot.installation, snapshot.installation.namespace
    unread = {each.what for each in snapshot.unread}
    lease = found.leadership
    leads = lease is not None and lease.holds(snapshot.now)
    if "the operator's Deployment" not in unread:
        yield _judge_pods(found, leads=leads)
    if (there := found.leader_namespace) not in ("", namespace):
        message = f'fipop in namespace "{there}" leads, and an installation in namespace "{namespace}" waits'
        advice = f"Use --operator-namespace {there}, or uninstall one of the two"
        yield point(_OPERATOR, Severity.CRITICAL, "LeadsElsewhere", message, advice)
    elif "the operator's Lease" not in unread and lease is not None and leads:
        yield point(_OPERATOR, Severity.OK, "Leading", f"replica {lease.holder} leads")
        for each in lease.waits:
            yield point(
                _OPERATOR, Severity.INFO, "RangeWaiting", each, "Check that the guest cluster answers"
            )
    elif "the operator's Lease" not in unread:
        what = f"Lease {names.LEASE_NAME} in namespace {namespace}"
        message = f"{what} does not exist" if lease is None else f"no pod has renewed {what} in time"
        advice = f"kubectl -n {namespace} logs -l app.kubernetes.io/name=fipop"
        yield point(_OPERATOR, Severity.CRITICAL, "NoLeader", message, advice)
    if found.predecessor_runs:
        message = "fipop is idle: kube-fip-operator still has replicas"
        advice = f"kubectl -n {names.OPERATOR_NAMESPACE} scale deployment kube-fip-operator --replicas=0"
        yield point(_OPERATOR, Severity.CRITICAL, "PredecessorRuns", message, advice)
    elif "kube-fip-operator" not in unread:
        yield point(_OPERATOR, Severity.OK, "NoPredecessor", "no replica of kube-fip-operator runs")


def _judge_pods(found: Installation, *, leads: bool) -> Finding:
    wanted, ready = (found.workload.wanted, found.workload.ready) if found.workload is not None else (0, 0)
    message = f"{ready} of {wanted} pods are ready"
    if found.workload is None:
        message = f"the Deployment of fipop does not exist in namespace {found.namespace}"
    if wanted and ready >= wanted:
        return point(_OPERATOR, Severity.OK, "PodsReady", message)
    severity = Severity.WARNING if ready else Severity.CRITICAL
    if leads and not wanted:
        severity, message = Severity.INFO, f"{message}, and fipop leads from another place"
    return point(_OPERATOR, severity, "PodsNotReady", message, f"kubectl -n {found.namespace} describe pods")


def _judge_options(found: Installation) -> Iterator[Finding]:
    if found.has_settings is None:
        return
    config_map = f"ConfigMap {names.SETTINGS_CONFIG_MAP}"
    edit = f"kubectl -n {found.namespace} edit configmap {names.SETTINGS_CONFIG_MAP}"
    if not found.has_settings:
        message = f"{config_map} does not exist in namespace {found.namespace}"
        yield point(
            _OPERATOR, Severity.CRITICAL, "NoOptions", message, "Start the operator, which creates it"
        )
    elif not found.bad_options:
        yield point(_OPERATOR, Severity.OK, "OptionsValid", f"every option of {config_map} is valid")
    for bad in found.bad_options:
        value = f": it is {bad.value!r}" if bad.value else ""
        message = f"option {bad.option} {bad.reason}{value}"
        yield point(_OPERATOR, Severity.CRITICAL, "BadOption", message, edit)
    for unwise in found.unwise_options:
        yield point(_OPERATOR, Severity.INFO, "UnwiseOption", unwise, edit)


def _judge_overrides(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.is_read(Kind.CLUSTERS):
        for unused in find_unfitting(snapshot.installation.settings, snapshot.cache.clusters.all()):
            advice = "Correct the entry, or label a provisioning Cluster"
            yield point(_OPERATOR, Severity.INFO, "OverrideUnused", unused, advice)


def _judge_rollout(snapshot: Snapshot) -> Iterator[Finding]:
    rollout = snapshot.installation.rollout
    what = f"the rollout of {describe_change(rollout)}" if rollout is not None else ""
    if rollout is not None and rollout.phase is Phase.STOPPED:
        message = f"{what} stopped: {rollout.reason}"
        yield point(_OPERATOR, Severity.WARNING, "RolloutStopped", message, STOP_ADVICE)
    if snapshot.installation.rollout_paused:
        message = f"{what} is paused: kubevipRolloutPaused is true"
        yield point(_OPERATOR, Severity.INFO, "RolloutPaused", message, "fipop rollout resume")
    for each in snapshot.cache.floating_ips.all():
        for one in each.status.conditions:
            is_blocked = one.is_true and one.reason.startswith(("Chart", "ReleaseFailed"))
            if is_blocked and one.type in (ConditionType.KUBE_VIP_READY, ConditionType.CLOUD_PROVIDER_READY):
                advice = f"kubectl -n {snapshot.installation.namespace} describe configmap kube-fip-config"
                yield point(_OPERATOR, Severity.WARNING, "RolloutBlocked", one.message, advice)
                return


def _judge_ranges(snapshot: Snapshot, ranges: tuple[RangeReport, ...]) -> Iterator[Finding]:
    if not ranges and snapshot.is_read(Kind.RANGES):
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name="")
        message = "guest clusters get no address: no FloatingIPRange exists"
        advice = "Create one: kubectl explain floatingiprange.spec"
        yield point(subject, Severity.INFO, "NoRange", message, advice)
    lacks_rights = any(each.forbidden for each in snapshot.unread)
    for each in ranges:
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name=each.name)
        found = list(_judge_range(subject, each, BIND_VIEWER if lacks_rights else "Read the checks Unread"))
        if not found:
            free = f"{each.whole.free} of {each.whole.total} addresses are free" if each.whole else ""
            found.append(point(subject, Severity.OK, each.state, free))
        yield from found


def _judge_range(subject: Subject, each: RangeReport, remedy: str) -> Iterator[Finding]:
    describe = f"kubectl describe floatingiprange {each.name}"
    usage = each.fullest
    if not each.ready and not each.draining:
        yield point(subject, Severity.CRITICAL, each.reason, each.message, describe)
    elif usage is None:
        message = "the usage of the range is not known: not all objects could be read"
        yield point(subject, Severity.INFO, "Unknown", message, remedy)
    elif each.state in ("Full", "NearlyFull"):
        severity = Severity.CRITICAL if each.state == "Full" else Severity.WARNING
        taken = f"{usage.used + usage.quarantined} of {usage.total} {each.family} addresses"
        message, advice = f"{taken} are used or in quarantine", "Extend spec.iprange, or create a range"
        if not usage.total:
            message = f"the range assigns no {each.family} address: {each.conflict or 'all are excluded'}"
        yield point(subject, severity, each.state, message, advice)
    if each.reason == "HarvesterNotFound":
        yield point(subject, Severity.WARNING, each.reason, each.message, describe)
    if each.conflict:
        yield point(subject, Severity.WARNING, "Overlap", each.conflict, describe)
    if each.whole is not None and each.whole.out_of_range:
        held = count_of(each.whole.out_of_range, "held address", "held addresses")
        verb = "is" if each.whole.out_of_range == 1 else "are"
        message = f"{held} {verb} outside of the range"
        yield point(subject, Severity.WARNING, "OutOfRange", message, f"fipop who {each.name}")


def _judge_addresses(snapshot: Snapshot) -> Iterator[Finding]:
    for use in sorted(each for each in snapshot.cache.ledger.uses() if each.is_held):
        having = sorted(find_having(snapshot, use.space, use.address))
        if len(having) > 1:
            text, owners = format_address(use.address), " and ".join("/".join(each) for each in having)
            subject = Subject(
                section=Section.ADDRESSES,
                kind="Address",
                name=text,
                guests=frozenset(namespace for namespace, _ in having),
            )
            message = f"address {text} has several owners in space {use.space}: {owners}"
            yield point(subject, Severity.CRITICAL, "Duplicate", message, f"fipop who {text}")


def _judge_keys(snapshot: Snapshot) -> Iterator[Finding]:
    cache = snapshot.cache
    for section, resource, found in (
        (Section.RANCHER, PROVISIONING_CLUSTERS, cache.clusters.all()),
        (Section.RANGES, FLOATING_IP_RANGES, cache.ranges.all()),
        (Section.ADDRESSES, FLOATING_IPS, cache.floating_ips.all()),
    ):
        for each in found:
            name = "/".join(each.key).strip("/")
            guest = each.cluster_name if isinstance(each, ProvisioningCluster) else each.namespace
            guests = frozenset((guest,)) - {""}
            subject = Subject(section=section, kind=resource.kind, name=name, guests=guests)
            for odd in each.oddities:
                yield point(subject, Severity.WARNING, "Misspelt", odd, _kubectl("edit", resource, each))


def _kubectl(verb: str, resource: Resource, found: KubeObject) -> str:
    where = f" -n {found.namespace}" if found.namespace else ""
    kind = "clusters.provisioning.cattle.io" if resource is PROVISIONING_CLUSTERS else resource.kind.lower()
    return f"kubectl{where} {verb} {kind} {found.name}"


def _judge_guest(snapshot: Snapshot, summary: GuestSummary) -> Iterator[Finding]:
    name, guests = summary.cluster or summary.id, frozenset((summary.id,))
    subject = Subject(section=f"guest {name}", kind="Guest", name=name, guests=guests)
    if summary.reachable is not None:
        message = f"guest cluster {summary.id} answered the operator's last visit"
        severity, reason = Severity.OK, "Reachable"
        if not summary.reachable:
            message = f"guest cluster {summary.id} did not answer the operator's last visit"
            severity, reason = Severity.CRITICAL, "Unreachable"
        advice = "Check in Rancher that the guest cluster runs and that its agent is connected"
        yield point(subject, severity, reason, message, advice)
    for each in summary.floating_ips:
        full_name = f"{each.floating_ip.namespace}/{each.floating_ip.name}"
        about = Subject(section=subject.section, kind="FloatingIP", name=full_name, guests=guests)
        yield _judge_floating_ip(about, each, snapshot.now)
    if not summary.floating_ips and snapshot.is_read(Kind.FLOATING_IPS):
        yield _judge_lack(snapshot, subject, summary)


def _judge_lack(snapshot: Snapshot, subject: Subject, summary: GuestSummary) -> Finding:
    """Judge that a guest cluster that is opted in has no floating IP: kube-vip is not installed there."""
    message, severity = f"guest cluster {subject.name} is opted in and has no FloatingIP", Severity.WARNING
    may_create = snapshot.installation.settings.may_create_floating_ips
    if any(snapshot.now - each.created < PENDING_GRACE or each.is_deleting for each in summary.clusters):
        severity = Severity.INFO
    elif any(each.is_imported for each in summary.clusters):
        message += ": no range serves it, or Rancher has not detected its provider yet"
    elif may_create and any(each.wants_floating_ip for each in summary.clusters):
        severity, message = Severity.CRITICAL, f"{message}: no range serves it"
    first = summary.clusters[0]
    advice = f"{_kubectl('describe', PROVISIONING_CLUSTERS, first)} shows in its events what differs"
    return point(subject, severity, "NoFloatingIP", message, advice)


def _judge_floating_ip(subject: Subject, each: FloatingIPReport, now: datetime) -> Finding:
    """Judge a floating IP by its condition Ready, as the operator wrote it."""
    found, ready = each.floating_ip, each.ready
    is_young = now - (ready.last_transition_time or found.created) < PENDING_GRACE
    severity, message = Severity.CRITICAL, ready.message
    if ready.is_true:
        severity, message = Severity.OK, f"the FloatingIP holds {', '.join(found.status.addresses)}"
    elif found.paused or ready.reason in _AWAITED or (ready.status is Verdict.UNKNOWN and is_young):
        severity = Severity.INFO
    elif found.status.addresses and (ready.status is Verdict.UNKNOWN or ready.reason == "GuestNotFound"):
        severity = Severity.WARNING  # the address is held; no guest cluster gets it yet
    return point(subject, severity, ready.reason, message, _kubectl("describe", FLOATING_IPS, found))
