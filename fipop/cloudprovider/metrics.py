"""The metrics of the cloud provider: counters, used where things happen, and gauges of what the leader knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import Counter, Histogram

from fipop.metrics.gauges import WORK_BUCKETS, Row, Series, build_registry

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
class PoolSample:
    """One family of one pool, by the key that it stands in."""

    key: str
    family: str
    total: int
    used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSnapshot:
    """What is true at the moment of a scrape. Pools and waiting Services are the leader's alone."""

    leading: bool
    version: str = ""
    pools: tuple[PoolSample, ...] = ()
    waiting: int = 0
    paused: int = 0
    bad_keys: int = 0


def _number(name: str, documentation: str, value: Callable[[ServiceSnapshot], float]) -> Row[ServiceSnapshot]:
    return Row(name, documentation, (), lambda found: [((), value(found))])


def _pools(name: str, documentation: str, value: Callable[[PoolSample], float]) -> Row[ServiceSnapshot]:
    def series(found: ServiceSnapshot) -> Series:
        return (((pool.key, pool.family), value(pool)) for pool in found.pools)

    return Row(name, documentation, ("key", "family"), series)


ROWS: tuple[Row[ServiceSnapshot], ...] = (
    Row("fipop_build_info", "The version of fipop.", ("version",), lambda found: [((found.version,), 1)]),
    _number("fipop_leader", "Whether this replica leads.", lambda found: int(found.leading)),
    _number("fipop_services_waiting", "Services that wait for an address.", lambda found: found.waiting),
    _number(
        "fipop_services_paused",
        "Services that another writer changes again and again, and fipop pauses before it writes them.",
        lambda found: found.paused,
    ),
    _number("fipop_service_bad_keys", "Invalid keys of the ConfigMap.", lambda found: found.bad_keys),
    _pools("fipop_service_pool_addresses", "Addresses of a pool, by its key.", lambda pool: pool.total),
    _pools(
        "fipop_service_pool_used",
        "Addresses of a pool that are in use, a shared one once.",
        lambda pool: pool.used,
    ),
    _pools(
        "fipop_service_pool_free",
        "Addresses of a pool that are free.",
        lambda pool: pool.total - pool.used,
    ),
)
