"""What is so with an installation, point by point: `fipop status` shows what is wrong of it, `fipop check` everything.

Pure functions on a snapshot, and on what guests themselves showed if they were asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from fipop.api import names
from fipop.api.conditions import ConditionType, Verdict
from fipop.ipam.addresses import Address, format_address
from fipop.kube.resources import FLOATING_IP_RANGES, FLOATING_IPS, PROVISIONING_CLUSTERS
from fipop.operator.rollout.plan import Phase
from fipop.rancher.objects import ProvisioningCluster
from fipop.report.addresses import find_having
from fipop.report.fleet import FloatingIPReport, GuestSummary
from fipop.report.guests import GuestReport
from fipop.report.ranges import RangeReport
from fipop.report.snapshot import SCHEMA_REVISIONS, ClusterSnapshot, Installation, Kind, read_address
from fipop.texts import sentence

PENDING_GRACE = timedelta(minutes=5)
"""For so long a floating IP may wait for its guest before that is called wrong."""


class Severity(StrEnum):
    """How much something matters. INFO is shown, and wrong for nobody."""

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
    CHARTS = "charts"
    RANGES = "ranges"
    ADDRESSES = "addresses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a finding speaks of; `guests` are the namespaces of the guests that it concerns."""

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


BIND_VIEWER = "Bind the ClusterRole fipop-viewer to yourself"
_OPERATOR = Subject(section=Section.OPERATOR, kind="Operator", name="fipop")


def judge(
    snapshot: ClusterSnapshot,
    ranges: Iterable[RangeReport],
    guests: Iterable[GuestSummary],
    asked: Mapping[str, GuestReport] = MappingProxyType({}),
) -> list[Finding]:
    """Judge everything in a snapshot; `asked` are the guests that were asked, by their ids."""
    found = [
        *_judge_schemas(snapshot.installation),
        *_judge_operator(snapshot),
        *_judge_options(snapshot.installation),
        *_judge_rollout(snapshot),
        *_judge_ranges(snapshot, tuple(ranges)),
        *_judge_addresses(snapshot),
        *_judge_keys(snapshot),
    ]
    for each in guests:
        found += _judge_guest(snapshot, each, asked.get(each.id))
    return found


def _judge_schemas(found: Installation) -> Iterator[Finding]:
    for crd, revision in found.schemas.items():
        needed = SCHEMA_REVISIONS[crd]
        subject = Subject(section=Section.API, kind="CustomResourceDefinition", name=crd)
        if revision is not None and revision >= needed:
            yield point(subject, Severity.OK, "SchemaKnown", f"the CRD has schema revision {revision}")
            continue
        message = "the CRD does not exist"
        if revision is not None:
            message = f"the CRD has schema revision {revision}: fipop needs {needed}"
        yield point(subject, Severity.CRITICAL, "OldSchema", message, "Apply the crds/ of this version")


def _judge_operator(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    found, namespace = snapshot.installation, snapshot.installation.namespace
    unread = {each.what for each in snapshot.unread}
    lease = found.leadership
    leads = lease is not None and lease.holds(snapshot.now)
    if "the operator's Deployment" not in unread:
        yield _judge_pods(found, leads=leads)
    if "the operator's Lease" not in unread and lease is not None and leads:
        yield point(_OPERATOR, Severity.OK, "Leading", f"replica {lease.holder} leads")
        for each in lease.waits:
            yield point(
                _OPERATOR, Severity.INFO, "RangeWaiting", each, "Check that the guest cluster answers"
            )
    elif "the operator's Lease" not in unread:
        what = f"Lease {names.LEASE_NAME} in namespace {namespace}"
        message = f"{what} does not exist" if lease is None else f"no pod has renewed {what} in time"
        advice = (
            f"kubectl -n {namespace} logs -l app.kubernetes.io/name=fipop "
            "(for another namespace: --operator-namespace)"
        )
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
        yield point(_OPERATOR, Severity.INFO, "UnwiseOption", unwise, "docs/reference/options.md")


def _judge_rollout(snapshot: ClusterSnapshot) -> Iterator[Finding]:
    rollout = snapshot.installation.rollout
    if rollout is not None and rollout.phase is Phase.STOPPED:
        message = f"the rollout of target {rollout.target.name} stopped: {rollout.reason}"
        yield point(_OPERATOR, Severity.WARNING, "RolloutStopped", message, "docs/how-to/update-kube-vip.md")
    if rollout is not None and snapshot.installation.rollout_paused:
        message = f"the rollout of target {rollout.target.name} is paused: kubevipRolloutPaused is true"
        yield point(_OPERATOR, Severity.INFO, "RolloutPaused", message, "docs/how-to/update-kube-vip.md")
    for each in snapshot.cache.floating_ips.all():
        for one in each.status.conditions:
            is_blocked = one.is_true and one.reason.startswith(("Chart", "ReleaseFailed"))
            if is_blocked and one.type in (ConditionType.KUBE_VIP_READY, ConditionType.CLOUD_PROVIDER_READY):
                yield point(
                    _OPERATOR, Severity.WARNING, "RolloutBlocked", one.message, "docs/how-to/air-gap.md"
                )
                return


def _judge_ranges(snapshot: ClusterSnapshot, ranges: tuple[RangeReport, ...]) -> Iterator[Finding]:
    if not ranges and snapshot.is_read(Kind.RANGES):
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name="")
        message = "guest clusters get no address: no FloatingIPRange exists"
        advice = "Edit examples/range.yaml and apply it"
        yield point(subject, Severity.INFO, "NoRange", message, advice)
    for each in ranges:
        subject = Subject(section=Section.RANGES, kind="FloatingIPRange", name=each.name)
        found = list(_judge_range(subject, each))
        if not found:
            free = f"{each.whole.free} of {each.whole.total} addresses are free" if each.whole else ""
            found.append(point(subject, Severity.OK, each.state, free))
        yield from found


def _judge_range(subject: Subject, each: RangeReport) -> Iterator[Finding]:
    describe = f"kubectl describe floatingiprange {each.name}"
    usage = each.fullest
    if not each.ready and not each.draining:
        yield point(subject, Severity.CRITICAL, each.reason, each.message, describe)
    elif usage is None:
        message = "the usage of the range is not known: not all objects could be read"
        yield point(subject, Severity.INFO, "Unknown", message, BIND_VIEWER)
    elif each.state in ("Full", "NearlyFull"):
        severity = Severity.CRITICAL if each.state == "Full" else Severity.WARNING
        taken = f"{usage.used + usage.quarantined} of {usage.total} {each.family} addresses"
        message, advice = f"{taken} are used or in quarantine", "Extend spec.iprange, or create a range"
        yield point(subject, severity, each.state, message, advice)
    if each.reason == "HarvesterNotFound":
        yield point(subject, Severity.WARNING, each.reason, each.message, describe)
    if each.conflict:
        yield point(subject, Severity.WARNING, "Overlap", each.conflict, describe)
    if each.whole is not None and each.whole.out_of_range:
        message = f"{each.whole.out_of_range} held addresses are outside of the range"
        yield point(subject, Severity.WARNING, "OutOfRange", message, f"fipop who {each.name}")


def _judge_addresses(snapshot: ClusterSnapshot) -> Iterator[Finding]:
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


def _judge_keys(snapshot: ClusterSnapshot) -> Iterator[Finding]:
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
                yield point(
                    subject, Severity.WARNING, "Misspelt", odd, "docs/reference/annotations-and-labels.md"
                )


def _judge_guest(
    snapshot: ClusterSnapshot, summary: GuestSummary, asked: GuestReport | None
) -> Iterator[Finding]:
    name, guests = summary.cluster or summary.id, frozenset((summary.id,))
    subject = Subject(section=f"guest {name}", kind="Guest", name=name, guests=guests)
    yield from _judge_connection(subject, summary, asked)
    carried = asked.addresses() if asked is not None and not asked.problem else None
    for each in summary.floating_ips:
        full_name = f"{each.floating_ip.namespace}/{each.floating_ip.name}"
        about = Subject(section=subject.section, kind="FloatingIP", name=full_name, guests=guests)
        yield _judge_floating_ip(about, each, carried, snapshot.now)
    if not summary.floating_ips and snapshot.is_read(Kind.FLOATING_IPS):
        yield _judge_lack(snapshot, subject, summary.id)
    opted_in = any(each.opted_in for each in snapshot.cache.guest_clusters(summary.id))
    installs = snapshot.installation.settings.kubevip_guest_install.includes(opted_in=opted_in)
    for role, found in asked.programs.items() if asked is not None and installs else ():
        severity = Severity.OK if found.verdict is Verdict.TRUE else Severity.CRITICAL
        advice = f"kubectl -n {summary.id} describe floatingips"
        yield point(subject, severity, found.reason, f"{role}: {found.message}", advice)


def _judge_lack(snapshot: ClusterSnapshot, subject: Subject, guest_id: str) -> Finding:
    """Judge that a guest cluster that is opted in has no floating IP: kube-vip is not installed there."""
    message, severity = f"guest cluster {subject.name} is opted in and has no FloatingIP", Severity.WARNING
    clusters = snapshot.cache.guest_clusters(guest_id)
    if any(snapshot.now - each.created < PENDING_GRACE or each.is_deleting for each in clusters):
        severity = Severity.INFO
    elif any(each.is_imported for each in clusters):
        message += ": no range serves it, or Rancher has not detected its provider yet"
    elif snapshot.installation.settings.may_create_floating_ips:
        is_wanted = any(each.wants_floating_ip for each in clusters)
        severity = Severity.CRITICAL if is_wanted else severity
    return point(subject, severity, "NoFloatingIP", message, "docs/how-to/create-a-range.md")


_FAILED_STEPS = {
    "rights": ("Unread", "Use an account that can get the kubeconfig Secret, or add --no-guests"),
    "kubeconfig": ("KubeconfigUnusable", "docs/concepts/guest-cluster-reconciliation.md"),
    "connection": (
        "Unreachable",
        "Check that the guest cluster runs, and that its agent is connected to Rancher",
    ),
    "objects": ("Unreadable", "Check the rights of the kubeconfig of the guest cluster"),
}


def _judge_connection(
    subject: Subject, summary: GuestSummary, asked: GuestReport | None
) -> Iterator[Finding]:
    if asked is not None and asked.problem:
        reason, advice = _FAILED_STEPS[asked.step]
        is_in_transit = any(each.is_in_transit for each in summary.floating_ips)
        severity = Severity.WARNING if asked.step == "rights" else Severity.CRITICAL
        yield point(subject, Severity.INFO if is_in_transit else severity, reason, asked.problem, advice)
    elif asked is not None:
        yield point(
            subject,
            Severity.OK,
            "Reachable",
            f"the API server of the guest cluster answered: {asked.version}",
        )
    elif summary.reachable is False:
        message = f"guest cluster {summary.id} did not answer the last request of the operator"
        advice = f"fipop check --guest {subject.name}"
        yield point(subject, Severity.WARNING, "Unreachable", message, advice)


def _judge_floating_ip(
    subject: Subject, each: FloatingIPReport, carried: frozenset[Address] | None, now: datetime
) -> Finding:
    """Judge a floating IP; `carried` are the addresses in its guest's ConfigMap, None if those are not known."""
    found, ready = each.floating_ip, each.ready
    held = [address for text in found.status.addresses if (address := read_address(text)) is not None]
    missing = [format_address(one) for one in held if carried is not None and one not in carried]
    severity, reason, message = Severity.WARNING, ready.reason, ready.message
    if _is_waiting(each, now):
        severity = Severity.INFO
    elif missing and ready.reason != "ClusterMismatch":
        severity, reason = Severity.CRITICAL, "NotInGuest"
        message = f"the ConfigMap of the guest cluster does not have {', '.join(missing)} ({ready.reason})"
    elif ready.is_true:
        severity, message = Severity.OK, f"the FloatingIP holds {', '.join(found.status.addresses)}"
    elif not held:
        severity = Severity.CRITICAL
    advice = f"kubectl -n {found.namespace} describe floatingip {found.name}"
    return point(subject, severity, reason, message, advice)


def _is_waiting(each: FloatingIPReport, now: datetime) -> bool:
    """Whether a floating IP is not ready and nobody is at fault: it is paused, or it is new, or Rancher is at work."""
    if each.ready.is_true:
        return False
    is_pending = each.ready.status is Verdict.UNKNOWN
    is_young = now - (each.ready.last_transition_time or each.floating_ip.created) < PENDING_GRACE
    return each.floating_ip.paused or (is_pending and (is_young or each.is_in_transit))
