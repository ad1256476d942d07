"""The end of the demo as tables."""

from collections.abc import Iterator
from datetime import UTC, datetime

from localfleet.client import Json
from localfleet.demo_services import service_rows
from localfleet.demo_story import Ending
from localfleet.observation import GuestView, addresses_of, find_condition
from localfleet.report import Report

LEGACY_METRICS = (
    "kubefipoperator_fipranges_capacity",
    "kubefipoperator_fipranges_reserved",
    "kubefipoperator_guestcluster_status",
    "kubefipoperator_guestcluster_events",
)


def show(report: Report, ending: Ending, services: dict[str, Json]) -> None:
    """Write all tables."""
    report.table(
        "Ranges",
        ["RANGE", "POOL", "TOTAL", "USED", "FREE", "QUARANTINED", "READY"],
        (_range_row(one) for one in ending.management.ranges.values()),
    )
    report.table(
        "Floating IPs",
        ["NAMESPACE", "NAME", "ADDRESS", "READY", "REASON", "MESSAGE"],
        (_floating_ip_row(one) for one in ending.management.floating_ips.values()),
    )
    report.table(
        "Reservations",
        ["ADDRESS", "RANGE", "OWNER", "CLUSTER", "REQUESTED", "QUARANTINE ENDS IN"],
        (_reservation_row(one) for one in ending.management.reservations.values()),
    )
    report.table(
        "Guests, as fipop sees them",
        ["GUEST", "ID", "REACHABLE", "CONFIGURED", "KUBE-VIP", "CLOUD PROVIDER"],
        _guest_rows(ending),
    )
    report.table(
        "Releases in the guests",
        ["GUEST", "RELEASE", "NAMESPACE", "CHART", "APP", "REVISION", "STATUS"],
        _release_rows(ending),
    )
    report.table("Pods in the guests", ["GUEST", "POD", "NODE", "PHASE", "READY"], _pod_rows(ending))
    report.table("ConfigMap kube-system/kubevip in the guests", ["GUEST", "KEY", "VALUE"], _pool_rows(ending))
    report.table(
        "Services in demo", ["NAMESPACE", "SERVICE", "ADDRESSES", "REASON", "MESSAGE"], service_rows(services)
    )
    report.table("The metrics that dashboards know", ["METRIC", "LABELS", "VALUE"], _metric_rows(ending))


def _range_row(found: Json) -> list[str]:
    capacity = found.get("status", {}).get("capacity") or {}
    counts = (str(capacity.get(field, "")) for field in ("total", "used", "free", "quarantined"))
    ready = find_condition(found, "Ready").get("status", "")
    return [found["metadata"]["name"], found["spec"].get("iprange", ""), *counts, ready]


def _floating_ip_row(found: Json) -> list[str]:
    ready = find_condition(found, "Ready")
    return [
        found["metadata"]["namespace"],
        found["metadata"]["name"],
        ", ".join(addresses_of(found)),
        *(ready.get(field, "") for field in ("status", "reason", "message")),
    ]


def _reservation_row(found: Json) -> list[str]:
    spec = found["spec"]
    owner = spec.get("owner", {})
    return [
        spec["address"],
        spec["range"],
        f"{owner.get('namespace', '')}/{owner.get('name', '')}",
        owner.get("cluster", ""),
        spec["requested"],
        _time_left(spec.get("quarantinedUntil")),
    ]


def _time_left(until: str | None) -> str:
    if until is None:
        return ""
    seconds = (datetime.fromisoformat(until) - datetime.now(UTC)).total_seconds()
    return f"{seconds:.0f} s"


def _guest_rows(ending: Ending) -> Iterator[list[str]]:
    for name in ending.guests:
        found = ending.management.floating_ips.get(f"{name}-kubevip")
        if found is not None:
            guest = found.get("status", {}).get("guest") or {}
            kinds = ("GuestConfigured", "KubeVipReady", "CloudProviderReady")
            findings = (find_condition(found, kind).get("reason", "") for kind in kinds)
            yield [name, guest.get("id", ""), str(guest.get("reachable", "")), *findings]


def _release_rows(ending: Ending) -> Iterator[list[str]]:
    for name, guest in ending.guests.items():
        for one in guest.releases.values():
            yield [name, one.name, one.namespace, one.chart, one.app_version, str(one.revision), one.status]


def _pod_rows(ending: Ending) -> Iterator[list[str]]:
    for name, guest in ending.guests.items():
        for pod in guest.pods:
            ready = find_condition(pod, "Ready").get("status", "")
            spec, status = pod["spec"], pod.get("status", {})
            yield [name, pod["metadata"]["name"], spec.get("nodeName", ""), status.get("phase", ""), ready]


def _pool_rows(ending: Ending) -> Iterator[list[str]]:
    for name, guest in ending.guests.items():
        for key, value in _pools(guest):
            yield [name, key, value]


def _pools(guest: GuestView) -> list[tuple[str, str]]:
    return sorted(guest.pools.items())


def _metric_rows(ending: Ending) -> Iterator[list[str]]:
    for sample in ending.metrics:
        if sample.name in LEGACY_METRICS:
            labels = ", ".join(sample.labels.values())
            yield [sample.name, labels, f"{sample.value:g}"]
