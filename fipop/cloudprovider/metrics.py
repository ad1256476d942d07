"""The metrics of the cloud provider: counters, used where things happen, and gauges of what the leader knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from fipop.cloudprovider.cluster import PoolSample
from fipop.metrics.gauges import WORK_BUCKETS, build_gauge, build_registry

REGISTRY = build_registry()
"""Everything that is counted in this process."""

ASSIGNMENTS = Counter(
    "fipop_service_assignments",
    "Attempts to assign addresses to a Service, by result.",
    ("result",),
    registry=REGISTRY,
)
"""`assigned`, or the reason of the condition that refused it."""
ASSIGNMENT_SECONDS = Histogram(
    "fipop_service_assignment_seconds",
    "Time from the first sight of a Service without an address until it has one.",
    buckets=WORK_BUCKETS,
    registry=REGISTRY,
)
API_REQUESTS = Counter(
    "fipop_api_requests",
    "Requests to the Kubernetes API; code 0 means no answer.",
    ("verb", "code"),
    registry=REGISTRY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSnapshot:
    """What is true at the moment of a scrape. Pools and waiting Services are the leader's alone."""

    leading: bool
    version: str = ""
    pools: tuple[PoolSample, ...] = ()
    waiting: int = 0
    paused: int = 0
    bad_keys: int = 0


def render_services(found: ServiceSnapshot) -> Iterator[Metric]:
    """Yield the gauges of the cloud provider."""
    yield build_gauge("fipop_build_info", "The version of fipop.", ("version",), [((found.version,), 1)])
    yield GaugeMetricFamily("fipop_leader", "Whether this replica leads.", value=found.leading)
    yield GaugeMetricFamily(
        "fipop_services_waiting", "Services that wait for an address.", value=found.waiting
    )
    yield GaugeMetricFamily(
        "fipop_services_paused",
        "Services that another writer changes again and again, and fipop pauses before it writes them.",
        value=found.paused,
    )
    yield GaugeMetricFamily("fipop_service_bad_keys", "Invalid keys of the ConfigMap.", value=found.bad_keys)
    yield build_gauge(
        "fipop_service_pool_addresses",
        "Addresses of a pool, by its key.",
        ("key", "family"),
        (((each.key, each.family), each.total) for each in found.pools),
    )
    yield build_gauge(
        "fipop_service_pool_used",
        "Addresses of a pool that are in use, a shared one once.",
        ("key", "family"),
        (((each.key, each.family), each.used) for each in found.pools),
    )
    yield build_gauge(
        "fipop_service_pool_free",
        "Addresses of a pool that are free.",
        ("key", "family"),
        (((each.key, each.family), each.total - each.used) for each in found.pools),
    )
