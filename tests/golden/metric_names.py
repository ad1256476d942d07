"""The metrics of both roles: names, types, help, labels and buckets.

How the metrics are fed is the only thing here that knows the inside: a rebuild rewires `_operator` and `_provider`.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fipop.cloudprovider.cluster import PoolSample
from fipop.cloudprovider.metrics import (
    API_REQUESTS,
    ASSIGNMENT_SECONDS,
    ASSIGNMENTS,
    REGISTRY,
    ServiceSnapshot,
    render_services,
)
from fipop.metrics import counters
from fipop.metrics.gauges import Gauges, build_registry
from tests.golden.normal import to_yaml
from tests.unit.metrics.samples import Scraped

_OF_THE_PROCESS = ("process_", "python_")


def make_metrics() -> dict[str, str]:
    """Return the metrics of both roles."""
    roles = {"operator": _operator(), "cloud provider": _provider()}
    found = {role: {each.name: _facts(each) for each in _families(text)} for role, text in roles.items()}
    return {"metrics.yaml": to_yaml(found)}


def _operator() -> str:
    fleet = Scraped()
    for event in counters.GuestEvent:
        counters.count_guest_event("demo", "harv1", event, success=True)
    counters.QUEUE_WAIT_SECONDS.labels("objects").observe(0.1)
    counters.RECONCILE_SECONDS.labels("FloatingIP").observe(0.1)
    counters.RECONCILE_ERRORS.labels("FloatingIP").inc()
    counters.VISIT_SECONDS.labels("success").observe(0.1)
    counters.observe_api_request("management", "get", 200, 0.1)
    counters.observe_api_request("guest", "get", 404, 0.1)
    counters.ALLOCATIONS.labels("allocated").inc()
    counters.RELEASES.labels("quarantined").inc()
    counters.HELM_RUNS.labels("upgrade", "success").inc()
    return fleet.render()


def _provider() -> str:
    pool = PoolSample(key="cidr-shop", family="IPv4", total=9, used=4)
    snapshot = ServiceSnapshot(leading=True, version="1.2.3", pools=(pool,), waiting=1, paused=1, bad_keys=1)
    ASSIGNMENTS.clear()
    API_REQUESTS.clear()
    ASSIGNMENTS.labels("assigned").inc()
    ASSIGNMENT_SECONDS.observe(0.1)
    API_REQUESTS.labels("get", "200").inc()
    return generate_latest(build_registry(REGISTRY, Gauges(lambda: render_services(snapshot)))).decode()


def _families(exposition: str) -> Iterator[Any]:
    found = sorted(text_string_to_metric_families(exposition), key=lambda each: str(each.name))
    return (each for each in found if not each.name.startswith(_OF_THE_PROCESS))


def _facts(family: Any) -> dict[str, object]:
    """Return what is promised of a metric; the labels of a histogram are those of its buckets."""
    labels: dict[str, list[str]] = {}
    for sample in family.samples:
        for label, value in sorted(sample.labels.items()):
            shown = "(version)" if label in {"python", "version"} else value
            if shown not in labels.setdefault(label, []):
                labels[label].append(shown)
    found = {"type": family.type, "help": family.documentation}
    return {**found, "labels": {label: "|".join(each) for label, each in labels.items()}} if labels else found
