"""What is right and wrong with an installation, point by point. Pure functions of a snapshot.

`fipop status` shows what is wrong, `fipop check` shows everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from fipop.addresses.status import find_pause
from fipop.api import names
from fipop.api.conditions import Condition, ConditionType, Verdict
from fipop.api.objects import FloatingIP, KubeObject
from fipop.guests.conditions import IN_TRANSIT, LABELS_CHANGE, POOL_IGNORED
from fipop.ipam.addresses import format_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, PROVISIONING_CLUSTERS, Resource
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.addresses import find_having
from fipop.report.fleet import NO_STATUS, FloatingIPReport, GuestSummary
from fipop.report.ranges import NOT_COUNTED, RangeReport
from fipop.report.rendering import count_of
from fipop.report.snapshot import SCHEMA_REVISIONS, Installation, Kind, Snapshot
from fipop.report.values import find_unfitting, list_names
from fipop.rollout.parts import find_cause
from fipop.rollout.plan import Phase, advise_after_stop, describe_change
from fipop.texts import is_label_value, sentence

PENDING_GRACE = timedelta(minutes=5)
"""How long a floating IP may wait for the operator, and an opted-in guest cluster for its floating IP."""
MOST_ALIKE = 5
"""The most findings of one kind that are shown one by one."""
_AWAITED = IN_TRANSIT | {"Paused", "RolloutPending", "RolloutPaused", NOT_COUNTED.reason}
"""Reasons that need no action."""
_COSTS_NO_ADDRESS = frozenset({ConditionType.CONFLICT, ConditionType.DEMAND_MET})
"""Conditions that say nothing against an address that is assigned."""


class Severity(StrEnum):
    """How much something matters. INFO is shown, and needs no action."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"


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
    condition: str = ""
    """The type of the condition that it is about; "" for none."""
    since: datetime | None = None
    """Since when the condition has this status."""

    @property
    def is_wrong(self) -> bool:
        """Whether something should be done about it."""
        return self.severity in (Severity.CRITICAL, Severity.WARNING)

    def to_fields(self) -> dict[str, object]:
        """Return the fields of the JSON of both commands."""
        return {
            "severity": self.severity.value,
            "section": self.subject.section,
            "kind": self.subject.kind,
            "name": self.subject.name,
            "condition": self.condition,
            "reason": self.reason,
            "since": self.since,
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
    reported = tuple(guests)
    for each in reported:
        yield from _judge_guest(snapshot, each)
    lacking = {each.id for each in reported if not each.floating_ips}
    for one in snapshot.inventory.clusters.all():
        if one.cluster_name not in lacking and (found := judge_links(snapshot, one)) is not None:
            yield found


def judge_links(snapshot: Snapshot, cluster: ProvisioningCluster) -> Finding | None:
    """Judge what the operator found wrong with the links of a guest cluster; None if it found nothing."""
    guest_id = cluster.cluster_name
    problem = snapshot.find_problem(guest_id)
    if problem is None:
        return None
    is_young = snapshot.now - cluster.created < PENDING_GRACE
    return point(
        describe_guest(guest_id, snapshot.show_guest(guest_id)),
        Severity.INFO if is_young else Severity.WARNING,
        problem.reason,
        problem.message,
        _kubectl("describe", PROVISIONING_CLUSTERS, cluster),
    )


def _judge_schemas(found: Installation) -> Iterator[Finding]:
    for crd, revision in found.schemas.items():
        needed = SCHEMA_REVISIONS[crd]
        subject = Subject(section=Section.API, kind="CustomResourceDefinition", name=crd)
        if revision is not None and revision >= needed:
            yield point(subject, Severity.OK, "SchemaKnown", f"the CRD has schema revision {revision}")
            continue
        message = "the CRD does not exist"
        advice = "Install fipop, or kubectl apply -f crds/ if it is installed"
        if revision is not None:
            message = f"the CRD has schema revision {revision}: fipop needs {needed}"
            advice = "Install fipop, or restart it: it updates its CRDs"
        yield point(subject, Severity.CRITICAL, "OldSchema", message, advice)


def _judge_operator(snapshot: Snapshot) -> Iterator[Finding]:
    found, namespace = snapshot.installation, snapshot.installation.namespace
    lease = found.leadership
    leads = lease is not None and lease.holds(snapshot.now)
    if snapshot.is_read(Kind.DEPLOYMENT):
        yield _judge_pods(found, leads=leads)
    if (there := found.leader_namespace) not in ("", namespace):
        message = f'fipop in namespace "{there}" leads, and fipop does not work in namespace "{namespace}"'
        advice = f"Use --operator-namespace {there}. If fipop is in both, uninstall one of the two"
        yield point(_OPERATOR, Severity.CRITICAL, "LeadsElsewhere", message, advice)
    elif snapshot.is_read(Kind.LEASE) and lease is not None and leads:
        yield point(_OPERATOR, Severity.OK, "Leading", f"replica {lease.holder} leads")
        for each in lease.waits:
            yield point(
                _OPERATOR, Severity.INFO, "RangeWaiting", each, "Check that the guest cluster answers"
            )
        for one in filter(lambda one: one.more, lease.problems):
            message = (
                f"the operator's Lease has no room for {one.more} more guest clusters with such a problem"
            )
            advice = f"kubectl get events -A --field-selector reason={one.reason}"
            yield point(_OPERATOR, Severity.WARNING, one.reason, message, advice)
    elif snapshot.is_read(Kind.LEASE):
        what = f"Lease {names.LEASE_NAME} in namespace {namespace}"
        message = f"{what} does not exist" if lease is None else f"no pod has renewed {what} in time"
        advice = f"kubectl -n {namespace} logs -l app.kubernetes.io/name=fipop"
        yield point(_OPERATOR, Severity.CRITICAL, "NoLeader", message, advice)
    if found.running_predecessor:
        message = "fipop is idle: kube-fip-operator still has replicas"
        where, _, name = found.running_predecessor.partition("/")
        advice = f"kubectl -n {where} scale deployment {name} --replicas=0"
        yield point(_OPERATOR, Severity.CRITICAL, "PredecessorRuns", message, advice)
    elif snapshot.is_read(Kind.PREDECESSOR):
        yield point(_OPERATOR, Severity.OK, "NoPredecessor", "no replica of kube-fip-operator runs")


def _judge_pods(found: Installation, *, leads: bool) -> Finding:
    wanted, ready = (found.workload.wanted, found.workload.ready) if found.workload is not None else (0, 0)
    message, advice = f"{ready} of {wanted} pods are ready", f"kubectl -n {found.namespace} describe pods"
    if found.workload is None:
        message = f"the Deployment of fipop does not exist in namespace {found.namespace}"
        advice = "Install fipop, or use --operator-namespace with its namespace"
    if wanted and ready >= wanted:
        return point(_OPERATOR, Severity.OK, "PodsReady", message)
    severity = Severity.WARNING if ready else Severity.CRITICAL
    if leads and not wanted:
        severity, message = Severity.INFO, f"{message}, and fipop leads from another place"
    return point(_OPERATOR, severity, "PodsNotReady", message, advice)


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
        yield point(_OPERATOR, Severity.CRITICAL, "BadOption", str(bad), edit)
    for unwise in found.unwise_options:
        yield point(_OPERATOR, Severity.INFO, "UnwiseOption", unwise, edit)


def _judge_overrides(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.is_read(Kind.CLUSTERS):
        for unused in find_unfitting(snapshot.installation.settings, snapshot.list_guest_clusters()):
            advice = "Correct the entry, or label a provisioning Cluster"
            yield point(_OPERATOR, Severity.INFO, "OverrideUnused", unused, advice)


def _judge_rollout(snapshot: Snapshot) -> Iterator[Finding]:
    rollout = snapshot.installation.rollout
    what = f"the rollout of {describe_change(rollout)}" if rollout is not None else ""
    if rollout is not None and rollout.phase is Phase.STOPPED:
        guest_id, why = find_cause(snapshot.installation.rollout_parts)
        cause = f". {snapshot.show_guest(guest_id)} failed: {why}" if guest_id else ""
        message = f"{what} stopped: {rollout.reason}{cause}"
        yield point(_OPERATOR, Severity.WARNING, "RolloutStopped", message, advise_after_stop(rollout))
    if snapshot.installation.rollout_paused:
        message = f"{what} is paused: kubevipRolloutPaused of ConfigMap {names.SETTINGS_CONFIG_MAP} is true"
        yield point(_OPERATOR, Severity.INFO, "RolloutPaused", message, "fipop rollout resume")
    for each in snapshot.inventory.floating_ips.all():
        for one in each.status.conditions:
            is_blocked = one.is_true and one.reason.startswith(("Chart", "ReleaseFailed"))
            if is_blocked and one.type in (ConditionType.KUBE_VIP_READY, ConditionType.CLOUD_PROVIDER_READY):
                advice = "Correct the source of the chart, its credential, or the options kubevipChart…"
                yield point(_OPERATOR, Severity.WARNING, "RolloutBlocked", one.message, advice)
                return


def _judge_ranges(snapshot: Snapshot, ranges: tuple[RangeReport, ...]) -> Iterator[Finding]:
    if not ranges and snapshot.is_read(Kind.RANGES):
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name="")
        message = "guest clusters get no address: no FloatingIPRange exists"
        advice = "Create one: kubectl explain floatingiprange.spec"
        yield point(subject, Severity.INFO, "NoRange", message, advice)
    for each in ranges:
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name=each.range.name)
        found = list(_judge_range(subject, each, snapshot.now))
        if not found:
            free = " and ".join(f"{one.free} of {one.total} {one.family}" for one in each.families)
            found.append(
                point(subject, Severity.OK, each.state, f"{free} addresses are free" if free else "")
            )
        yield from found


def _judge_range(subject: Subject, each: RangeReport, now: datetime) -> Iterator[Finding]:
    edit = f"kubectl edit floatingiprange {each.range.name}"
    for one in each.range.status.conditions:
        if not one.is_good and one.reason != "Draining":
            yield judge_condition(subject, each.range, one, now, edit)
    if each.state in ("Full", "NearlyFull"):
        severity = Severity.CRITICAL if each.state == "Full" else Severity.WARNING
        message, advice = each.lack, edit
        if each.fullest is not None and not each.lack:  # else more of the same would not be assigned either
            family, usage, _, total = each.fullest
            taken = f"{usage.used + usage.quarantined} of {total} {family} addresses"
            message, advice = f"{taken} are used or in quarantine", "Extend spec.iprange, or create a range"
        yield point(subject, severity, each.state, message, advice)
    if each.ready.reason == "HarvesterNotFound":
        yield point(subject, Severity.WARNING, each.ready.reason, each.ready.message, edit)
    for note in each.notes:
        yield point(subject, Severity.INFO, "Ineffective", note, edit)
    capacity = each.range.status.capacity
    if capacity is not None and capacity.out_of_range:
        held = count_of(capacity.out_of_range, "held address is", "held addresses are")
        message, advice = f"{held} outside of the range", f"fipop who {each.range.name}"
        yield point(subject, Severity.WARNING, "OutOfRange", message, advice)


def _judge_addresses(snapshot: Snapshot) -> Iterator[Finding]:
    for use in sorted(each for each in snapshot.inventory.uses() if each.is_held):
        having = sorted(find_having(snapshot, use.space, use.address))
        if len(having) > 1:
            text, owners = format_address(use.address), " and ".join("/".join(each) for each in having)
            guests = frozenset(namespace for namespace, _ in having)
            subject = Subject(section=Section.ADDRESSES, kind="Address", name=text, guests=guests)
            message = f"address {text} has several owners in space {use.space}: {owners}"
            yield point(subject, Severity.CRITICAL, "Duplicate", message, f"fipop who {text}")


def _judge_keys(snapshot: Snapshot) -> Iterator[Finding]:
    inventory = snapshot.inventory
    for section, resource, found in (
        (Section.RANCHER, PROVISIONING_CLUSTERS, inventory.clusters.all()),
        (Section.RANGES, FLOATING_IP_RANGES, inventory.ranges.all()),
        (Section.ADDRESSES, FLOATING_IPS, inventory.floating_ips.all()),
    ):
        for each in found:
            name = "/".join(each.key).strip("/")
            guest = each.cluster_name if isinstance(each, ProvisioningCluster) else each.namespace
            guests = frozenset((guest,)) - {""}
            subject = Subject(section=section, kind=resource.kind, name=name, guests=guests)
            for odd in each.spelling_warnings:
                yield point(subject, Severity.WARNING, "Misspelt", odd, _kubectl("edit", resource, each))
    yield from _judge_misplaced_labels(snapshot)
    yield from _judge_allowed_names(snapshot)


def _judge_misplaced_labels(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield our labels of management Clusters, to which Rancher's pages write those of imported clusters."""
    for cluster in snapshot.inventory.clusters.all():
        management = snapshot.inventory.management.get("", cluster.cluster_name)
        for label, value in management.labels.items() if management is not None else ():
            if cluster.labels.get(label) == value:
                continue
            place = "/".join(cluster.key)
            guests = frozenset((cluster.cluster_name,))
            subject = Subject(section=Section.RANCHER, kind="Cluster", name=place, guests=guests)
            where = f"management Cluster {cluster.cluster_name}"
            message = f"the label {label} is set on {where}, and counts only on {place}"
            written = value if is_label_value(value) else "VALUE"
            advice = f"{_kubectl('label', PROVISIONING_CLUSTERS, cluster)} {label}={written}"
            yield point(subject, Severity.INFO, "LabelIgnored", message, advice)


def _judge_allowed_names(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the display names where the names of provisioning Clusters count."""
    own = {each.name for each in snapshot.inventory.clusters.all()}
    edit = f"kubectl -n {snapshot.installation.namespace} edit configmap {names.SETTINGS_CONFIG_MAP}"
    listed = [(_OPERATOR, *each, edit) for each in list_names(snapshot.installation.settings)]
    for one in snapshot.inventory.ranges.all():
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name=one.name)
        edit = f"kubectl edit floatingiprange {one.name}"
        listed += [(subject, "allowedClusters", name, edit) for name in one.spec.allowed_clusters]
    for subject, where, name, advice in listed:
        if name not in own and (meant := snapshot.find_clusters(name)):
            written = " or ".join(sorted({f'"{each.name}"' for each in meant}))
            why = f"which is not the name of a provisioning Cluster and does not count: write {written}"
            message = f'{where} has "{name}", {why}'
            yield point(subject, Severity.WARNING, "DisplayNameIgnored", message, advice)


def _kubectl(verb: str, resource: Resource, found: KubeObject) -> str:
    where = f" -n {found.namespace}" if found.namespace else ""
    kind = "clusters.provisioning.cattle.io" if resource is PROVISIONING_CLUSTERS else resource.kind.lower()
    return f"kubectl{where} {verb} {kind} {found.name}"


def _judge_guest(snapshot: Snapshot, summary: GuestSummary) -> Iterator[Finding]:
    subject = describe_guest(summary.id, summary.shown)
    if summary.reachable is not None:
        message = f"guest cluster {summary.id} answered the operator's last visit"
        severity, reason = Severity.OK, "Reachable"
        if not summary.reachable:
            message = f"guest cluster {summary.id} did not answer the operator's last visit"
            severity, reason = Severity.CRITICAL, "Unreachable"
        advice = "Check in Rancher that the guest cluster runs and that its agent is connected"
        yield point(subject, severity, reason, message, advice)
    for cluster in (each for each in summary.clusters if each.paused):
        message = f"fipop only reads guest cluster {summary.id}. {find_pause(cluster, ())}"
        advice = f"{_kubectl('annotate', PROVISIONING_CLUSTERS, cluster)} {names.ANNOTATION_PAUSED}-"
        yield point(subject, Severity.INFO, "Paused", message, advice)
    for each in summary.floating_ips:
        yield from (judge_floating_ip(each, one, snapshot.now) for one in (each.ready, *each.wrong))
        named = describe_guest(
            summary.id, summary.shown, kind="FloatingIP", name="/".join(each.floating_ip.key)
        )
        if (unused := each.floating_ip.status.unused) is not None:
            yield point(named, Severity.INFO, "Unused", str(unused))
        for one in each.floating_ip.status.conditions:
            if one.is_true and one.reason in (LABELS_CHANGE, POOL_IGNORED):
                yield replace(point(named, Severity.WARNING, one.reason, one.message), condition=one.type)
    if not summary.floating_ips and snapshot.is_read(Kind.FLOATING_IPS):
        yield judge_lack(snapshot, summary)


def describe_guest(guest_id: str, cluster: str, *, kind: str = "Guest", name: str = "") -> Subject:
    """Return the subject of a guest cluster, or of an object of it, in the section of the guest cluster."""
    shown = cluster or guest_id
    return Subject(section=f"guest {shown}", kind=kind, name=name or shown, guests=frozenset((guest_id,)))


def judge_lack(snapshot: Snapshot, summary: GuestSummary) -> Finding:
    """Judge that a guest cluster that is opted in has no floating IP: kube-vip is not installed there."""
    subject = describe_guest(summary.id, summary.shown)
    message, severity = f"guest cluster {subject.name} is opted in and has no FloatingIP", Severity.WARNING
    options = snapshot.installation
    may_create = options.has_settings and options.settings.may_create_floating_ips
    problem = snapshot.find_problem(summary.id)
    if any(snapshot.now - each.created < PENDING_GRACE or each.is_deleting for each in summary.clusters):
        severity = Severity.INFO
    elif problem is not None:
        severity, message = Severity.CRITICAL, f"{message}: {problem.message.removesuffix('.')}"
    elif any(each.is_imported for each in summary.clusters):
        message += ": no range serves it, or Rancher has not detected its provider yet"
    elif may_create and any(each.wants_floating_ip for each in summary.clusters):
        severity, message = Severity.CRITICAL, f"{message}: no range serves it"
    first = summary.clusters[0]
    message += ". The events of its Cluster show what differs"
    return point(
        subject, severity, "NoFloatingIP", message, _kubectl("describe", PROVISIONING_CLUSTERS, first)
    )


def judge_floating_ip(each: FloatingIPReport, one: Condition, now: datetime) -> Finding:
    """Judge a condition of a floating IP, in the section of its guest cluster."""
    found, name = each.floating_ip, "/".join(each.floating_ip.key)
    if one.type == ConditionType.READY and one.is_good:
        one = replace(one, message=f"the FloatingIP holds {', '.join(found.status.addresses)}")
    subject = describe_guest(found.namespace, each.shown, kind="FloatingIP", name=name)
    return judge_condition(subject, found, one, now)


def judge_condition(
    subject: Subject, found: KubeObject, one: Condition, now: datetime, advice: str = ""
) -> Finding:
    """Judge any condition of any object. Its message has the remedy: only one of an unknown type needs an advice."""
    text = one.message
    if one.type != ConditionType.READY or not text:
        text = ": ".join(filter(None, (f"{one.type} is {one.status}", text)))
    if one.is_good is None:
        advice = "Use the version of fipop that wrote it: this one does not know conditions of this type"
    elif one in (NO_STATUS, NOT_COUNTED):
        advice = "Read the log of the operator"
    judged = point(subject, _grade(found, one, now), one.reason or one.type, text, advice)
    return replace(judged, condition=one.type, since=one.last_transition_time or found.created)


def _grade(found: KubeObject, one: Condition, now: datetime) -> Severity:
    """Return how much a condition matters."""
    if one.is_good is not False:
        return Severity.OK if one.is_good else Severity.INFO
    is_young = now - (one.last_transition_time or found.created) < PENDING_GRACE
    is_open = one.status is Verdict.UNKNOWN
    is_paused = isinstance(found, FloatingIP) and found.paused
    if is_paused or one.reason in _AWAITED or (is_open and is_young):
        return Severity.INFO
    has_address = isinstance(found, FloatingIP) and found.status.addresses
    if one.type in _COSTS_NO_ADDRESS or (has_address and (is_open or one.reason == "GuestNotFound")):
        return Severity.WARNING  # an address is held; no guest cluster gets it yet
    return Severity.CRITICAL
