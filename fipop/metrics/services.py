"""The metrics of the cloud provider."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fipop.metrics.registry import WORK_BUCKETS, Exposed, build_registry
from fipop.metrics.samples import clean_label

_POOL_GAUGES = (
    ("fipop_service_pool_addresses", "Addresses of a pool, by its key.", "total"),
    ("fipop_service_pool_used", "Addresses of a pool that are in use, a shared one once.", "used"),
    ("fipop_service_pool_free", "Addresses of a pool that are free.", "free"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSample:
    """One family of one pool, by the key that it stands in."""

    key: str
    family: str
    total: int
    used: int

    @property
    def free(self) -> int:
        """How many can be assigned."""
        return self.total - self.used


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSnapshot:
    """What is true at the moment of a scrape. Pools and waiting Services are the leader's alone."""

    leading: bool
    pools: tuple[PoolSample, ...] = ()
    waiting: int = 0
    paused: int = 0
    bad_keys: int = 0


class ServiceMetrics:
    """Counts what the cloud provider does, and renders it beside the snapshot that `snapshot` gives at each scrape."""

    def __init__(self, snapshot: Callable[[], ServiceSnapshot], *, version: str) -> None:
        self._snapshot = snapshot
        self._version = version
        self._registry = build_registry()
        self._assignments = Counter(
            "fipop_service_assignments",
            "Attempts to assign addresses to a Service, by result.",
            ("result",),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "fipop_service_assignment_seconds",
            "Time from the first sight of a Service without an address until it has one.",
            buckets=WORK_BUCKETS,
            registry=self._registry,
        )
        self._requests = Counter(
            "fipop_api_requests",
            "Requests to the Kubernetes API; code 0 means no answer.",
            ("verb", "code"),
            registry=self._registry,
        )

    def count_assignment(self, result: str) -> None:
        """Count an attempt: `assigned`, or the reason of the condition that refused it."""
        self._assignments.labels(result).inc()

    def observe_assignment(self, seconds: float) -> None:
        """Note how long a Service waited for its first address."""
        self._seconds.observe(seconds)

    def count_request(self, verb: str, code: int) -> None:
        """Count a request by the code of its answer, 0 when none came."""
        self._requests.labels(verb, str(code)).inc()

    def prepare(self) -> Callable[[], bytes]:
        """Take down what is true now, and give what renders it, in whatever thread."""
        exposed = Exposed(self._registry, _Snapshot(self._snapshot(), self._version))
        return functools.partial(generate_latest, exposed)


class _Snapshot(Collector):
    def __init__(self, snapshot: ServiceSnapshot, version: str) -> None:
        self._snapshot = snapshot
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """Render the snapshot."""
        found = self._snapshot
        yield InfoMetricFamily("fipop_build", "The version of fipop.", value={"version": self._version})
        for name, documentation, value in (
            ("fipop_leader", "Whether this replica leads.", int(found.leading)),
            ("fipop_services_waiting", "Services that wait for an address.", found.waiting),
            (
                "fipop_services_paused",
                "Services that another writer changes again and again, and fipop pauses before it writes them.",
                found.paused,
            ),
            ("fipop_service_bad_keys", "Invalid keys of the ConfigMap.", found.bad_keys),
        ):
            yield GaugeMetricFamily(name, documentation, value=value)
        for name, documentation, attribute in _POOL_GAUGES:
            gauge = GaugeMetricFamily(name, documentation, labels=("key", "family"))
            for pool in found.pools:
                gauge.add_metric((clean_label(pool.key), pool.family), getattr(pool, attribute))
            yield gauge
