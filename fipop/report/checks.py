"""What an installation needs, point by point: each with a verdict, and where it fails with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from fipop.api import names
from fipop.api.conditions import Verdict
from fipop.guest.helm.charts import wanted_releases
from fipop.guest.helm.releases import build_states
from fipop.guest.release_ownership import Ownership, build_scope, judge_ownership
from fipop.guest.workloads import judge_readiness
from fipop.ipam.addresses import format_address
from fipop.report.facts import SCHEMA_REVISIONS, Facts
from fipop.report.fleet import FloatingIPReport
from fipop.report.guest_words import GuestWords
from fipop.report.picture import read_address
from fipop.report.ranges import RangeReport
from fipop.report.status import NEARLY_FULL_PERCENT, predecessor_runs
from fipop.settings.options import Settings

_TOLD = 3
"""So many releases a message names."""


class CheckVerdict(StrEnum):
    """How a check ended. What needs rights that the reader has not is a warning: nobody knows."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One point of a list: what was looked at, how that is, and what to do where it is not as it should be."""

    section: str
    name: str
    verdict: CheckVerdict
    message: str = ""
    advice: str = ""


API, OPERATOR, RANCHER, CHARTS, RANGES = "kubernetes-api", "operator", "rancher", "charts", "ranges"


def ok(section: str, name: str, message: str = "") -> Check:
    """Give a check that holds."""
    return Check(section=section, name=name, verdict=CheckVerdict.OK, message=message)


def warning(section: str, name: str, message: str, advice: str = "") -> Check:
    """Give a check that is no failure, and should be looked at."""
    return Check(section=section, name=name, verdict=CheckVerdict.WARNING, message=message, advice=advice)


def failed(section: str, name: str, message: str, advice: str) -> Check:
    """Give a check that fails."""
    return Check(section=section, name=name, verdict=CheckVerdict.FAILED, message=message, advice=advice)


def check_rights(facts: Facts) -> Iterator[Check]:
    """Check that the reader may read what the checks need."""
    if not facts.unread:
        yield ok(API, "you may read all that is looked at")
    for each in facts.unread:
        yield warning(
            API, f"{each.what} can be read", each.problem, "bind the ClusterRole fipop-viewer to yourself"
        )


def check_schemas(facts: Facts) -> Iterator[Check]:
    """Check that the CRDs are there, and not older than this program."""
    for crd, needed in SCHEMA_REVISIONS.items():
        name = f"CRD {crd}"
        if crd not in facts.installation.schemas:
            continue
        revision = facts.installation.schemas[crd]
        advice = "kubectl apply -f crds/ of this version"
        if revision is None:
            yield failed(API, name, "is not there", advice)
        elif revision < needed:
            yield failed(API, name, f"has schema revision {revision}, this version has {needed}", advice)
        else:
            yield ok(API, name, f"schema revision {revision}")


def check_operator(facts: Facts) -> Iterator[Check]:
    """Check the operator itself: its pods, leader, options, and that the predecessor is not at work."""
    found, namespace = facts.installation, facts.installation.namespace
    unread = {each.what for each in facts.unread}
    if "the operator's Deployment" not in unread:
        name, advice = "the operator's pods are ready", f"kubectl -n {namespace} describe pods"
        if found.workload is None:
            advice = "helm install fipop, or name its namespace by --operator-namespace"
            yield failed(OPERATOR, name, f"there is no Deployment of it in namespace {namespace}", advice)
        elif not found.workload.wanted and found.leadership is not None and found.leadership.holds(facts.now):
            yield warning(OPERATOR, name, "it is scaled to 0, and leads from elsewhere", advice)
        elif found.workload.ready == 0:
            yield failed(OPERATOR, name, f"0 of {found.workload.wanted} are", advice)
        elif found.workload.ready < found.workload.wanted:
            yield warning(OPERATOR, name, f"{found.workload.ready} of {found.workload.wanted} are", advice)
        else:
            yield ok(OPERATOR, name, f"{found.workload.ready} of {found.workload.wanted}")
    if "the operator's Lease" not in unread:
        name, lease = "one of them leads", found.leadership
        if lease is not None and lease.holds(facts.now):
            yield ok(OPERATOR, name, lease.holder)
        else:
            message = "the Lease is held by nobody who renews it" if lease else "there is no Lease"
            yield failed(
                OPERATOR, name, message, f"kubectl -n {namespace} logs -l app.kubernetes.io/name=fipop"
            )
    if "kube-fip-operator" not in unread:
        name = "kube-fip-operator does not run"
        advice = f"kubectl -n {names.OPERATOR_NAMESPACE} scale deployment kube-fip-operator --replicas=0"
        if predecessor_runs(found):
            yield failed(OPERATOR, name, "it has replicas: fipop waits until it has none", advice)
        else:
            yield ok(OPERATOR, name)
    yield from _check_options(facts)


def _check_options(facts: Facts) -> Iterator[Check]:
    found = facts.installation
    name = f"the options of {names.SETTINGS_CONFIG_MAP} are understood"
    advice = f"kubectl -n {found.namespace} edit configmap {names.SETTINGS_CONFIG_MAP}"
    if found.has_settings is None:
        return
    if not found.has_settings:
        yield failed(OPERATOR, name, "there is no such ConfigMap", "start the operator: it makes one")
        return
    for bad in found.bad_options:
        yield failed(OPERATOR, name, f"{bad.option}: {bad.reason}", advice)
    if not found.bad_options:
        yield ok(OPERATOR, name)
    for unwise in found.unwise_options:
        yield warning(OPERATOR, "the options are wise", unwise, advice)


def check_ranges(ranges: Iterable[RangeReport]) -> Iterator[Check]:
    """Check that the ranges can be read, do not overlap, and have addresses left."""
    found = tuple(ranges)
    if not found:
        advice = "kubectl apply -f examples/range.yaml"
        yield warning(
            RANGES, "there is a floating IP range", "there is none: no guest gets an address", advice
        )
    for each in found:
        name, advice = f"range {each.name}", f"kubectl describe floatingiprange {each.name}"
        if not each.ready and not each.draining:
            yield failed(RANGES, name, each.message, advice)
        elif each.conflict:
            yield failed(RANGES, name, each.conflict, "give each address to one range only")
        elif each.whole.free == 0 and not each.draining:
            yield failed(
                RANGES, name, f"all {each.whole.total} addresses are given out", "widen spec.iprange"
            )
        elif each.percent >= NEARLY_FULL_PERCENT and not each.draining:
            yield warning(RANGES, name, f"{each.percent:g} % are given out", "widen spec.iprange")
        elif each.whole.out_of_range:
            message = f"{each.whole.out_of_range} held addresses are none of its pool any more"
            yield warning(RANGES, name, message, "docs/operating.md")
        else:
            yield ok(RANGES, name, f"{each.whole.free} of {each.whole.total} free")


def check_guest(
    name: str, words: GuestWords, floating_ips: Iterable[FloatingIPReport], *, installs: Settings | None
) -> Iterator[Check]:
    """Check a guest's path: kubeconfig, connection, addresses, ConfigMap, ready pods.

    `installs`: the options by which fipop is to have kube-vip in it, None if it is to have none.
    """
    section = f"guest {name}"
    if words.step == "kubeconfig":
        advice = "docs/guests.md tells which kubeconfigs are taken"
        yield failed(section, "its kubeconfig can be read", words.problem, advice)
        return
    yield ok(section, "its kubeconfig can be read")
    if words.step == "connection":
        advice = "is the guest up, and its agent connected to Rancher?"
        yield failed(section, "its API server answers", words.problem, advice)
        return
    yield ok(section, "its API server answers", words.version)
    if words.step:
        yield failed(section, "its objects can be read", words.problem, "look at the kubeconfig's rights")
        return
    listed = tuple(floating_ips)
    yield from _check_addresses(section, words, listed)
    if installs is not None:
        yield _check_releases(section, words, listed, installs)
        for role in ("kube-vip", "kube-vip-cloud-provider"):
            running = [each for each in words.workloads if role in {one.value for one in each.roles}]
            found = judge_readiness(running)
            if found.ready:
                yield ok(section, f"{role} is ready", found.message)
            else:
                message = found.message if running else "nothing in this guest runs it"
                yield failed(
                    section, f"{role} is ready", message, "kubectl describe its floating IP; helm list"
                )


def _check_releases(
    section: str, words: GuestWords, floating_ips: tuple[FloatingIPReport, ...], settings: Settings
) -> Check:
    name = "no release with the labels of fipop is in another namespace"
    reported = {(one.namespace, one.name) for each in floating_ips for one in each.releases}
    scope, (wanted, _) = build_scope(settings, frozenset(reported)), wanted_releases(settings)
    found = [
        "/".join(key)
        for key, state in build_states(words.releases).items()
        if judge_ownership(state, wanted, scope) is Ownership.FOREIGN
    ]
    if not found:
        return ok(section, name)
    advice = "delete the release, or add its namespace to kubevipReleaseNamespaces if fipop installed it"
    return failed(section, name, f"fipop installs nothing beside {', '.join(found[:_TOLD])}", advice)


def _check_addresses(
    section: str, words: GuestWords, floating_ips: tuple[FloatingIPReport, ...]
) -> Iterator[Check]:
    carried = words.addresses()
    for each in floating_ips:
        name = f"floating IP {each.name}"
        advice = f"kubectl -n {each.namespace} describe floatingip {each.name}"
        if not each.addresses:
            yield failed(section, name, f"{each.reason}: {each.message}", advice)
            continue
        held = [address for text in each.addresses if (address := read_address(text)) is not None]
        missing = [format_address(address) for address in held if address not in carried]
        if missing:
            message = f"{', '.join(missing)} is not in the guest's ConfigMap ({each.reason})"
            yield failed(section, name, message, advice)
        elif each.ready != Verdict.TRUE.value:
            yield warning(section, name, f"{each.reason}: {each.message}", advice)
        else:
            yield ok(section, name, ", ".join(each.addresses))
    if not floating_ips:
        yield warning(section, "it has a floating IP", "it has none", "docs/guests.md")
