"""What the operator counts as it happens: counters and histograms of prometheus-client, used where it happens."""

from __future__ import annotations

from enum import StrEnum

from prometheus_client import Counter, Gauge, Histogram

from fipop.metrics.gauges import WORK_BUCKETS, build_registry, clean_label

QUEUE_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60, 300)
GUEST_TARGET = "guest"

REGISTRY = build_registry()
"""Everything that is counted in this process."""

QUEUE_WAIT_SECONDS = Histogram(
    "fipop_queue_wait_seconds",
    "Time that keys waited in the work queue.",
    ("queue",),
    buckets=QUEUE_BUCKETS,
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "fipop_reconcile_duration_seconds",
    "Time of one reconciliation.",
    ("kind",),
    buckets=WORK_BUCKETS,
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "fipop_reconcile_errors", "Failed reconciliations, by kind of key.", ("kind",), registry=REGISTRY
)
VISIT_SECONDS = Histogram(
    "fipop_visit_duration_seconds",
    "Time of one visit of a guest cluster.",
    ("result",),
    buckets=WORK_BUCKETS,
    registry=REGISTRY,
)
ALLOCATIONS = Counter(
    "fipop_allocations", "Attempts to assign an address, by result.", ("result",), registry=REGISTRY
)
"""`allocated`, or the reason of the condition that refused it."""
RELEASES = Counter(
    "fipop_address_releases",
    "Released addresses, by result: quarantined or freed.",
    ("result",),
    registry=REGISTRY,
)
API_REQUESTS = Counter(
    "fipop_api_requests",
    "Requests to Kubernetes APIs of the management cluster or guest clusters, by code; 0 means no answer.",
    ("target", "verb", "code"),
    registry=REGISTRY,
)
API_SECONDS = Histogram(
    "fipop_api_request_duration_seconds",
    "Time until a Kubernetes API answered.",
    ("target",),
    buckets=WORK_BUCKETS,
    registry=REGISTRY,
)
HELM_RUNS = Counter("fipop_helm_runs", "Runs of the helm program.", ("command", "result"), registry=REGISTRY)
GUEST_EVENTS = Gauge(
    "kubefipoperator_guestcluster_events",
    "Events of reconciliations of guest clusters; they only increase. The name has no _total, as dashboards expect.",
    ("guestclustername", "harvesterclustername", "event", "status"),
    registry=REGISTRY,
)
"""A gauge, because the library adds _total to the name of every counter."""


class GuestEvent(StrEnum):
    """What the legacy metric of guest events counts."""

    API_CONNECTION = "api_connection"
    CONFIG_MAP = "configmap_management"
    KUBE_VIP_INSTALL = "kubevip_install"
    CLOUD_PROVIDER_INSTALL = "kubevipcloudprovider_install"


def result_label(success: bool) -> str:
    """Return how something ended, as the legacy metric of guest events says it."""
    return "success" if success else "error"


def count_guest_event(cluster: str, harvester_cluster: str, event: GuestEvent, success: bool) -> None:
    """Count one event of a visit, by the names of the provisioning Cluster and of its Harvester cluster."""
    labels = clean_label(cluster), clean_label(harvester_cluster), event.value, result_label(success)
    GUEST_EVENTS.labels(*labels).inc()


def forget_guest(cluster: str) -> None:
    """Drop the events of a guest cluster that is gone. A namesake that lives on counts from zero again."""
    GUEST_EVENTS.remove_by_labels({"guestclustername": clean_label(cluster)})


def observe_api_request(target: str, verb: str, code: int, seconds: float) -> None:
    """Note a request to `management` or a `guest`, by the code of its answer; 0 if none came.

    Of guest clusters only the class (`4xx`): they may answer with any code, and each would be a series.
    """
    label = str(code) if target != GUEST_TARGET or code == 0 else f"{code // 100}xx"
    API_REQUESTS.labels(target, verb, label).inc()
    API_SECONDS.labels(target).observe(seconds)
